import { chmod, open, readFile, rename } from 'node:fs/promises'
import path from 'node:path'

const NAME = 'api-key'

/** Writes the first key to a file that only the owner of the data folder can read. */
export async function writeKeyFile(dataDir: string, key: string): Promise<string> {
  const file = path.join(dataDir, NAME)
  const temporary = `${file}.${process.pid}`
  const handle = await open(temporary, 'w', 0o600)
  try {
    // The mode of `open` does not apply to a file that was there before.
    await chmod(temporary, 0o600)
    await handle.writeFile(`${key}\n`)
    await handle.sync()
  } finally {
    await handle.close()
  }
  await rename(temporary, file)
  return file
}

/** Reads the key. Returns undefined if there is no file, or if it belongs to somebody else. */
export async function readKeyFile(dataDir: string): Promise<string | undefined> {
  const text = await readFile(path.join(dataDir, NAME), 'utf8').catch(() => '')
  return text.trim() || undefined
}

export async function findKeyFile(dataDir: string): Promise<string | undefined> {
  const file = path.join(dataDir, NAME)
  try {
    await readFile(file)
    return file
  } catch {
    return undefined
  }
}
