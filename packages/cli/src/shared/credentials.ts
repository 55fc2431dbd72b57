import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'

/** The file in the configuration folder of the user. */
interface Stored {
  /** API keys by the address of the server. */
  readonly keys: Readonly<Record<string, string>>
  /** Branches that were checked out, by project folder. */
  readonly branches: Readonly<Record<string, string>>
}

const EMPTY: Stored = { keys: {}, branches: {} }

export function credentialsFile(): string {
  const base = process.env.XDG_CONFIG_HOME || path.join(homedir(), '.config')
  return path.join(base, 'offshoot', 'credentials.json')
}

export async function readStored(): Promise<Stored> {
  try {
    return { ...EMPTY, ...JSON.parse(await readFile(credentialsFile(), 'utf8')) }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return EMPTY
    throw error
  }
}

/** Replaces the file as a whole, so that an interrupted write loses nothing. */
async function writeStored(stored: Stored): Promise<void> {
  const file = credentialsFile()
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
  const temporary = `${file}.${process.pid}`
  await writeFile(temporary, `${JSON.stringify(stored, null, 2)}\n`, { mode: 0o600 })
  await chmod(temporary, 0o600)
  await rename(temporary, file)
}

export async function storeKey(url: string, key: string | undefined): Promise<void> {
  const stored = await readStored()
  const { [url]: _before, ...others } = stored.keys
  await writeStored({ ...stored, keys: key === undefined ? others : { ...others, [url]: key } })
}

export async function storeBranch(folder: string, branch: string | undefined): Promise<void> {
  const stored = await readStored()
  const { [folder]: _before, ...others } = stored.branches
  await writeStored({
    ...stored,
    branches: branch === undefined ? others : { ...others, [folder]: branch },
  })
}
