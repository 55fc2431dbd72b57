import { createHash } from 'node:crypto'
import type { Header, TableDefinition } from '../../packages/server/src/backup/archive.js'
import { createBackup, type DatabaseName } from '../../packages/server/src/backup/create-backup.js'
import { readTar, TarWriter } from '../../packages/server/src/backup/tar.js'
import type { BlobStore } from '../../packages/server/src/blobs/blob-store.js'
import { Database } from '../../packages/server/src/postgres/database.js'

/** Connects to a database as the commands for backups do. The caller closes it. */
export function openForBackup(url: string, { distributes = true } = {}): Database {
  const database = new Database({
    poolMax: 6,
    distributes,
    statementTimeoutMs: 0,
    onIdleError: () => undefined,
  })
  database.connect({ url })
  return database
}

/** Makes a backup of an instance, or of one database of it. */
export async function makeArchive(from: {
  database: Database
  blobs: BlobStore
  only?: DatabaseName | undefined
}): Promise<Buffer> {
  const chunks: Buffer[] = []
  await createBackup({
    ...from,
    // Copied, because the backup reuses the memory of a chunk.
    sink: async (chunk) => void chunks.push(Buffer.from(chunk)),
    onProgress: () => undefined,
  })
  return Buffer.concat(chunks)
}

/** Yields an archive in parts. */
export async function* inChunks(archive: Buffer): AsyncGenerator<Buffer> {
  for (let start = 0; start < archive.length; start += 10_000) {
    yield archive.subarray(start, start + 10_000)
  }
}

/** A table of an archive. Rows are lines in the text form of COPY. */
export interface ArchivedTable {
  definition: TableDefinition
  rows: string[]
}

/** The content of an archive. */
export interface ArchiveContent {
  header: Header
  tables: ArchivedTable[]
  files: { sha256: string; content: Buffer }[]
}

/** Reads an archive, lets `change` alter it, and writes it again with the hashes of the new content. */
export async function forgeArchive(
  archive: Buffer,
  change: (content: ArchiveContent) => void,
): Promise<Buffer> {
  const content = await readContent(archive)
  change(content)
  return writeContent(content)
}

async function readContent(archive: Buffer): Promise<ArchiveContent> {
  let header: Header | undefined
  const tables: { definition: TableDefinition; parts: Buffer[] }[] = []
  const files: ArchiveContent['files'] = []
  for await (const { name, content } of readTar(inChunks(archive))) {
    const parts: Buffer[] = []
    for await (const part of content) parts.push(part)
    const bytes = Buffer.concat(parts)
    if (name === 'backup.json') header = JSON.parse(bytes.toString())
    else if (name.endsWith('/definition.json')) {
      tables.push({ definition: JSON.parse(bytes.toString()), parts: [] })
    } else if (name.startsWith('tables/')) tables.at(-1)?.parts.push(bytes)
    else if (name.startsWith('files/')) files.push({ sha256: name.slice(6), content: bytes })
  }
  if (header === undefined) throw new Error('an archive must have a header')
  return {
    header,
    tables: tables.map(({ definition, parts }) => ({
      definition,
      rows: Buffer.concat(parts).toString().split('\n').slice(0, -1),
    })),
    files,
  }
}

async function writeContent({ header, tables, files }: ArchiveContent): Promise<Buffer> {
  const chunks: Buffer[] = []
  const tar = new TarWriter(async (chunk) => void chunks.push(Buffer.from(chunk)))
  const head = Buffer.from(JSON.stringify(header))
  const sha256 = (...parts: Buffer[]) =>
    createHash('sha256').update(Buffer.concat(parts)).digest('hex')
  await tar.add('backup.json', head)
  const listed: { name: string; rows: number; sha256: string }[] = []
  for (const { definition, rows } of tables) {
    const name = `${definition.schema}.${definition.name}`
    const described = Buffer.from(JSON.stringify(definition))
    const lines = Buffer.from(rows.map((row) => `${row}\n`).join(''))
    await tar.add(`tables/${name}/definition.json`, described)
    if (lines.length > 0) await tar.add(`tables/${name}/00000001`, lines)
    listed.push({ name, rows: rows.length, sha256: sha256(described, lines) })
  }
  for (const file of files) await tar.add(`files/${file.sha256}`, file.content)
  const bytes = files.reduce((sum, file) => sum + file.content.length, 0)
  const manifest = { header: sha256(head), tables: listed, files: { count: files.length, bytes } }
  await tar.add('manifest.json', Buffer.from(JSON.stringify(manifest)))
  await tar.end()
  return Buffer.concat(chunks)
}

/** Returns a table of an archive by the end of its name. */
export function tableIn({ tables }: ArchiveContent, name: string | RegExp): ArchivedTable {
  const found = tables.find(({ definition }) =>
    typeof name === 'string' ? definition.name === name : name.test(definition.name),
  )
  if (found === undefined) throw new Error(`an archive must have a table [${name}]`)
  return found
}

/** Alters one value of all rows of a table, in the text form of COPY. */
export function alterColumn(
  { definition, rows }: ArchivedTable,
  column: string,
  alter: (value: string, row: number) => string,
): void {
  const index = definition.columns.findIndex(({ name }) => name === column)
  if (index < 0) throw new Error(`a table must have a column [${column}]`)
  for (const [number, row] of rows.entries()) {
    const values = row.split('\t')
    values[index] = alter(values[index] ?? '', number)
    rows[number] = values.join('\t')
  }
}
