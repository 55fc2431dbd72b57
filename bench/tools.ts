import { execFile } from 'node:child_process'
import { createWriteStream } from 'node:fs'
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { finished } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { build } from 'vite'
import { createEnvironment, type Environment, headers } from './environment.js'
import { inTurns, timeMs } from './measure.js'
import { insertStream, thousands } from './people.js'
import { type Figure, figure } from './report.js'

const execute = promisify(execFile)
const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const CLI = path.join(ROOT, 'packages', 'cli', 'bin', 'offshoot.js')
const HEADING = ['id', 'name', 'email', 'age', 'score', 'active', 'seen']

/** The command line and the client. */
export async function benchTools(options: { quick: boolean }): Promise<Figure[]> {
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-tools-'))
  try {
    return [
      await measureSize(folder),
      await measureCompiler(folder, options),
      await measureImport(folder, options),
    ]
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** The client as a bundler ships it to a browser. */
async function measureSize(folder: string): Promise<Figure> {
  const bundle = await build({
    root: folder,
    logLevel: 'silent',
    configFile: false,
    build: {
      write: false,
      minify: true,
      lib: { entry: path.join(ROOT, 'packages/client/dist/index.js'), formats: ['es'] },
    },
  })
  const [output] = Array.isArray(bundle) ? bundle : [bundle]
  if (output === undefined || !('output' in output)) throw new Error('nothing was built')
  const code = output.output.map((part) => ('code' in part ? part.code : '')).join('')
  const bytes = gzipSync(code).length
  return figure('client, minified and gzipped', {
    value: bytes / 1024,
    atMost: 8,
    unit: ' KiB',
    detail: `${(bytes / 1024).toFixed(1)} KiB; ${(code.length / 1024).toFixed(1)} KiB before gzip`,
  })
}

/** The time of the compiler for a program that uses 50 tables of a schema with 200, and of one with 50. */
async function measureCompiler(folder: string, { quick }: { quick: boolean }): Promise<Figure> {
  await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
  await writeFile(path.join(folder, 'package.json'), '{"type": "module"}')
  const compile = async (tables: number) => {
    const name = `program${tables}.ts`
    await writeFile(path.join(folder, name), programText(tables))
    const compiler = path.join(ROOT, 'node_modules/typescript/bin/tsc')
    const flags = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2023']
    const more = ['--skipLibCheck', '--types', 'node', '--extendedDiagnostics', name]
    const { stdout } = await execute(process.execPath, [compiler, ...flags, ...more], {
      cwd: folder,
    })
    const seconds = Number(/Total time:\s+([\d.]+)s/.exec(stdout)?.[1])
    const instantiations = Number(/Instantiations:\s+(\d+)/.exec(stdout)?.[1])
    return { seconds, instantiations }
  }
  let detail = ''
  const { ours, baseline } = await inTurns(quick ? 3 : 9, {
    ours: async () => {
      const { seconds, instantiations } = await compile(200)
      detail = `${thousands(instantiations)} instantiations`
      return seconds
    },
    baseline: async () => (await compile(50)).seconds,
  })
  return figure('tsc, 200 tables against 50', {
    ratio: ours / baseline,
    atMost: 2,
    detail: `${ours.toFixed(2)} s, ${baseline.toFixed(2)} s; ${detail}`,
  })
}

/** A schema with links in both directions, and a program that queries 50 of its tables. */
function programText(tables: number): string {
  const declarations = Array.from({ length: tables }, (_, n) => {
    const texts = Array.from({ length: 16 }, (__, column) => `text${column}: string | null`)
    const links = [1, 7].map((step) => `link${step}: Link<'table${(n + step) % tables}'> | null`)
    const others = ['count: WithDefault<number>', 'seen: DateTime | null', 'data: Json | null']
    return `  table${n}: { ${[...texts, ...links, ...others].join('; ')} }`
  })
  const uses = Array.from(
    { length: 50 },
    (_, n) => `
for await (const record of client.table('table${n}').query({
  columns: { text0: true, link1: { text1: true, link7: { text2: true } }, seen: true },
  filter: { count: { $gt: ${n} }, link1: { text3: { $startsWith: 'a' } } },
  sort: { text0: 'asc' },
})) {
  const found: string | undefined = record.link1?.link7?.text2
  await client.table('table${n}').update(record.id, { text4: found ?? null, count: { $increment: 1 } })
}
await client.transaction([
  { insert: { table: 'table${n}', record: { text0: 'x' }, columns: ['text0'] } },
  { get: { table: 'table${n}', id: 'x', columns: { link1: { text1: true } } } },
])`,
  )
  return `import { createClient, type DateTime, type Json, type Link, type WithDefault } from '@offshoot/client'

interface Schema {
${declarations.join('\n')}
}
const client = createClient<Schema>({ url: 'http://x', apiKey: 'x', database: 'x', branch: 'x' })
${uses.join('\n')}
`
}

/** `offshoot import` of a CSV file, against one stream of the same records as NDJSON. */
async function measureImport(folder: string, { quick }: { quick: boolean }): Promise<Figure> {
  const rows = quick ? 50_000 : 200_000
  const csv = path.join(folder, 'people.csv')
  const ndjson = path.join(folder, 'people.ndjson')
  await writeRows(rows, { csv, ndjson })
  const environment = await createEnvironment()
  try {
    await environment.call('PUT', `/workspaces/${environment.workspace}/dbs/bench`, {
      region: 'local',
    })
    const body = await readFile(ndjson)
    let round = 0
    const { ours, baseline } = await inTurns(quick ? 1 : 3, {
      ours: async () => rows / ((await importCsv(environment, csv, `csv${round++}`)) / 1000),
      baseline: async () => {
        const table = `stream${round}`
        await createTable(environment, table)
        const ms = await timeMs(() => insertStream(environment, table, body))
        return rows / (ms / 1000)
      },
    })
    return figure(`import of ${thousands(rows)} rows of CSV`, {
      ratio: ours / baseline,
      atLeast: 0.5,
      detail: `${thousands(ours)} rows/s, as NDJSON ${thousands(baseline)} rows/s`,
    })
  } finally {
    await environment.close()
  }
}

async function writeRows(rows: number, files: { csv: string; ndjson: string }): Promise<void> {
  const csv = createWriteStream(files.csv)
  const ndjson = createWriteStream(files.ndjson)
  csv.write(`${HEADING.join(',')}\n`)
  for (let n = 0; n < rows; n++) {
    const seen = new Date(1_700_000_000_000 + n * 1000).toISOString()
    const values = [`p${n}`, `Person, ${n}`, `person${n}@example.com`, n % 90, n / 7, n % 2 === 0]
    csv.write(`${[...values, seen].map((value) => `"${value}"`).join(',')}\n`)
    const fields = HEADING.map((name, index) => [name, [...values, seen][index]])
    ndjson.write(`${JSON.stringify(Object.fromEntries(fields))}\n`)
  }
  csv.end()
  ndjson.end()
  await Promise.all([finished(csv), finished(ndjson)])
}

/** The whole command, with the start of the process and the search for types. */
async function importCsv(
  { url, workspace }: Environment,
  file: string,
  table: string,
): Promise<number> {
  const env = {
    PATH: process.env.PATH ?? '',
    HOME: path.dirname(file),
    OFFSHOOT_URL: url,
    OFFSHOOT_API_KEY: headers().authorization?.slice('Bearer '.length) ?? '',
    OFFSHOOT_WORKSPACE: workspace,
    OFFSHOOT_DATABASE: 'bench',
    OFFSHOOT_BRANCH: 'main',
  }
  const args = [CLI, 'import', file, '--table', table, '--create', '--yes']
  return timeMs(() => execute(process.execPath, args, { env }))
}

async function createTable({ call }: Environment, table: string): Promise<void> {
  const types = ['string', 'email', 'int', 'float', 'bool', 'datetime']
  const columns = types.map((type, index) => ({ name: HEADING[index + 1], type }))
  await call('POST', '/db/bench:main/schema/apply', {
    edits: {
      operations: [
        { addTable: { table } },
        ...columns.map((column) => ({ addColumn: { table, column } })),
      ],
    },
  })
}
