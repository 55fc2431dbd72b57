import { createHash, randomBytes } from 'node:crypto'
import {
  DEFAULT_MEDIA_TYPE,
  SIGNED_URL_SECONDS,
  UPLOAD_URL_SECONDS,
} from '@offshoot/contract/files'
import type { Limits } from '@offshoot/contract/limits'
import { FILE_NAME_PATTERN, MEDIA_TYPE_PATTERN, RECORD_ID_PATTERN } from '@offshoot/contract/names'
import { timeOrderedId } from '../../common/ids.js'
import { Fault } from '../../rows/columns/fault.js'
import type { StoredFile } from '../../rows/columns/file-value.js'
import type { FileEncoder } from '../../rows/columns/record-encoder.js'
import type { StoredColumn } from '../../rows/columns/stored-schema.js'
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
  readonly #decoded = new WeakMap<object, PendingContent | Fault>()
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

  /**
   * Decodes the contents of files in records, in steps. `encode` uses the results, and decodes short
   * contents and those of files that are in no such column itself.
   */
  *decodeContents(
    records: readonly unknown[],
    paths: readonly (readonly string[])[],
  ): Generator<undefined, void, undefined> {
    for (const record of records) {
      for (const path of paths) {
        for (const file of [valueAt(record, path)].flat()) {
          const { base64Content } = (file ?? {}) as Input
          if (typeof base64Content !== 'string' || base64Content.length <= DECODED_LENGTH) continue
          if (checkBase64Length(base64Content, this.#limits) !== undefined) continue
          this.#decoded.set(file as object, yield* decodeBase64(base64Content))
        }
      }
    }
  }

  readonly encode: FileEncoder = (column, value) => {
    if (typeof value !== 'object' || value === null) {
      return Fault.expected(column.type === 'file' ? 'an object' : 'an array', value)
    }
    const known = this.#encoded.get(value)
    if (known !== undefined) return known
    const text = column.type === 'file' ? this.#file(column, value) : this.#list(column, value)
    this.#encoded.set(value, text)
    return text
  }

  #file(column: StoredColumn, value: object): string | Fault {
    if (Array.isArray(value)) return Fault.expected('an object', value)
    const [present] = this.#present.get(column.id) ?? []
    const fault = this.#check(value as Input, {
      isEntry: false,
      isNamed: this.#isXataClient || (this.#merges && !!present),
    })
    if (fault !== undefined) return fault
    return JSON.stringify(this.#merge(column, value as Input, present))
  }

  #list(column: StoredColumn, value: object): string | Fault {
    if (!Array.isArray(value)) return Fault.expected('an array', value)
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
      return Fault.expected('an object', entry)
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
      const decoded = field === 'base64Content' ? this.#decoded.get(input) : undefined
      if (decoded !== undefined && !(decoded instanceof Fault)) continue
      const fault =
        field === 'id' && !options.isEntry
          ? new Fault('is not known')
          : (decoded ?? checkField(field, value, this.#limits))
      if (fault !== undefined) return new Fault(`field [${field.slice(0, 255)}]: ${fault.message}`)
    }
    if (input.name === undefined && !options.isNamed) return new Fault('field [name]: is required')
    return undefined
  }

  #contentOf(input: Input): PendingContent | undefined {
    const decoded = this.#decoded.get(input)
    if (decoded !== undefined && !(decoded instanceof Fault)) return decoded
    if (input.base64Content === undefined) return undefined
    const bytes = Buffer.from(input.base64Content as string, 'base64')
    return { bytes, sha256: createHash('sha256').update(bytes).digest('hex') }
  }

  #merge(column: StoredColumn, input: Input, present: StoredFile | undefined): StoredFile {
    const base = this.#merges ? present : undefined
    const given = input as Partial<StoredFile>
    const content = this.#contentOf(input)
    const file: StoredFile = {
      name: given.name ?? base?.name ?? '',
      mediaType:
        given.mediaType ||
        (content === undefined ? base?.mediaType : sniffMediaType(content.bytes)) ||
        DEFAULT_MEDIA_TYPE,
      enablePublicUrl:
        given.enablePublicUrl ?? base?.enablePublicUrl ?? column.defaultPublicAccess ?? false,
      signedUrlTimeout: given.signedUrlTimeout ?? base?.signedUrlTimeout ?? SIGNED_URL_SECONDS,
      uploadUrlTimeout: given.uploadUrlTimeout ?? base?.uploadUrlTimeout ?? UPLOAD_URL_SECONDS,
      version: present === undefined ? 0 : present.version + 1,
      key: newFileKey(),
      ...(content === undefined ? contentOf(base) : this.#take(content)),
    }
    return file
  }

  #take(content: PendingContent): FileContent {
    const { bytes, sha256 } = content
    this.pending.push(content)
    return { size: bytes.length, sha256, attributes: imageSize(bytes) ?? {} }
  }
}

/** Characters of base64 that are decoded in one step; a multiple of four. */
const DECODED_LENGTH = 512 * 1024

function valueAt(record: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (value, name) => (typeof value === 'object' ? (value as Input | null)?.[name] : undefined),
    record,
  )
}

function* decodeBase64(text: string): Generator<undefined, PendingContent | Fault, undefined> {
  const bytes = Buffer.allocUnsafe((text.length / 4) * 3 - paddingOf(text))
  const hash = createHash('sha256')
  let size = 0
  for (let start = 0; start < text.length; start += DECODED_LENGTH) {
    const part = text.slice(start, start + DECODED_LENGTH)
    const isLast = start + part.length === text.length
    if (!isBase64(isLast ? part.slice(0, part.length - paddingOf(text)) : part)) return NOT_BASE64
    const end = size + bytes.write(part, size, 'base64')
    hash.update(bytes.subarray(size, end))
    size = end
    yield
  }
  return { bytes, sha256: hash.digest('hex') }
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
      return typeof value === 'boolean' ? undefined : Fault.expected('a boolean', value)
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
  if (typeof value !== 'string') return Fault.expected('a string', value)
  if (value.length < min) return new Fault(`must have at least ${min} characters`)
  if (value.length > max) return new Fault(`must have at most ${max} characters`)
  return pattern.test(value) ? undefined : new Fault(`must match ${pattern.source}`)
}

function checkSeconds(value: unknown, { urlSecondsMax }: Limits): Fault | undefined {
  if (typeof value !== 'number') return Fault.expected('a number', value)
  return Number.isInteger(value) && value >= 1 && value <= urlSecondsMax
    ? undefined
    : new Fault(`must be a whole number of seconds from 1 to ${urlSecondsMax}`)
}

const NOT_BASE64 = new Fault('is not valid base64')

function checkBase64(value: unknown, limits: Limits): Fault | undefined {
  if (typeof value !== 'string') return Fault.expected('a string', value)
  const fault = checkBase64Length(value, limits)
  if (fault !== undefined) return fault
  return isBase64(value.slice(0, value.length - paddingOf(value))) ? undefined : NOT_BASE64
}

function checkBase64Length(text: string, { base64LengthMax }: Limits): Fault | undefined {
  if (text.length > base64LengthMax) {
    return new Fault(`must have at most ${base64LengthMax} characters`)
  }
  return text.length % 4 === 0 ? undefined : NOT_BASE64
}

function paddingOf(text: string): number {
  if (text.endsWith('==')) return 2
  return text.endsWith('=') ? 1 : 0
}

function isBase64(text: string): boolean {
  return !/[^A-Za-z0-9+/]/.test(text)
}
