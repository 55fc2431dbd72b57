import { createHash, randomBytes } from 'node:crypto'
import {
  DEFAULT_MEDIA_TYPE,
  SIGNED_URL_SECONDS,
  UPLOAD_URL_SECONDS,
} from '@offshoot/contract/files'
import type { Limits } from '@offshoot/contract/limits'
import { FILE_NAME_PATTERN, MEDIA_TYPE_PATTERN, RECORD_ID_PATTERN } from '@offshoot/contract/names'
import { timeOrderedId } from '../../common/ids.js'
import { expected, Fault, type FileEncoder, type StoredColumn } from '../../rows/columns.js'
import type { StoredFile } from '../../rows/files.js'
import { imageSize, sniffMediaType } from './media.js'

/** Content sent with a record that is not stored yet. */
export interface PendingContent {
  readonly sha256: string
  readonly bytes: Buffer
}

type Input = Readonly<Record<string, unknown>>

const FILE_NAME = new RegExp(FILE_NAME_PATTERN)
const MEDIA_TYPE = new RegExp(MEDIA_TYPE_PATTERN)
const FILE_ID = new RegExp(RECORD_ID_PATTERN)

/** Read-only fields. They are ignored in input, so that a file can be sent as it was read. */
const IGNORED: ReadonlySet<string> = new Set([
  'size',
  'version',
  'url',
  'attributes',
  'signedUrl',
  'uploadUrl',
])

export const newFileId = (): string => `file_${timeOrderedId()}`
const newFileKey = (): string => randomBytes(16).toString('base64url')

export interface FileWriterOptions {
  readonly present?: ReadonlyMap<number, readonly StoredFile[]>
  readonly merges?: boolean
  /** The Xata client leaves an empty name out, and sends an empty media type for none. */
  readonly isXataClient?: boolean
}

/** Converts the files of one record to the metadata that its row stores, and collects their contents. */
export class FileWriter {
  readonly pending: PendingContent[] = []
  readonly #limits: Limits
  readonly #present: ReadonlyMap<number, readonly StoredFile[]>
  readonly #merges: boolean
  readonly #isXataClient: boolean
  /** Caches results, because one input may be encoded twice: as an update and as a whole record. */
  readonly #encoded = new WeakMap<object, string | Fault>()

  /**
   * `present`: the current files of the record, by column. New files continue their version numbers. With
   * `merges`, fields that are not given keep their current values.
   */
  constructor(limits: Limits, options: FileWriterOptions = {}) {
    this.#limits = limits
    this.#present = options.present ?? new Map()
    this.#merges = options.merges ?? false
    this.#isXataClient = options.isXataClient ?? false
  }

  readonly encode: FileEncoder = (column, value) => {
    if (typeof value !== 'object' || value === null) {
      return expected(column.type === 'file' ? 'an object' : 'an array', value)
    }
    const known = this.#encoded.get(value)
    if (known !== undefined) return known
    const text = column.type === 'file' ? this.#file(column, value) : this.#list(column, value)
    this.#encoded.set(value, text)
    return text
  }

  #file(column: StoredColumn, value: object): string | Fault {
    if (Array.isArray(value)) return expected('an object', value)
    const [present] = this.#present.get(column.id) ?? []
    const fault = this.#check(value as Input, {
      isEntry: false,
      isNamed: this.#isXataClient || (this.#merges && !!present),
    })
    if (fault !== undefined) return fault
    return JSON.stringify(this.#merge(column, value as Input, present))
  }

  #list(column: StoredColumn, value: object): string | Fault {
    if (!Array.isArray(value)) return expected('an array', value)
    const { filesPerArrayMax } = this.#limits
    if (value.length > filesPerArrayMax) {
      return new Fault(
        `file entry [${filesPerArrayMax}]: must have at most ${filesPerArrayMax} files`,
      )
    }
    const present = new Map(this.#present.get(column.id)?.map((file) => [file.id, file]))
    const ids = new Set<string>()
    for (const [index, entry] of value.entries()) {
      const fault = this.#checkEntry(entry, ids)
      if (fault !== undefined) return new Fault(`file entry [${index}]: ${fault.message}`)
    }
    const files = value.map((entry: Input) => {
      const id = (entry.id as string | undefined) ?? newFileId()
      return { id, ...this.#merge(column, entry, present.get(id)) }
    })
    return JSON.stringify(files)
  }

  #checkEntry(entry: unknown, ids: Set<string>): Fault | undefined {
    if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) {
      return expected('an object', entry)
    }
    const { id } = entry as Input
    const fault = this.#check(entry as Input, { isEntry: true, isNamed: true })
    if (fault !== undefined || id === undefined) return fault
    if (ids.has(id as string)) return new Fault(`field [id]: [${id}] is given twice`)
    ids.add(id as string)
    return undefined
  }

  #check(input: Input, options: { isEntry: boolean; isNamed: boolean }): Fault | undefined {
    for (const [field, value] of Object.entries(input)) {
      if (value === undefined || IGNORED.has(field)) continue
      if (this.#isXataClient && field === 'mediaType' && value === '') continue
      const fault =
        field === 'id' && !options.isEntry
          ? new Fault('is not known')
          : checkField(field, value, this.#limits)
      if (fault !== undefined) return new Fault(`field [${field.slice(0, 255)}]: ${fault.message}`)
    }
    if (input.name === undefined && !options.isNamed) return new Fault('field [name]: is required')
    return undefined
  }

  #merge(column: StoredColumn, input: Input, present: StoredFile | undefined): StoredFile {
    const base = this.#merges ? present : undefined
    const given = input as Partial<StoredFile>
    const bytes =
      input.base64Content === undefined
        ? undefined
        : Buffer.from(input.base64Content as string, 'base64')
    const file: StoredFile = {
      name: given.name ?? base?.name ?? '',
      mediaType:
        given.mediaType ||
        (bytes === undefined ? base?.mediaType : sniffMediaType(bytes)) ||
        DEFAULT_MEDIA_TYPE,
      enablePublicUrl:
        given.enablePublicUrl ?? base?.enablePublicUrl ?? column.defaultPublicAccess ?? false,
      signedUrlTimeout: given.signedUrlTimeout ?? base?.signedUrlTimeout ?? SIGNED_URL_SECONDS,
      uploadUrlTimeout: given.uploadUrlTimeout ?? base?.uploadUrlTimeout ?? UPLOAD_URL_SECONDS,
      version: present === undefined ? 0 : present.version + 1,
      key: newFileKey(),
      ...(bytes === undefined ? contentOf(base) : this.#take(bytes)),
    }
    return file
  }

  #take(bytes: Buffer): FileContent {
    const sha256 = createHash('sha256').update(bytes).digest('hex')
    this.pending.push({ sha256, bytes })
    return { size: bytes.length, sha256, attributes: imageSize(bytes) ?? {} }
  }
}

type FileContent = Pick<StoredFile, 'size' | 'sha256' | 'attributes'>

function contentOf(file: StoredFile | undefined): FileContent {
  if (file?.sha256 === undefined) return { size: 0, attributes: {} }
  const { size, sha256, attributes } = file
  return { size, sha256, attributes }
}

/**
 * Returns the metadata of a file after an upload. `present` is the file before the upload, if there was one.
 */
export function uploadedFile(
  column: StoredColumn,
  options: {
    present: StoredFile | undefined
    id: string | undefined
    mediaType: string | undefined
    blob: { readonly sha256: string; readonly size: number; readonly head: Buffer }
  },
): StoredFile {
  const { present, id, blob } = options
  return {
    ...(id === undefined ? {} : { id }),
    name: present?.name ?? '',
    mediaType: options.mediaType ?? sniffMediaType(blob.head) ?? DEFAULT_MEDIA_TYPE,
    enablePublicUrl: present?.enablePublicUrl ?? column.defaultPublicAccess ?? false,
    signedUrlTimeout: present?.signedUrlTimeout ?? SIGNED_URL_SECONDS,
    uploadUrlTimeout: present?.uploadUrlTimeout ?? UPLOAD_URL_SECONDS,
    version: present === undefined ? 0 : present.version + 1,
    key: newFileKey(),
    size: blob.size,
    sha256: blob.sha256,
    attributes: imageSize(blob.head) ?? {},
  }
}

function checkField(field: string, value: unknown, limits: Limits): Fault | undefined {
  switch (field) {
    case 'id':
      return checkText(value, { pattern: FILE_ID, min: 1, max: limits.nameLengthMax })
    case 'name':
      return checkText(value, { pattern: FILE_NAME, min: 0, max: limits.fileNameLengthMax })
    case 'mediaType':
      return checkMediaType(value, limits)
    case 'base64Content':
      return checkBase64(value, limits)
    case 'enablePublicUrl':
      return typeof value === 'boolean' ? undefined : expected('a boolean', value)
    case 'signedUrlTimeout':
    case 'uploadUrlTimeout':
      return checkSeconds(value, limits)
    default:
      return new Fault('is not known')
  }
}

export function checkMediaType(value: unknown, limits: Limits): Fault | undefined {
  const { mediaTypeLengthMin: min, mediaTypeLengthMax: max } = limits
  return checkText(value, { pattern: MEDIA_TYPE, min, max })
}

function checkText(
  value: unknown,
  { pattern, min, max }: { pattern: RegExp; min: number; max: number },
): Fault | undefined {
  if (typeof value !== 'string') return expected('a string', value)
  if (value.length < min) return new Fault(`must have at least ${min} characters`)
  if (value.length > max) return new Fault(`must have at most ${max} characters`)
  return pattern.test(value) ? undefined : new Fault(`must match ${pattern.source}`)
}

function checkSeconds(value: unknown, { urlSecondsMax }: Limits): Fault | undefined {
  if (typeof value !== 'number') return expected('a number', value)
  return Number.isInteger(value) && value >= 1 && value <= urlSecondsMax
    ? undefined
    : new Fault(`must be a whole number of seconds from 1 to ${urlSecondsMax}`)
}

const NOT_BASE64 = new Fault('is not valid base64')

function checkBase64(value: unknown, { base64LengthMax }: Limits): Fault | undefined {
  if (typeof value !== 'string') return expected('a string', value)
  if (value.length > base64LengthMax) {
    return new Fault(`must have at most ${base64LengthMax} characters`)
  }
  if (value.length % 4 !== 0) return NOT_BASE64
  const padding = value.endsWith('==') ? 2 : value.endsWith('=') ? 1 : 0
  const body = padding === 0 ? value : value.slice(0, -padding)
  return /[^A-Za-z0-9+/]/.test(body) ? NOT_BASE64 : undefined
}
