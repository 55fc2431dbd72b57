/*
 * A row stores the metadata of a file as JSON; the content is in the blob store. Links depend on the
 * branch that the record is read on, so they are not stored but generated for each response.
 */

/** The metadata of a file, as a row stores it. */
export interface StoredFile {
  /** Set for files of a `file[]` column only. */
  readonly id?: string
  readonly name: string
  readonly mediaType: string
  readonly size: number
  readonly version: number
  readonly enablePublicUrl: boolean
  readonly signedUrlTimeout: number
  readonly uploadUrlTimeout: number
  readonly attributes: { readonly width?: number; readonly height?: number }
  /** Hash of the content. Absent until the content is uploaded. */
  readonly sha256?: string
  /** Random, and replaced by every update, so that links cannot be guessed and old links stop working. */
  readonly key: string
}

type LinkPurpose = 'read' | 'upload'

/** The location of a file within a branch. */
export interface FileAddress {
  readonly columnId: number
  readonly recordId: string
  /** Empty for a `file` column. */
  readonly fileId: string
  readonly key: string
}

/** How the files of a response are written. */
export interface FileForm {
  /** Only callers with write access receive upload links. */
  readonly canUpload: boolean
  /** Returns the link to a file. With `signed`, the link is signed and expires after `seconds`. */
  link(file: FileAddress, signed?: { purpose: LinkPurpose; seconds: number }): string
  /** Requested contents in base64, by SHA-256. Filled before the response is written. */
  readonly contents: Map<string, string>
}

/** The record that a file belongs to, and the form of its links. */
export interface FileRecord {
  readonly recordId: string
  readonly form: FileForm
}

const FIELDS = [
  'id',
  'name',
  'mediaType',
  'size',
  'version',
  'url',
  'enablePublicUrl',
  'signedUrlTimeout',
  'uploadUrlTimeout',
  'attributes',
] as const

/** Written only if requested by name: `base64Content` is large, and the links grant access. */
const FIELDS_BY_NAME = ['base64Content', 'signedUrl', 'uploadUrl'] as const

/** The fields to write of the files of a column. */
export interface FileSelection {
  readonly columnId: number
  readonly isList: boolean
  /** undefined: the default fields. */
  readonly fields?: ReadonlySet<string>
}

const ALL: readonly string[] = [...FIELDS, ...FIELDS_BY_NAME]

/**
 * Resolves a field name of a file column (`*`: all default fields). Returns undefined if there is no such
 * field.
 */
export function fileFields(name: string): readonly string[] | undefined {
  if (name === '*') return FIELDS
  return ALL.includes(name) ? [name] : undefined
}

export const DEFAULT_FILE_FIELDS: readonly string[] = FIELDS
const DEFAULT_FIELDS: ReadonlySet<string> = new Set(FIELDS)

/** The text of a `file[]` column without files. */
export const NO_FILES = '[]'

/** Parses the text of a `file` or `file[]` column. */
export function parseFiles(text: string | null | undefined): readonly StoredFile[] {
  if (text === null || text === undefined) return []
  const value = JSON.parse(text) as StoredFile | StoredFile[]
  return Array.isArray(value) ? value : [value as StoredFile]
}

/** Converts the text of a file column to JSON. Without `record`, the files have no links. */
export function writeFiles(
  text: string,
  selection: FileSelection,
  record: FileRecord | undefined,
): string {
  const [first = '', ...rest] = parseFiles(text).map((file) =>
    fileText(publicFile(file, selection, record)),
  )
  return selection.isList ? `[${rest.reduce((list, file) => `${list},${file}`, first)}]` : first
}

/**
 * Writes a file as JSON. Base64 never needs escaping, so a content is only appended: `JSON.stringify`
 * would read and copy megabytes at once.
 */
function fileText({ base64Content, ...rest }: Record<string, unknown>): string {
  const text = JSON.stringify(rest)
  if (base64Content === undefined) return text
  const members = text.slice(1, -1)
  return `{${members}${members === '' ? '' : ','}"base64Content":"${base64Content}"}`
}

export function publicFile(
  file: StoredFile,
  selection: FileSelection,
  record: FileRecord | undefined,
): Record<string, unknown> {
  const written: Record<string, unknown> = {}
  const { fields = DEFAULT_FIELDS } = selection
  for (const field of FIELDS) {
    if (!fields.has(field)) continue
    const value = field === 'url' ? linkOf(file, selection, record) : file[field]
    if (value !== undefined) written[field] = value
  }
  if (record === undefined) return written
  for (const field of FIELDS_BY_NAME) {
    if (fields.has(field)) written[field] = namedField(field, file, selection, record)
  }
  return written
}

function namedField(
  field: (typeof FIELDS_BY_NAME)[number],
  file: StoredFile,
  selection: FileSelection,
  record: FileRecord,
): string | undefined {
  switch (field) {
    case 'base64Content':
      return record.form.contents.get(file.sha256 ?? '') ?? ''
    case 'signedUrl':
      return linkOf(file, selection, record, { purpose: 'read', seconds: file.signedUrlTimeout })
    case 'uploadUrl':
      if (!record.form.canUpload) return undefined
      return linkOf(file, selection, record, { purpose: 'upload', seconds: file.uploadUrlTimeout })
  }
}

function linkOf(
  { id: fileId = '', key }: StoredFile,
  { columnId }: FileSelection,
  record: FileRecord | undefined,
  signed?: { purpose: LinkPurpose; seconds: number },
): string | undefined {
  return record?.form.link({ columnId, recordId: record.recordId, fileId, key }, signed)
}
