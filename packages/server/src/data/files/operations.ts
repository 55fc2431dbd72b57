import { timingSafeEqual } from 'node:crypto'
import type { Readable } from 'node:stream'
import { AppError } from '@offshoot/contract/errors'
import type { File } from '@offshoot/contract/files'
import type { Limits } from '@offshoot/contract/limits'
import type { ByteRange, ReceivedBlob } from '../../blobs/blob-store.js'
import { requireDirectChanges } from '../../domain/access/approvals.js'
import type { Growth } from '../../domain/quotas/quotas.js'
import type { Database } from '../../postgres/database.js'
import { Fault } from '../../rows/columns/fault.js'
import { publicFile, type StoredFile } from '../../rows/columns/file-value.js'
import type { BranchTable } from '../../rows/open-branch.js'
import { confirmed } from '../../rows/running/staleness.js'
import { invalidRecord, recordNotFound } from '../session/record-errors.js'
import { type BranchSession, planColumns } from '../session/session.js'
import type { Sessions } from '../session/sessions.js'
import { type FilePlace, readAccessId } from './access-id.js'
import { checkMediaType, newFileId, uploadedFile } from './file-input.js'
import type { Files } from './files.js'
import { isPrivateEverywhere } from './is-private-everywhere.js'
import type { LinkPurpose } from './links.js'
import { claimUpload } from './upload-claim.js'

export interface FileContext {
  readonly database: Database
  readonly sessions: Sessions
  readonly files: Files
  readonly limits: Limits
}

/** A file by its address. */
export interface FileTarget {
  readonly tableName: string
  readonly recordId: string
  readonly columnName: string
  /** Empty for the file of a `file` column, and for a new file of a `file[]` column. */
  readonly fileId: string
}

/** A file to be sent. */
export interface OpenFile {
  readonly file: StoredFile
  open(range?: ByteRange): Promise<Readable>
}

interface FileColumn {
  readonly table: BranchTable
  readonly path: string
  readonly index: number
  readonly column: BranchTable['codec']['fileColumns'][number]['column']['column']
  readonly isList: boolean
}

/** Returns the file to send, or undefined if it has no content. */
export async function readFile(
  { files: store }: FileContext,
  session: BranchSession,
  target: FileTarget,
): Promise<OpenFile | undefined> {
  const place = findColumn(session, target)
  if (place.isList && target.fileId === '') throw namelessFile(place)
  const files = await readFiles(session, { place, target })
  const file = files.find(({ id = '' }) => id === target.fileId)
  if (file === undefined && target.fileId !== '') throw confirmed(fileNotFound(place, target))
  return file === undefined || file.size === 0
    ? undefined
    : { file, open: (range) => store.open(file, range) }
}

/** Returns the stored metadata of a file. */
export async function getFile(session: BranchSession, target: FileTarget): Promise<StoredFile> {
  const place = findColumn(session, target)
  if (place.isList && target.fileId === '') throw namelessFile(place)
  const files = await readFiles(session, { place, target })
  const file = files.find(({ id = '' }) => id === target.fileId)
  if (file === undefined) throw confirmed(fileNotFound(place, target))
  return file
}

/**
 * Throws if an upload cannot succeed, before any of its data is read. The returned growth counts the upload
 * towards the quota of the workspace. The caller must undo it if the upload fails.
 */
export async function checkUpload(
  { limits }: FileContext,
  session: BranchSession,
  { target, bytes }: { target: FileTarget; bytes: number },
): Promise<Growth> {
  const place = findColumn(session, target)
  if (!place.isList && target.fileId !== '') throw fileNotFound(place, target)
  const files = await readFiles(session, { place, target })
  requireRoom(place, files, { target, limits })
  await session.growth.admit(bytes)
  return session.growth
}

/** Attaches uploaded content to a record. Returns the file, and whether it is new. */
export async function attachFile(
  context: FileContext,
  session: BranchSession,
  options: { target: FileTarget; blob: ReceivedBlob; mediaType: string | undefined; key?: string },
): Promise<{ file: File; created: boolean }> {
  const { target, blob, mediaType, key } = options
  const place = findColumn(session, target)
  const id = place.isList ? target.fileId || newFileId() : undefined
  return changeFiles(session, { place, target }, (files) => {
    const present = files.find((file) => file.id === id)
    // A link is valid for one state of a file. A different key means that the file has changed since.
    if (key !== undefined && present?.key !== key) throw fileNotFound(place, target)
    requireRoom(place, files, { target, limits: context.limits })
    const file = uploadedFile(place.column, { present, id, mediaType, blob })
    return {
      files: present === undefined ? [...files, file] : files.map((f) => (f.id === id ? file : f)),
      result: { file: describe(session, place, { target, file }), created: present === undefined },
    }
  })
}

/** Deletes a file from its record. Returns the deleted file. */
export async function deleteFile(session: BranchSession, target: FileTarget): Promise<File> {
  const place = findColumn(session, target)
  if (place.isList && target.fileId === '') throw namelessFile(place)
  return changeFiles(session, { place, target }, (files) => {
    const file = files.find(({ id = '' }) => id === target.fileId)
    if (file === undefined) throw fileNotFound(place, target)
    return {
      files: files.filter((other) => other !== file),
      result: describe(session, place, { target, file }),
    }
  })
}

/** All invalid links get this message, so that it does not reveal whether the file exists. */
function invalidLink(): AppError {
  return new AppError('invalid_link', 'this link is private, changed or expired')
}

/** Opens the file of a link. Access requires a valid signature or a public file. */
export async function openLink(
  { database, sessions, files }: FileContext,
  options: { accessId: string; verify: string | undefined; origin: string },
): Promise<OpenFile | undefined> {
  const { accessId, verify } = options
  const place = await checkLink({ database, files }, { accessId, verify, purpose: 'read' })
  const found = await sessions
    .runOnBranch({ ...place, origin: options.origin }, async (session) => {
      const file = await findLinkedFile(session, place)
      if (verify === undefined && !(await isPublic(database, session, file))) throw invalidLink()
      return file && { file, open: (range?: ByteRange) => files.open(file, range) }
    })
    .catch(unlessGone)
  if (found === undefined) {
    throw verify === undefined ? invalidLink() : new AppError('file_not_found', 'the file is gone')
  }
  return found.file.size === 0 ? undefined : found
}

async function isPublic(
  database: Database,
  { branch }: BranchSession,
  file: StoredFile | undefined,
): Promise<boolean> {
  if (file?.enablePublicUrl !== true) return false
  const { databaseId } = branch.rows
  const { sha256 } = file
  return sha256 === undefined || !(await isPrivateEverywhere(database, { databaseId, sha256 }))
}

/** Runs an upload, and undoes its growth if it fails. */
export async function orUndo<Result>(
  growth: Growth,
  upload: () => Promise<Result>,
): Promise<Result> {
  try {
    return await upload()
  } catch (error) {
    growth.undo()
    throw error
  }
}

/** Uploads content by an upload link. Calls `receive` to read the content once the link is verified. */
export async function uploadByLink(
  context: FileContext,
  options: {
    accessId: string
    verify: string | undefined
    origin: string
    mediaType: string | undefined
    /** Bytes of the content; 0 if that is not known. */
    bytes: number
    receive(growth: Growth): Promise<ReceivedBlob>
  },
): Promise<File> {
  const { accessId, origin, mediaType } = options
  const { database, sessions } = context
  const verify = options.verify ?? ''
  const place = await checkLink(context, { accessId, verify, purpose: 'upload' })
  const branch = { branchId: place.branchId, origin }
  const findTarget = async (session: BranchSession) => {
    requireDirectChanges(session)
    const file = await findLinkedFile(session, place)
    const target = file && toTarget(session, place)
    if (target === undefined) return undefined
    await session.growth.admit(options.bytes)
    return { target, growth: session.growth }
  }
  return claimUpload(database, accessId, async () => {
    // The lease is free only after an earlier upload has changed the file or failed.
    const found = await sessions.runOnBranch(branch, findTarget).catch(unlessGone)
    if (found === undefined) throw new AppError('file_not_found', 'the file is gone')
    const { target, growth } = found
    return orUndo(growth, async () => {
      const blob = await options.receive(growth)
      const { file } = await sessions.runOnBranch(branch, (session) =>
        attachFile(context, session, { target, blob, mediaType, key: place.key }),
      )
      return file
    })
  })
}

async function checkLink(
  { database, files }: Pick<FileContext, 'database' | 'files'>,
  options: { accessId: string; verify: string | undefined; purpose: LinkPurpose },
): Promise<FilePlace> {
  const { verify } = options
  const place = readAccessId(options.accessId)
  const isTrue = verify === undefined || (await files.links.verify(database, verify, options))
  if (place === undefined || !isTrue) throw invalidLink()
  return place
}

/** Returns undefined if the branch, table, column or record no longer exists. Callers do not learn which. */
function unlessGone(error: unknown): undefined {
  const gone = ['branch_not_found', 'table_not_found', 'record_not_found', 'column_not_found']
  if (error instanceof AppError && gone.includes(error.code)) return undefined
  throw error
}

async function findLinkedFile(
  session: BranchSession,
  place: FilePlace,
): Promise<StoredFile | undefined> {
  const target = toTarget(session, place)
  if (target === undefined) return undefined
  const found = findColumn(session, target)
  const files = await readFiles(session, { place: found, target })
  return files.find((file) => (file.id ?? '') === place.fileId && isSame(file.key, place.key))
}

function toTarget(session: BranchSession, place: FilePlace): FileTarget | undefined {
  const { columnId, recordId, fileId } = place
  const codec = session.schema.tableByFileColumn(columnId)
  const found = codec?.fileColumns.find(({ column }) => column.id === columnId)
  if (codec === undefined || found === undefined) return undefined
  const columnName = found.column.path.join('.')
  return { tableName: codec.table.name, recordId, columnName, fileId }
}

function isSame(left: string, right: string): boolean {
  const [a, b] = [Buffer.from(left), Buffer.from(right)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** Returns the media type of an upload, without parameters such as a charset. */
export function uploadMediaType(header: string | undefined, limits: Limits): string | undefined {
  const mediaType = header?.split(';', 1)[0]?.trim()
  if (mediaType === undefined || mediaType === '') return undefined
  const fault = checkMediaType(mediaType, limits)
  if (fault === undefined) return mediaType
  throw new AppError('invalid_request', `header [Content-Type]: ${fault.message}`)
}

function findColumn(session: BranchSession, target: FileTarget): FileColumn {
  const { tableName, columnName } = target
  const table = session.table(tableName)
  const id = table.codec.encodeId(target.recordId)
  if (id instanceof Fault) throw invalidRecord(table.codec, [id])
  const found = table.codec.fileColumns.find(({ column }) => column.path.join('.') === columnName)
  if (found === undefined) {
    const prefix = `table [${tableName}]: column [${columnName}]`
    throw table.codec.indexes.has(columnName)
      ? new AppError('invalid_request', `${prefix}: holds no files`)
      : new AppError('column_not_found', `${prefix}: column not found`)
  }
  const { column } = found.column
  return { table, path: columnName, index: found.index, column, isList: column.type === 'file[]' }
}

async function readFiles(
  session: BranchSession,
  { place, target }: { place: FileColumn; target: FileTarget },
): Promise<readonly StoredFile[]> {
  const read = planColumns(place.table, [place.path])
  const call = { statement: read.one, values: [target.recordId] }
  const [rows] = await session.branch.runReads([call])
  const row = rows?.[0]
  if (row === undefined) throw confirmed(recordNotFound(target.tableName, target.recordId))
  return read.filesOf(row, place.index)
}

/** Changes the files of a column in a transaction that reads their current state. */
async function changeFiles<Result>(
  session: BranchSession,
  { place, target }: { place: FileColumn; target: FileTarget },
  change: (files: readonly StoredFile[]) => { files: readonly StoredFile[]; result: Result },
): Promise<Result> {
  requireDirectChanges(session)
  const { table, index } = place
  const { recordId: id, tableName } = target
  const { writer } = await session.branch.writable(table)
  const read = planColumns(table, [place.path])
  return session.branch.runSteps(
    async (transaction, [found]) => {
      const row = found?.[0]
      if (row === undefined) throw recordNotFound(tableName, id)
      const { files, result } = change(read.filesOf(row, index))
      const value = place.isList ? files : files[0]
      const text = value === undefined ? null : JSON.stringify(value)
      // `updateOne` cannot be used: its built-in guard needs an API key, which a link does not have.
      const [written] = await transaction.run([writer.update([{ id, values: [text] }], [index])])
      if (written?.[0] === undefined) throw recordNotFound(tableName, id)
      return result
    },
    { first: [{ statement: read.one, values: [id] }] },
  )
}

function requireRoom(
  place: FileColumn,
  files: readonly StoredFile[],
  { target, limits }: { target: FileTarget; limits: Limits },
): void {
  const isNew = place.isList && !files.some((file) => file.id === target.fileId)
  if (!isNew || files.length < limits.filesPerArrayMax) return
  throw new AppError(
    'invalid_record',
    `invalid record: column [${place.path}]: must have at most ${limits.filesPerArrayMax} files`,
  )
}

function describe(
  session: BranchSession,
  { column, isList }: FileColumn,
  { target, file }: { target: FileTarget; file: StoredFile },
): File {
  const form = session.metadata.files
  const record = form && { recordId: target.recordId, form }
  return publicFile(file, { columnId: column.id, isList }, record) as unknown as File
}

function namelessFile({ path }: FileColumn): AppError {
  return new AppError('invalid_request', `column [${path}]: holds many files; name one by its id`)
}

function fileNotFound({ path }: FileColumn, { fileId }: FileTarget): AppError {
  const name = fileId === '' ? 'file' : `file [${fileId}]`
  return new AppError('file_not_found', `column [${path}]: ${name} not found`)
}
