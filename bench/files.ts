import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'
import type { CpuMeter } from './cpu.js'
import {
  createEnvironment,
  type Environment,
  headers,
  residentMiB,
  startProcess,
  stopProcess,
} from './environment.js'
import { inTurns, timeMs } from './measure.js'
import { type Figure, figure } from './report.js'

const FILE_BYTES = 256 * 1024 * 1024
const CHUNK = randomBytes(1024 * 1024)
const MEMORY_MIB = 300

export async function benchFiles({ quick }: { quick: boolean }): Promise<Figure[]> {
  const environment = await createEnvironment()
  const bare = await startProcess(
    [fileURLToPath(new URL('./bare-file-server.js', import.meta.url))],
    {},
  )
  const bareHttp = new Pool(bare.output.trim(), { connections: 4 })
  try {
    return await measure(environment, bareHttp, {
      rounds: quick ? 3 : 7,
      barePid: bare.process.pid,
    })
  } finally {
    await bareHttp.close()
    await stopProcess(bare.process)
    await environment.close()
  }
}

async function measure(
  environment: Environment,
  bare: Pool,
  { rounds, barePid }: { rounds: number; barePid: number | undefined },
): Promise<Figure[]> {
  const { http, workspace } = environment
  await environment.call('PUT', `/workspaces/${workspace}/dbs/bench`, { region: 'local' })
  await environment.call('POST', '/db/bench:main/schema/update', {
    operations: [
      { addTable: { table: 'people' } },
      { addColumn: { table: 'people', column: { name: 'photo', type: 'file' } } },
    ],
  })
  await environment.call('PUT', '/db/bench:main/tables/people/data/one', {})
  const path = '/db/bench:main/tables/people/data/one/column/photo/file'
  let peakMiB = 0
  const watch = setInterval(async () => {
    peakMiB = Math.max(peakMiB, await residentMiB(environment.serverPid))
  }, 20)
  const rate = (ms: number) => FILE_BYTES / 1024 / 1024 / (ms / 1000)
  const send = async (pool: Pool, target: string, cpu: CpuMeter) =>
    rate(await timeMs(() => put(pool, target), cpu))
  const fetchAll = async (pool: Pool, target: string, cpu: CpuMeter) =>
    rate(await timeMs(() => get(pool, target), cpu))
  const uploadCpu = environment.cpuMeters(barePid)
  const downloadCpu = environment.cpuMeters(barePid)
  await put(http, path)
  await put(bare, '/file')
  const upload = await inTurns(rounds, {
    baseline: () => send(bare, '/file', uploadCpu.baseline),
    ours: () => send(http, path, uploadCpu.ours),
  })
  const download = await inTurns(rounds, {
    baseline: () => fetchAll(bare, '/file', downloadCpu.baseline),
    ours: () => fetchAll(http, path, downloadCpu.ours),
  })
  clearInterval(watch)
  const against = ({ ours, baseline }: { ours: number; baseline: number }) =>
    `${ours.toFixed(0)} MiB/s against ${baseline.toFixed(0)} of a bare stream server`
  return [
    figure('download of 256 MiB', {
      ratio: download.ours / download.baseline,
      atLeast: 0.5,
      detail: against(download),
      cpu: downloadCpu,
    }),
    figure('upload of 256 MiB', {
      ratio: upload.ours / upload.baseline,
      atLeast: 0.5,
      detail: against(upload),
      cpu: uploadCpu,
    }),
    figure('memory during file transfers', {
      value: peakMiB,
      atMost: MEMORY_MIB,
      unit: ' MiB',
      detail: `${peakMiB.toFixed(0)} MiB peak`,
    }),
  ]
}

let uploads = 0

/** Each upload has different content, because the service stores equal content only once. */
async function put(pool: Pool, path: string): Promise<void> {
  const first = Buffer.from(CHUNK)
  first.writeUInt32BE(++uploads)
  const chunks = function* () {
    yield first
    for (let sent = first.length; sent < FILE_BYTES; sent += CHUNK.length) yield CHUNK
  }
  const response = await pool.request({
    method: 'PUT',
    path,
    headers: { ...headers(), 'content-type': 'application/octet-stream' },
    body: Readable.from(chunks()),
  })
  const text = await response.body.text()
  if (response.statusCode >= 300) throw new Error(`${response.statusCode}: ${text}`)
}

async function get(pool: Pool, path: string): Promise<void> {
  const response = await pool.request({ method: 'GET', path, headers: headers() })
  let bytes = 0
  for await (const chunk of response.body) bytes += (chunk as Buffer).length
  if (bytes !== FILE_BYTES) throw new Error(`${response.statusCode}: ${bytes} bytes`)
}
