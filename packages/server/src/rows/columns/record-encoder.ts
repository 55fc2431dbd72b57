import type { Limits } from '@offshoot/contract/limits'
import { RESERVED_COLUMN_NAMES } from '@offshoot/contract/names'
import type { ColumnType } from '@offshoot/contract/schema'
import { roundedIn } from '../../common/exact-json.js'
import { uuidV7 } from '../../common/ids.js'
import type { ColumnLevel, ColumnNode, ColumnTree } from './column-tree.js'
import { NOW, type Room } from './column-type.js'
import { COLUMN_TYPE_ENTRIES, isFileType } from './column-types.js'
import { isComputed } from './computed-columns.js'
import { encodeDecimal, ROUNDED } from './decimal-type.js'
import { Fault } from './fault.js'
import { encodeInt, NOT_WHOLE } from './number-types.js'
import type { StoredColumn } from './stored-schema.js'

/** Converts the input of a `file` or `file[]` column to the text that the row stores. */
export type FileEncoder = (column: StoredColumn, value: unknown) => string | Fault

export type InputRecord = Readonly<Record<string, unknown>>

type ArithmeticOperator = '+' | '-' | '*' | '/'

export interface Arithmetic {
  /** Index into the physical columns. */
  readonly column: number
  readonly operator: ArithmeticOperator
  /** A decimal number as text. */
  readonly operand: string
}

export interface EncodedUpdate {
  /** Indexes into the physical columns, one for each of `values`. */
  readonly columns: number[]
  readonly values: (string | null)[]
  readonly arithmetic: Arithmetic[]
}

/** What values that columns generate depend on: the time of a request, and who sends it. */
export interface Origin {
  /** undefined: the time of the transaction that writes, which only PostgreSQL knows. */
  readonly now: string | undefined
  readonly userId: string
  /** Returns the number of a record in a column, which was taken from its sequence before. */
  numberOf?(record: InputRecord, columnId: number): string | undefined
}

interface RecordEncoder {
  encodeRecord(
    record: InputRecord,
    options: { readonly origin: Origin; readonly file: FileEncoder | undefined },
  ): (string | null)[] | Fault[]
  encodeUpdate(
    fields: InputRecord,
    options: { readonly origin: Origin; readonly file: FileEncoder | undefined },
  ): EncodedUpdate | Fault[]
  encodeColumn(path: string, value: unknown): Omit<EncodedUpdate, 'arithmetic'> | Fault[]
}

const ARITHMETIC_OPERATORS: ReadonlyMap<string, ArithmeticOperator> = new Map([
  ['$increment', '+'],
  ['$decrement', '-'],
  ['$multiply', '*'],
  ['$divide', '/'],
])

/** Faults of one record that are listed; looking for more would only make the answer longer. */
export const RECORD_FAULTS_MAX = 20

/** In a for-in loop, V8 optimises this call away, unlike `Object.hasOwn`. */
const isOwn = Object.prototype.hasOwnProperty

/** UTF-8 needs at most this many bytes for one UTF-16 code unit. */
const BYTES_PER_LENGTH_MAX = 3

/** Placeholder for an invalid value, so that it is not also reported as missing. */
const REFUSED = ''

const COLUMN_NOT_FOUND = new Fault('column not found')
const CANNOT_BE_NULL = new Fault('cannot be null')
const VALUE_REQUIRED = new Fault('a value is required')
const MISSING: ReadonlySet<Fault> = new Set([CANNOT_BE_NULL, VALUE_REQUIRED])
const IS_COMPUTED = new Fault('is computed and cannot be written')
const FILE_NOT_PERMITTED = new Fault('file upload not permitted here')
const MORE_FAULTS = new Fault('there are more faults')
const NOT_ARITHMETIC = new Fault(
  'expected a number or one of $increment, $decrement, $multiply and $divide',
)

/** PostgreSQL reads this text as the time, or the date, when the transaction began. */
const TRANSACTION_TIME = 'now'

function atMoment(type: ColumnType, now: Origin['now']): string {
  if (now === undefined) return TRANSACTION_TIME
  return COLUMN_TYPE_ENTRIES[type].atMoment?.(now) ?? now
}

/** The state of encoding one record: a value for each physical column, and the faults found. */
class Encoding implements Room {
  faults: Fault[] | undefined = undefined
  left: number

  constructor(
    readonly values: (string | null)[],
    private readonly file: FileEncoder | undefined,
    private readonly limits: Limits,
  ) {
    this.left = limits.recordBytesMax
  }

  /** Encodes a member of an object. */
  setMember(node: ColumnNode, object: InputRecord, key: string): void {
    const fault = roundingFault(node, object, key)
    if (fault !== undefined) {
      this.refuse(node, fault)
      return
    }
    // The digits of a number are JSON text.
    const digits = node.column.type === 'json' ? roundedIn(object)?.get(key) : undefined
    this.set(node, digits ?? object[key])
  }

  set(node: ColumnNode, value: unknown): void {
    if (isComputed(node.column)) {
      this.refuse(node, IS_COMPUTED)
      return
    }
    if (value === null) {
      if (node.notNull) this.refuse(node, CANNOT_BE_NULL)
      else this.values.fill(null, node.index, node.end)
      return
    }
    if (typeof value === 'string' && !node.isFile) {
      this.left -= value.length
      if (this.isTooLarge) return
    }
    const text = node.isFile
      ? (this.file?.(node.column, value) ?? FILE_NOT_PERMITTED)
      : node.codec.encode(value, this)
    if (typeof text !== 'string') {
      this.refuse(node, text)
      return
    }
    this.values[node.index] = text
    if (node.nested !== undefined) this.setNested(node, node.nested, value as InputRecord)
  }

  private setNested(object: ColumnNode, level: ColumnLevel, value: InputRecord): void {
    for (const key of Object.keys(value)) {
      if (this.isGivenUp) return
      const node = level.byName.get(key)
      if (node === undefined) this.refuseUnknown(key, `${object.path}.`)
      else if (value[key] !== undefined) this.setMember(node, value, key)
    }
  }

  refuse(node: ColumnNode, fault: Fault): void {
    this.values[node.index] = REFUSED
    this.addFault(node.path, fault)
  }

  refuseUnknown(key: string, parent = ''): void {
    // Cut off, so that a long key does not make a long message.
    this.addFault(parent + key.slice(0, this.limits.nameLengthMax), COLUMN_NOT_FOUND)
  }

  refuseMissing(required: readonly ColumnNode[]): void {
    for (const { index, path } of required) {
      if (this.values[index] === null) this.addFault(path, VALUE_REQUIRED)
    }
  }

  /** Whether the values so far exceed the size limit of a record. File contents do not count. */
  get isTooLarge(): boolean {
    return this.left < 0
  }

  /** Whether enough faults were found, so that the search for more has stopped. */
  get isGivenUp(): boolean {
    return this.isTooLarge || (this.faults !== undefined && this.faults.length > RECORD_FAULTS_MAX)
  }

  private addFault(path: string, fault: Fault): void {
    this.faults ??= []
    if (this.faults.length < RECORD_FAULTS_MAX) {
      const missing = MISSING.has(fault) ? path : undefined
      this.faults.push(new Fault(`column [${path}]: ${fault.message}`, missing, path))
    } else if (this.faults.length === RECORD_FAULTS_MAX) this.faults.push(MORE_FAULTS)
  }
}

function isObject(value: unknown): value is InputRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Returns why a column cannot have a member of an object, whose digits JSON numbers do not keep. */
function roundingFault(node: ColumnNode, object: InputRecord, key: string): Fault | undefined {
  const text = roundedIn(object)?.get(key)
  if (text === undefined) return undefined
  switch (node.column.type) {
    case 'decimal':
      return ROUNDED
    case 'int':
    case 'link': {
      const encoded = node.codec.encode(object[key])
      return encoded instanceof Fault ? encoded : NOT_WHOLE
    }
    default:
      return undefined
  }
}

function isNumeric(node: ColumnNode): boolean {
  const { type } = node.column
  return type === 'int' || type === 'float' || type === 'decimal'
}

function encodeArithmetic(node: ColumnNode, value: InputRecord): Arithmetic | Fault {
  const [key = '', ...otherKeys] = Object.keys(value)
  const operator = ARITHMETIC_OPERATORS.get(key)
  if (operator === undefined || otherKeys.length > 0) return NOT_ARITHMETIC
  const operand = value[key]
  const isDecimal = node.column.type === 'decimal'
  if (typeof operand !== 'number' && !(isDecimal && typeof operand === 'string')) {
    return Fault.expected(`a number for ${key}`, operand)
  }
  if (operator === '/' && Number(operand) === 0) return new Fault('cannot be divided by zero')
  const mayHaveAnyScale = operator === '*' || operator === '/'
  // A whole number times or divided by a fraction can be whole; plus or minus a fraction it cannot.
  const isFraction = Number.isFinite(operand) && !Number.isInteger(operand)
  const rounding = roundingFault(node, value, key)
  if (rounding !== undefined) return new Fault(`${key}: ${rounding.message}`)
  const text =
    isDecimal && mayHaveAnyScale
      ? encodeDecimal(operand)
      : mayHaveAnyScale && isFraction
        ? String(operand)
        : // A small number can be the sum of two that its column could not have.
          node.column.type === 'int'
          ? encodeInt(operand)
          : node.codec.encode(operand)
  if (text instanceof Fault) return new Fault(`${key}: ${text.message}`)
  return { column: node.index, operator, operand: text }
}

function generateId(by: 'uuid' | 'user', { userId }: Origin): string {
  return by === 'user' ? userId : uuidV7()
}

export function compileRecordEncoder(tree: ColumnTree, limits: Limits): RecordEncoder {
  const { physical, storedCount, nodes, byName } = tree
  const required = nodes.filter((node) => node.notNull && !isComputed(node.column))
  const generated = nodes.flatMap(({ index, column, defaultText }) => {
    const by = defaultText === NOW ? 'updatedAt' : column.generate
    return by === undefined || by === 'sequence' ? [] : [{ index, by, type: column.type }]
  })
  const numbered = nodes.filter(({ column }) => column.generate === 'sequence')
  const updatedAt = nodes.filter(({ column }) => column.generate === 'updatedAt')
  const nulls: readonly (string | null)[] = physical.slice(0, storedCount).map(() => null)
  const defaults = nulls.slice()
  for (const { defaultText, index } of nodes) {
    if (typeof defaultText === 'string') defaults[index] = defaultText
  }
  const namesLength = physical.reduce((length, { column }) => length + column.name.length, 0)
  const recordTooLarge = new Fault(
    `record is larger than the limit of ${limits.recordBytesMax} bytes`,
  )

  function isTooLarge(values: readonly (string | null)[]): boolean {
    let length = namesLength
    for (let index = 0; index < values.length; index++) length += values[index]?.length ?? 0
    if (length * BYTES_PER_LENGTH_MAX <= limits.recordBytesMax) return false
    let bytes = 0
    for (const [index, { column }] of physical.entries()) {
      const text = values[index]
      if (text === null || text === undefined || isFileType(column.type)) continue
      bytes += Buffer.byteLength(column.name) + Buffer.byteLength(text)
    }
    return bytes > limits.recordBytesMax
  }

  /** Finds a column by its dotted path. */
  function nodeAt(path: string): ColumnNode | undefined {
    let level: ColumnLevel | undefined = tree
    let node: ColumnNode | undefined
    for (const name of path.split('.')) {
      node = level?.byName.get(name)
      level = node?.nested
    }
    return node
  }

  return {
    encodeColumn(path, value) {
      const encoding = new Encoding(nulls.slice(), undefined, limits)
      const node = nodeAt(path)
      if (node === undefined) encoding.refuseUnknown(path)
      else encoding.set(node, value)
      if (encoding.isTooLarge) return [recordTooLarge]
      if (encoding.faults !== undefined || node === undefined) return encoding.faults ?? []
      if (isTooLarge(encoding.values)) return [recordTooLarge]
      const columns = Array.from(
        { length: node.end - node.index },
        (_, index) => node.index + index,
      )
      return { columns, values: columns.map((index) => encoding.values[index] ?? null) }
    },

    encodeRecord(record, { origin, file }) {
      const encoding = new Encoding(defaults.slice(), file, limits)
      for (const { index, by, type } of generated) {
        encoding.values[index] =
          by === 'updatedAt' ? atMoment(type, origin.now) : generateId(by, origin)
      }
      for (const { index, column } of numbered) {
        if (record[column.name] !== undefined) continue
        const number = origin.numberOf?.(record, column.id)
        if (number === undefined) throw new Error('numbers must be taken for all new records')
        encoding.values[index] = number
      }
      // Keys usually come in schema order, so the next column is tried before the map. With for-in, whose
      // property reads need no lookup, this takes half as long as Object.keys and the map.
      let next = 0
      for (const key in record) {
        if (!isOwn.call(record, key)) continue
        const guess = nodes[next]
        const node = guess !== undefined && guess.column.name === key ? guess : byName.get(key)
        if (node === undefined) {
          if (RESERVED_COLUMN_NAMES.has(key)) continue
          encoding.refuseUnknown(key)
          if (encoding.isGivenUp) break
          continue
        }
        next = node.ordinal + 1
        const value = record[key]
        if (value !== undefined) encoding.setMember(node, record, key)
        if (encoding.isTooLarge) return [recordTooLarge]
      }
      encoding.refuseMissing(required)
      if (encoding.faults !== undefined) return encoding.faults
      return isTooLarge(encoding.values) ? [recordTooLarge] : encoding.values
    },

    encodeUpdate(fields, { origin, file }) {
      const update: EncodedUpdate = { columns: [], values: [], arithmetic: [] }
      const encoding = new Encoding(nulls.slice(), file, limits)
      for (const key of Object.keys(fields)) {
        if (encoding.isGivenUp) break
        const node = byName.get(key)
        const value = fields[key]
        if (node === undefined) {
          if (!RESERVED_COLUMN_NAMES.has(key)) encoding.refuseUnknown(key)
        } else if (isNumeric(node) && isObject(value) && !isComputed(node.column)) {
          const arithmetic = encodeArithmetic(node, value)
          if (arithmetic instanceof Fault) encoding.refuse(node, arithmetic)
          else update.arithmetic.push(arithmetic)
        } else if (value !== undefined) {
          encoding.setMember(node, fields, key)
          for (let index = node.index; index < node.end; index++) {
            update.columns.push(index)
            update.values.push(encoding.values[index] ?? null)
          }
        }
      }
      if (encoding.isTooLarge) return [recordTooLarge]
      if (encoding.faults !== undefined) return encoding.faults
      for (const { index, column } of updatedAt) {
        if (update.columns.includes(index)) continue
        update.columns.push(index)
        update.values.push(atMoment(column.type, origin.now))
      }
      return isTooLarge(encoding.values) ? [recordTooLarge] : update
    },
  }
}
