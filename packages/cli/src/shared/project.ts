import { existsSync } from 'node:fs'
import { open, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { UsageError } from './failure.js'
import { notice } from './output.js'
import { isTrusted } from './trusted-owner.js'

/** The contents of `.offshoot.json`, which is committed with the project. */
interface ProjectFile {
  readonly url?: string
  readonly workspace?: string
  readonly database?: string
}

export interface Project extends ProjectFile {
  /** The folder of the file, or the current folder if there is none. */
  readonly folder: string
  readonly file: string | undefined
}

const PROJECT_FILE = '.offshoot.json'
const FIELDS = ['url', 'workspace', 'database']

/**
 * Reads `.offshoot.json` of this folder or the nearest one above. The search ends at the top of a git work tree, and
 * at the home folder. Files of other users are ignored.
 */
export async function findProject(from = process.cwd()): Promise<Project> {
  for (let folder = from; ; folder = path.dirname(folder)) {
    const file = path.join(folder, PROJECT_FILE)
    const text = await readOwn(file)
    if (text !== undefined) return { ...parse(file, text), folder, file }
    const isTop = folder === homedir() || existsSync(path.join(folder, '.git'))
    if (isTop || path.dirname(folder) === folder) return { folder: from, file: undefined }
  }
}

async function readOwn(file: string): Promise<string | undefined> {
  const handle = await open(file).catch(() => undefined)
  if (handle === undefined) return undefined
  try {
    const status = await handle.stat()
    if (!status.isFile()) return undefined
    if (isTrusted(status)) return await handle.readFile('utf8')
    notice(`offshoot: ignored ${file}, because it belongs to another user`)
    return undefined
  } finally {
    await handle.close()
  }
}

function parse(file: string, text: string): ProjectFile {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new UsageError(`${file} is not valid JSON: ${(error as Error).message}`)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new UsageError(`${file}: expected an object`)
  }
  for (const [name, field] of Object.entries(value)) {
    if (!FIELDS.includes(name)) throw new UsageError(`${file}: field [${name}] is not known`)
    if (typeof field !== 'string') throw new UsageError(`${file}: field [${name}]: expected a text`)
  }
  return value
}

export async function writeProject(folder: string, project: ProjectFile): Promise<string> {
  const file = path.join(folder, PROJECT_FILE)
  await writeFile(file, `${JSON.stringify(project, null, 2)}\n`)
  return file
}
