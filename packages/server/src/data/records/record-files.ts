import { AppError } from '@offshoot/contract/errors'
import { inTurns } from '../../common/in-turns.js'
import type { Database } from '../../postgres/database.js'
import type { TextRows } from '../../postgres/statement.js'
import type { InputRecord } from '../../rows/columns.js'
import { parseFiles, type StoredFile } from '../../rows/files.js'
import { recordVersion, runReads, textOf } from '../../rows/read.js'
import type { BranchTable, CompiledRead } from '../../rows/tables.js'
import type { FileWriter } from '../files/file-input.js'
import type { Files } from '../files/files.js'
import { planColumns, type Session } from '../session/session.js'

/** Access to the files of the records of a branch. */
interface FileAccess {
  readonly database: Database
  readonly session: Session
  readonly files: Files
}

/** The current files of a record, and the version of the record. */
interface PresentFiles {
  readonly version: number
  readonly files: ReadonlyMap<number, readonly StoredFile[]>
}

/** No record has this version, so an upsert that expects it can only create a record. */
const NO_VERSION = Number.MAX_SAFE_INTEGER
const FILE_ATTEMPTS_MAX = 20

/**
 * Runs a write that depends on the current files of a record. Repeats it if the record changes meanwhile. A
 * write without files runs once and reads nothing first.
 */
export async function onPresentFiles<Result>(
  context: FileAccess,
  table: BranchTable,
  options: { id: string; fields: InputRecord; ifVersion: number | undefined },
  run: (present: PresentFiles | undefined) => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    const present = await findPresentFiles(context, table, options)
    try {
      return await run(present)
    } catch (error) {
      const isOutrun =
        present !== undefined &&
        options.ifVersion === undefined &&
        error instanceof AppError &&
        error.code === 'version_conflict'
      if (!isOutrun) throw error
      if (attempt === FILE_ATTEMPTS_MAX) {
        throw new AppError('retry_limit', 'the record kept changing; nothing was applied')
      }
    }
  }
}

/**
 * Reads the current files of a record in the given fields. Returns undefined if the fields contain no files.
 */
export async function findPresentFiles(
  { database, session }: FileAccess,
  table: BranchTable,
  { id, fields }: { id: string; fields: InputRecord },
): Promise<PresentFiles | undefined> {
  const { fileColumns } = table.codec
  const touched = fileColumns.filter(({ column }) => fields[column.path[0] ?? ''] != null)
  if (touched.length === 0) return undefined
  const read = planColumns(
    table,
    touched.map(({ column }) => column.path.join('.')),
  )
  const [rows] = await runReads(database, session.guard, [{ statement: read.one, values: [id] }])
  const row = rows?.[0]
  if (row === undefined) return { version: NO_VERSION, files: new Map() }
  const files = touched.map(
    ({ index, column }) => [column.id, parseFiles(textOf(read.plan, row, index))] as const,
  )
  return { version: recordVersion(row[1], session.metadata), files: new Map(files) }
}

/**
 * Returns a writer for the files of records. Their contents are decoded here, in turns, because encoding
 * a record is a single step. Returns undefined for tables without file columns.
 */
export function fileWriter(
  access: Pick<FileAccess, 'session' | 'files'>,
  table: BranchTable,
  records: readonly unknown[],
  options: { present?: PresentFiles['files'] | undefined; merges?: boolean } = {},
): Promise<FileWriter> | undefined {
  if (table.codec.fileColumns.length === 0) return undefined
  return decodeFiles(access, table, records, options)
}

async function decodeFiles(
  { session, files }: Pick<FileAccess, 'session' | 'files'>,
  { codec: { fileColumns } }: BranchTable,
  records: readonly unknown[],
  options: { present?: PresentFiles['files'] | undefined; merges?: boolean },
): Promise<FileWriter> {
  const { present, merges = false } = options
  const isXataClient = session.metadata.key === 'xata'
  const known = present === undefined ? {} : { present }
  const writer = files.writer({ merges, isXataClient, ...known })
  const paths = fileColumns.map(({ column }) => column.path)
  await inTurns(writer.decodeContents(records, paths))
  return writer
}

/** Stores contents before the row that refers to them is written. */
export function storeFiles(
  { files, session }: FileAccess,
  writer: FileWriter | undefined,
): Promise<void> | undefined {
  return writer && files.store(writer.pending, session.growth.workspaceId)
}

/** Reads the requested contents, which are not in the rows, before rows are written as JSON. */
export function loadContents(
  { session, files }: Pick<FileAccess, 'session' | 'files'>,
  { hasContents, plan }: CompiledRead,
  rows: TextRows,
): Promise<void> | undefined {
  return hasContents ? files.loadContents(session.metadata, plan, rows) : undefined
}
