import { AppError } from '@offshoot/contract/errors'
import { inTurns } from '../../common/in-turns.js'
import type { Call, TextRows } from '../../postgres/statement.js'
import type { StoredFile } from '../../rows/columns/file-value.js'
import type { InputRecord } from '../../rows/columns/record-encoder.js'
import type { BranchTable } from '../../rows/open-branch.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import type { FileWriter } from '../files/file-input.js'
import type { Files } from '../files/files.js'
import { planColumns, type Session } from '../session/session.js'

/** Access to the files of the records of a branch. */
interface FileAccess {
  readonly session: Session
  readonly files: Files
}

/** The current files of a record, in some columns. */
export interface PresentFiles {
  readonly files: ReadonlyMap<number, readonly StoredFile[]>
  /** Reads the files again, in the transaction that writes the record. */
  readonly readAgain: Call
  isSame(rows: TextRows): boolean
}

/** Thrown if the files of a record have changed since they were read. */
export class FilesChangedError extends Error {}

const FILE_ATTEMPTS_MAX = 20

/**
 * Runs a write that depends on the current files of a record. Repeats it if the files change meanwhile. A
 * write without files runs once and reads nothing first.
 */
export async function onPresentFiles<Result>(
  context: FileAccess,
  table: BranchTable,
  record: { id: string; fields: InputRecord },
  run: (present: PresentFiles | undefined) => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    const present = await findPresentFiles(context, table, record)
    try {
      return await run(present)
    } catch (error) {
      if (!(error instanceof FilesChangedError)) throw error
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
  { session }: FileAccess,
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
  const textsIn = ([row]: TextRows) =>
    touched.map(({ index }) => (row === undefined ? null : read.textOf(row, index)))
  const readAgain = { statement: read.one, values: [id] }
  const [rows = []] = await session.branch.runReads([readAgain])
  const [row] = rows
  const texts = textsIn(rows)
  return {
    files: new Map(
      touched.map(({ column, index }) => [column.id, row ? read.filesOf(row, index) : []]),
    ),
    readAgain,
    // Every change of a file gives it a new key, so equal texts are those of the same files.
    isSame: (found) => textsIn(found).every((text, position) => text === texts[position]),
  }
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
  read: TableRead,
  rows: TextRows,
): Promise<void> | undefined {
  return read.hasContents ? files.loadContents(session.metadata, read, rows) : undefined
}
