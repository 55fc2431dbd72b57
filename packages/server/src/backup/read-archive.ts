import { createHash } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'
import type { Static, TSchema } from 'typebox'
import { Value } from 'typebox/value'
import { codeOf } from '../postgres/failures.js'
import {
  DEFINITION_BYTES_MAX,
  FORMAT,
  HEADER_NAME,
  type Header,
  HeaderSchema,
  MANIFEST_BYTES_MAX,
  MANIFEST_NAME,
  type Manifest,
  ManifestSchema,
  type Progress,
  type TableDefinition,
  TableDefinitionSchema,
  tableName,
} from './archive.js'
import { isBackedUp } from './describe-tables.js'
import { BackupError } from './errors.js'
import { DamagedArchiveError, readTar, type TarEntry } from './tar.js'

/** The place that an archive is restored to. */
export interface Target {
  begin(header: Header): Promise<void>
  /** Stores a table, and returns the number of its rows. Must read all of them. */
  addTable(table: TableDefinition, rows: AsyncIterable<Buffer>): Promise<number>
  /** Stores the content of a file. Must read all of it, and compare it with its hash. */
  addFile(sha256: string, entry: TarEntry): Promise<void>
  onProgress(progress: Progress): void
}

/** The contents of the archive that were read so far. They must match the manifest at its end. */
interface Contents {
  readonly headerHash: string
  readonly tables: Manifest['tables']
  readonly files: { count: number; bytes: number }
}

/** Reads an archive in one pass. Everything was compared with its hash when the promise resolves. */
export async function readArchive(
  source: AsyncIterable<Buffer>,
  target: Target,
): Promise<{ header: Header; done: Progress }> {
  const entries = new Entries(readTar(source))
  const { header, hash } = await readHeader(await entries.next())
  const contents: Contents = { headerHash: hash, tables: [], files: { count: 0, bytes: 0 } }
  await target.begin(header)
  for (;;) {
    const entry = await entries.next()
    if (entry === undefined) throw new DamagedArchiveError('it is truncated')
    const [, table] = /^tables\/([^/]+)\/definition\.json$/.exec(entry.name) ?? []
    const [, sha256] = /^files\/([0-9a-f]{64})$/.exec(entry.name) ?? []
    if (table !== undefined) {
      contents.tables.push(await readTable(target, entries, { name: table, entry }))
    } else if (sha256 !== undefined) {
      await target.addFile(sha256, entry)
      contents.files.count++
      contents.files.bytes += entry.size
    } else if (entry.name === MANIFEST_NAME) {
      requireSame(
        contents,
        parse(entry.name, await readBytes(entry, MANIFEST_BYTES_MAX), ManifestSchema),
      )
      break
    } else throw new DamagedArchiveError(`unexpected entry [${entry.name}]`)
    target.onProgress(progressOf(contents))
  }
  if ((await entries.next()) !== undefined) {
    throw new DamagedArchiveError('there is data after its end')
  }
  return { header, done: progressOf(contents) }
}

function progressOf({ tables, files }: Contents): Progress {
  const rows = tables.reduce((sum, table) => sum + table.rows, 0)
  return { tables: tables.length, rows, files: files.count, bytes: files.bytes }
}

/** Iterates over the entries, with one entry of lookahead. */
class Entries {
  readonly #entries: AsyncGenerator<TarEntry>
  #peeked: TarEntry | undefined

  constructor(entries: AsyncGenerator<TarEntry>) {
    this.#entries = entries
  }

  async next(): Promise<TarEntry | undefined> {
    const peeked = this.#peeked
    this.#peeked = undefined
    if (peeked !== undefined) return peeked
    const next = await this.#entries.next()
    return next.done === true ? undefined : next.value
  }

  async nextIf(isWanted: (entry: TarEntry) => boolean): Promise<TarEntry | undefined> {
    const entry = await this.next()
    if (entry === undefined || isWanted(entry)) return entry
    this.#peeked = entry
    return undefined
  }
}

async function readBytes(entry: TarEntry, bytesMax = DEFINITION_BYTES_MAX): Promise<Buffer> {
  if (entry.size > bytesMax) throw new DamagedArchiveError(`[${entry.name}] is too large`)
  const parts: Buffer[] = []
  for await (const part of entry.content) parts.push(part)
  return Buffer.concat(parts)
}

function parse<Schema extends TSchema>(
  name: string,
  bytes: Buffer,
  schema: Schema,
): Static<Schema> {
  try {
    const document: unknown = JSON.parse(bytes.toString())
    if (Value.Check(schema, document)) return document as Static<Schema>
  } catch {
    // Invalid JSON is reported like a document of the wrong shape.
  }
  throw new DamagedArchiveError(`[${name}] is damaged`)
}

async function readHeader(entry: TarEntry | undefined): Promise<{ header: Header; hash: string }> {
  if (entry?.name !== HEADER_NAME) throw new DamagedArchiveError('it is not a backup of offshoot')
  const bytes = await readBytes(entry)
  const header = parse(entry.name, bytes, HeaderSchema)
  if (header.format !== FORMAT) {
    throw new BackupError(
      `the archive has format ${header.format}, and this version reads format ${FORMAT}: use a newer offshoot`,
    )
  }
  return { header, hash: createHash('sha256').update(bytes).digest('hex') }
}

async function readTable(
  target: Target,
  entries: Entries,
  { name, entry }: { name: string; entry: TarEntry },
): Promise<Manifest['tables'][number]> {
  const bytes = await readBytes(entry)
  const table = parse(entry.name, bytes, TableDefinitionSchema)
  if (tableName(table) !== name || !isBackedUp(table.schema)) {
    throw new DamagedArchiveError(`[${entry.name}] describes another table`)
  }
  const hash = createHash('sha256').update(bytes)
  const readRows = async function* () {
    for await (const chunk of rowsOf(entries, table)) {
      hash.update(chunk)
      yield chunk
    }
  }
  const rows = await target.addTable(table, readRows())
  return { name, rows, sha256: hash.digest('hex') }
}

async function* rowsOf(entries: Entries, table: TableDefinition): AsyncGenerator<Buffer> {
  const prefix = `tables/${tableName(table)}/`
  for (let number = 1; ; number++) {
    const part = await entries.nextIf(({ name }) => name.startsWith(prefix))
    if (part === undefined) return
    if (part.name !== `${prefix}${String(number).padStart(8, '0')}`) {
      throw new DamagedArchiveError(`table [${tableName(table)}]: a part of its rows is missing`)
    }
    yield* part.content
  }
}

function requireSame(contents: Contents, manifest: Manifest): void {
  if (manifest.header !== contents.headerHash) {
    throw new DamagedArchiveError(`[${HEADER_NAME}] does not match its hash`)
  }
  for (const [position, expected] of manifest.tables.entries()) {
    const { name, rows, sha256 } = contents.tables[position] ?? {}
    if (name !== expected.name) {
      throw new DamagedArchiveError(`table [${expected.name}] is missing`)
    }
    if (rows !== expected.rows || sha256 !== expected.sha256) {
      throw new DamagedArchiveError(`table [${expected.name}] does not match its hash`)
    }
  }
  const { count, bytes } = manifest.files
  if (manifest.tables.length !== contents.tables.length) {
    throw new DamagedArchiveError('it has tables that its manifest does not list')
  }
  if (count !== contents.files.count || bytes !== contents.files.bytes) {
    throw new DamagedArchiveError('the number or size of its files is not that of its manifest')
  }
}

/** Explains an error of a restore that comes from the archive. Returns any other as it is. */
export function explainArchiveError(error: unknown): unknown {
  if (error instanceof DamagedArchiveError) {
    return new BackupError(`the archive cannot be used: ${error.message}`)
  }
  const code = codeOf(error instanceof AppError ? error.cause : error)
  if (code?.startsWith('Z_') || code === 'ERR_STREAM_PREMATURE_CLOSE') {
    return new BackupError('the archive cannot be used: it is damaged or truncated')
  }
  // The messages of PostgreSQL may quote rows.
  if (code !== undefined && /^(22|23|42|54)/.test(code)) {
    return new BackupError(`the archive cannot be used: PostgreSQL rejects its content (${code})`)
  }
  return error
}
