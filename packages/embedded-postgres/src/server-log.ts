import { type FileHandle, open, rename, stat } from 'node:fs/promises'
import { lastLines } from './run.js'

const largestLog = 10 * 1024 * 1024

/** The log file of the server, opened for one run. */
interface ServerLog {
  readonly descriptor: number
  /** Returns the last lines that were written since the file was opened. */
  tail(): Promise<string>
  close(): Promise<void>
}

export async function openServerLog(path: string): Promise<ServerLog> {
  const earlierSize = await stat(path).then(
    ({ size }) => size,
    () => 0,
  )
  if (earlierSize > largestLog) await rename(path, `${path}.1`)
  const handle = await open(path, 'a+', 0o600)
  const { size: start } = await handle.stat()
  return {
    descriptor: handle.fd,
    tail: () => readTail(handle, start),
    close: () => handle.close(),
  }
}

async function readTail(handle: FileHandle, start: number): Promise<string> {
  const { size } = await handle.stat()
  const from = Math.max(start, size - 10_000)
  const buffer = Buffer.alloc(Math.max(size - from, 0))
  await handle.read(buffer, 0, buffer.length, from)
  return lastLines(buffer.toString())
}
