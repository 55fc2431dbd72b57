import { createReadStream, createWriteStream } from 'node:fs'
import { mkdtemp, open, rename, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'

/*
 * The baseline for files: streams between a socket and a file, and nothing else. It syncs an upload
 * to disk before it answers, because any file server must.
 */
const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-bare-'))
const file = path.join(folder, 'file')

const server = createServer(async (request, response) => {
  if (request.method === 'GET') {
    await pipeline(createReadStream(file), response)
    return
  }
  await pipeline(request, createWriteStream(`${file}.new`))
  const handle = await open(`${file}.new`)
  await handle.sync()
  await handle.close()
  await rename(`${file}.new`, file)
  response.end()
})
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`http://127.0.0.1:${(server.address() as AddressInfo).port}\n\n`)
})
process.on('SIGTERM', () => {
  void rm(folder, { recursive: true, force: true }).then(() => process.exit(0))
})
