import type { Limits } from '@offshoot/contract/limits'
import type { StoredColumn } from '../stored-schema.js'
import type { ColumnLevel, ColumnNode, ColumnTree } from './column-tree.js'
import { NOW } from './column-type.js'
import { expected, Fault } from './fault.js'
import { floatText } from './number-types.js'

/** Turns the input of a `file` or `file[]` column into the text of what the row keeps of it. */
export type FileEncoder = (column: StoredColumn, value: unknown) => string | Fault

export type InputRecord = Readonly<Record<string, unknown>>

export type ArithmeticOperator = '+' | '-' | '*' | '/'

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

export interface EncodeOptions {
  /** The time of the request, for columns whose default is the time of the insert. */
  readonly now: string
  readonly file: FileEncoder | undefined
}

export interface RecordEncoder {
  encodeRecord(record: InputRecord, options: EncodeOptions): (string | null)[] | Fault[]
  encodeUpdate(fields: InputRecord, options: EncodeOptions): EncodedUpdate | Fault[]
}

/** `id` has a column of its own; the other two name metadata, which nobody can set. */
const IGNORED_KEYS: ReadonlySet<string> = new Set(['id', 'xata', 'service'])

const ARITHMETIC_OPERATORS: ReadonlyMap<string, ArithmeticOperator> = new Map([
  ['$increment', '+'],
  ['$decrement', '-'],
  ['$multiply', '*'],
  ['$divide', '/'],
])

/** UTF-8 needs at most this many bytes for what UTF-16 counts as one. */
const BYTES_PER_LENGTH_MAX = 3

/** Stands where a value was refused, so that it is not reported as missing besides. */
const REFUSED = ''

const COLUMN_NOT_FOUND = new Fault('column not found')
const CANNOT_BE_NULL = new Fault('cannot be null')
const VALUE_REQUIRED = new Fault('a value is required')
const FILE_NOT_PERMITTED = new Fault('file upload not permitted here')
const NOT_ARITHMETIC = new Fault(
  'expected a number or one of $increment, $decrement, $multiply and $divide',
)

/** The work on one record: its values so far, one for each physical column, and its faults. */
class Encoding {
  faults: Fault[] | undefined = undefined

  constructor(
    readonly values: (string | null)[],
    readonly options: EncodeOptions,
    readonly limits: Limits,
  ) {}

  setDefaults(nodes: readonly ColumnNode[]): void {
    for (const { defaultText, index } of nodes) {
      this.values[index] = defaultText === NOW ? this.options.now : defaultText
    }
  }

  set(node: ColumnNode, value: unknown): void {
    if (value === null) {
      if (node.notNull) this.refuse(node, CANNOT_BE_NULL)
      else this.values.fill(null, node.index, node.end)
      return
    }
    const text = node.isFile
      ? (this.options.file?.(node.column, value) ?? FILE_NOT_PERMITTED)
      : node.codec.encode(value)
    if (typeof text !== 'string') {
      this.refuse(node, text)
      return
    }
    this.values[node.index] = text
    if (node.nested !== undefined) this.setNested(node, node.nested, value as InputRecord)
  }

  private setNested(object: ColumnNode, level: ColumnLevel, value: InputRecord): void {
    this.values.fill(null, object.index + 1, object.end)
    this.setDefaults(level.nodes)
    for (const key of Object.keys(value)) {
      const node = level.byName.get(key)
      if (node === undefined) this.refuseUnknown(key, `${object.path}.`)
      else if (value[key] !== undefined) this.set(node, value[key])
    }
    this.refuseMissing(level.nodes)
  }

  refuse(node: ColumnNode, fault: Fault): void {
    this.values[node.index] = REFUSED
    this.addFault(node.path, fault)
  }

  refuseUnknown(key: string, parent = ''): void {
    // The message stays of a size to be read, whatever the key is.
    this.addFault(parent + key.slice(0, this.limits.nameLengthMax), COLUMN_NOT_FOUND)
  }

  refuseMissing(nodes: readonly ColumnNode[]): void {
    for (const { notNull, index, path } of nodes) {
      if (notNull && this.values[index] === null) this.addFault(path, VALUE_REQUIRED)
    }
  }

  private addFault(path: string, fault: Fault): void {
    this.faults ??= []
    this.faults.push(new Fault(`column [${path}]: ${fault.message}`))
  }
}

function isObject(value: unknown): value is InputRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function compileArithmetic(node: ColumnNode, value: InputRecord): Arithmetic | Fault {
  const keys = Object.keys(value)
  const operator = ARITHMETIC_OPERATORS.get(keys[0] ?? '')
  if (operator === undefined || keys.length > 1) return NOT_ARITHMETIC
  const operand = value[keys[0] ?? '']
  if (typeof operand !== 'number') return expected(`a number for ${keys[0]}`, operand)
  if (!Number.isFinite(operand)) return new Fault(`${keys[0]} is out of range`)
  if (operator === '/' && operand === 0) return new Fault('cannot be divided by zero')
  // A whole number plus a fraction never is one, whereas times or divided by one it may be.
  if (node.column.type === 'int' && (operator === '+' || operator === '-')) {
    const text = node.codec.encode(operand)
    if (text instanceof Fault) return new Fault(`${keys[0]}: ${text.message}`)
  }
  return { column: node.index, operator, operand: floatText(operand) }
}

export function compileRecordEncoder(tree: ColumnTree, limits: Limits): RecordEncoder {
  const { physical, nodes, byName } = tree
  const required = nodes.filter((node) => node.notNull)
  const withDefault = nodes.filter((node) => node.defaultText !== null)
  const nulls: readonly (string | null)[] = physical.map(() => null)
  const namesLength = physical.reduce((length, { column }) => length + column.name.length, 0)
  const recordTooLarge = new Fault(
    `record is larger than the limit of ${limits.recordBytesMax} bytes`,
  )

  /** `columns` are the indexes of the values; without them there is a value for each column. */
  function isTooLarge(values: readonly (string | null)[], columns?: readonly number[]): boolean {
    let length = namesLength
    for (let position = 0; position < values.length; position++) {
      const text = values[position]
      if (text !== null && text !== undefined) length += text.length
    }
    if (length * BYTES_PER_LENGTH_MAX <= limits.recordBytesMax) return false
    let bytes = 0
    for (const [position, text] of values.entries()) {
      const column = physical[columns === undefined ? position : (columns[position] ?? -1)]?.column
      if (text === null || column === undefined || column.type.startsWith('file')) continue
      bytes += Buffer.byteLength(column.name) + Buffer.byteLength(text)
    }
    return bytes > limits.recordBytesMax
  }

  return {
    encodeRecord(record, options) {
      const encoding = new Encoding(nulls.slice(), options, limits)
      encoding.setDefaults(withDefault)
      let position = 0
      for (const key in record) {
        let node = nodes[position++]
        if (node === undefined || node.column.name !== key) node = byName.get(key)
        const value = record[key]
        if (node === undefined) {
          if (!IGNORED_KEYS.has(key)) encoding.refuseUnknown(key)
        } else if (value !== undefined) {
          encoding.set(node, value)
        }
      }
      encoding.refuseMissing(required)
      if (encoding.faults !== undefined) return encoding.faults
      return isTooLarge(encoding.values) ? [recordTooLarge] : encoding.values
    },

    encodeUpdate(fields, options) {
      const update: EncodedUpdate = { columns: [], values: [], arithmetic: [] }
      const encoding = new Encoding(nulls.slice(), options, limits)
      for (const key of Object.keys(fields)) {
        const node = byName.get(key)
        const value = fields[key]
        if (node === undefined) {
          if (!IGNORED_KEYS.has(key)) encoding.refuseUnknown(key)
        } else if (
          isObject(value) &&
          (node.column.type === 'int' || node.column.type === 'float')
        ) {
          const arithmetic = compileArithmetic(node, value)
          if (arithmetic instanceof Fault) encoding.refuse(node, arithmetic)
          else update.arithmetic.push(arithmetic)
        } else if (value !== undefined) {
          encoding.set(node, value)
          for (let index = node.index; index < node.end; index++) {
            update.columns.push(index)
            update.values.push(encoding.values[index] ?? null)
          }
        }
      }
      if (encoding.faults !== undefined) return encoding.faults
      return isTooLarge(update.values, update.columns) ? [recordTooLarge] : update
    },
  }
}
