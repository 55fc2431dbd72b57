import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'

/** The file in the configuration folder of the user. */
interface Stored {
  /** API keys by the address of the server. */
  readonly keys: Readonly<Record<string, string>>
  /** Branches that were checked out, by project folder. */
  readonly branches: Readonly<Record<string, string>>
  /** Servers of this machine, by project folder. Other people of a project have other ones. */
  readonly servers: Readonly<Record<string, string>>
}

const EMPTY: Stored = { keys: {}, branches: {}, servers: {} }

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

export function storeKey(url: string, key: string | undefined): Promise<void> {
  return store('keys', url, key)
}

export function storeBranch(folder: string, branch: string | undefined): Promise<void> {
  return store('branches', folder, branch)
}

export function storeServer(folder: string, url: string | undefined): Promise<void> {
  return store('servers', folder, url)
}

/** Sets a value, or removes it. */
async function store(kind: keyof Stored, name: string, value: string | undefined): Promise<void> {
  const stored = await readStored()
  if (stored[kind][name] === value) return
  const { [name]: _before, ...others } = stored[kind]
  await writeStored({
    ...stored,
    [kind]: value === undefined ? others : { ...others, [name]: value },
  })
}
