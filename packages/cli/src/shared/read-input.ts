import { readFile } from 'node:fs/promises'
import { UsageError } from './failure.js'

/** Reads a file that an argument names; `-` is stdin. */
export function readInput(file: string): Promise<string> {
  if (file === '-') return readStdin()
  return readFile(file, 'utf8').catch((error: Error) => {
    throw new UsageError(`cannot read [${file}]: ${error.message}`)
  })
}

export async function readStdin(): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString()
}
