import { randomBytes } from 'node:crypto'
import { open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { errorCode } from './errors.js'

/** Returns the text of a file, or undefined if there is no such file. */
export async function readIfExists(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  }
}

export async function exists(path: string): Promise<boolean> {
  try {
    await stat(path)
    return true
  } catch (error) {
    if (errorCode(error) === 'ENOENT' || errorCode(error) === 'ENOTDIR') return false
    throw error
  }
}

/** Makes new and renamed entries of a folder survive a power failure. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Replaces a file atomically. Only its owner can read it. */
export async function writePrivateFile(file: string, text: string): Promise<void> {
  const temporary = `${file}.new-${randomName()}`
  try {
    const handle = await open(temporary, 'wx', 0o600)
    try {
      await handle.writeFile(text)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await syncFolder(dirname(file))
}

/** Removes temporary files and folders of interrupted runs that were to be renamed to this path. */
export async function removeLeftovers(path: string): Promise<void> {
  const prefix = `${basename(path)}.new-`
  for (const name of await readdir(dirname(path))) {
    // A file that cannot be removed only takes space.
    if (name.startsWith(prefix)) await removeTree(join(dirname(path), name)).catch(() => {})
  }
}

/** Removes a folder into which a process of an interrupted run may still be writing. */
export async function removeTree(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
}

export function randomName(): string {
  return randomBytes(6).toString('hex')
}
