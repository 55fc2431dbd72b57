import { LIMITS } from '@offshoot/contract/limits'
import type { Column, ColumnType } from '@offshoot/contract/schema'
import type { Node } from 'libpg-query'
import { contentOf, type NodeOf, namesOf } from '../../../dialect/nodes.js'
import { POSTGRES_TYPE } from '../../../dialect/postgres-types.js'
import { notSupported } from './not-supported.js'

/** The type of a column, with the options of the type. */
export type ColumnForm = Pick<
  Column,
  'type' | 'decimal' | 'bits' | 'maxLength' | 'withoutZone' | 'vector' | 'enum'
>

export interface SqlType {
  readonly form: ColumnForm
  /** The type of PostgreSQL that gives new rows numbers. */
  readonly isSerial?: boolean
  /** In what the column differs from one of PostgreSQL. */
  readonly notice?: string
}

type TypeName = NodeOf<'TypeName'>

const PLAIN: Readonly<Record<string, SqlType>> = {
  bool: { form: { type: 'bool' } },
  int2: { form: { type: 'int', bits: 16 } },
  int4: { form: { type: 'int', bits: 32 } },
  int8: { form: { type: 'int' } },
  smallserial: { form: { type: 'int', bits: 16 }, isSerial: true },
  serial2: { form: { type: 'int', bits: 16 }, isSerial: true },
  serial: { form: { type: 'int', bits: 32 }, isSerial: true },
  serial4: { form: { type: 'int', bits: 32 }, isSerial: true },
  bigserial: { form: { type: 'int' }, isSerial: true },
  serial8: { form: { type: 'int' }, isSerial: true },
  float4: { form: { type: 'float' }, notice: 'real is double precision' },
  float8: { form: { type: 'float' } },
  text: { form: { type: 'text' } },
  timestamptz: { form: { type: 'datetime' } },
  timestamp: { form: { type: 'datetime', withoutZone: true } },
  date: { form: { type: 'date' } },
  time: { form: { type: 'time' } },
  uuid: { form: { type: 'uuid' } },
  json: { form: { type: 'json' }, notice: 'json is jsonb, without spaces and repeated keys' },
  jsonb: { form: { type: 'json' } },
}

const OWN_TYPE = new RegExp(`^${POSTGRES_TYPE}$`)

/** Types whose numbers in parentheses are digits of a second. All of them are stored. */
const FRACTION_DIGITS = 6
const MOMENTS = new Set(['timestamptz', 'timestamp', 'time'])
const TEXTS = new Set(['text', 'varchar', 'bpchar'])

/** Returns the column type that a type of PostgreSQL stands for. */
export function readType(
  typeName: TypeName | undefined,
  enums: ReadonlyMap<string, readonly string[]>,
): SqlType {
  if (typeName === undefined) throw notSupported('a column without a type')
  const { setof, pct_type: isReference, arrayBounds, typmods } = typeName
  const name = nameOf(typeName)
  if (setof || isReference) throw notSupported(`type [${name}]`)
  const numbers = (typmods ?? []).map(numberOf)
  if (arrayBounds !== undefined) {
    if (arrayBounds.length === 1 && TEXTS.has(name)) {
      const notice = numbers.length > 0 && { notice: 'the length of elements is not checked' }
      return { form: { type: 'multiple' }, ...notice }
    }
    throw notSupported(`type [${name}[]]`, 'only text[] is')
  }
  const values = enums.get(name)
  if (values !== undefined) return { form: { type: 'enum', enum: { values, type: name } } }
  if (name === 'varchar') return varchar(numbers)
  if (name === 'bpchar') return character(numbers)
  if (name === 'numeric') return numeric(numbers)
  const plain = PLAIN[name]
  if (plain !== undefined && numbers.length === 0) return plain
  if (plain !== undefined && MOMENTS.has(name)) {
    const [digits = FRACTION_DIGITS] = numbers
    if (digits === FRACTION_DIGITS) return plain
    return { ...plain, notice: `${name}(${digits}) has ${FRACTION_DIGITS} digits of a second` }
  }
  const [dimension] = numbers
  if (name === 'vector' && dimension !== undefined) {
    return { form: { type: 'vector', vector: { dimension } } }
  }
  if (numbers.length > 0) throw notSupported(`type [${name}(${numbers.join(', ')})]`)
  if (name === 'vector') throw notSupported('vector without a dimension', 'write vector(dimension)')
  // Any other name can be that of an enum that no column has.
  const advice = 'if it is an enum, create it in the same request or connection'
  throw notSupported(`type [${name}]`, OWN_TYPE.test(name) ? undefined : advice)
}

/** Returns the column type of a cast. A `numeric` without digits can be cast to, although no column has it. */
export function readCast(
  typeName: TypeName | undefined,
  enums: ReadonlyMap<string, readonly string[]>,
): ColumnType {
  const isBareNumeric =
    typeName !== undefined &&
    nameOf(typeName) === 'numeric' &&
    (typeName.typmods ?? typeName.arrayBounds) === undefined
  return isBareNumeric ? 'decimal' : readType(typeName, enums).form.type
}

/** Returns the name of a type without its schema. */
export function nameOf({ names }: TypeName): string {
  const parts = namesOf(names)
  const [schema, name] = parts.length > 1 ? parts.slice(-2) : ['public', parts[0]]
  if (schema !== 'pg_catalog' && schema !== 'public') {
    throw notSupported(`type [${parts.join('.')}]`)
  }
  return name ?? ''
}

function numberOf(node: Node): number {
  const number = contentOf(node, 'A_Const')?.ival
  if (number === undefined) throw notSupported('a type with options that are not numbers')
  return number.ival ?? 0
}

function varchar([maxLength]: readonly number[]): SqlType {
  // No text is longer than a record can be.
  if (maxLength === undefined || maxLength > LIMITS.recordBytesMax) {
    return { form: { type: 'text' } }
  }
  return {
    form: { type: maxLength <= LIMITS.stringLengthMax ? 'string' : 'text', maxLength },
  }
}

function character([length = 1]: readonly number[]): SqlType {
  return { ...varchar([length]), notice: `values of char(${length}) are not padded` }
}

function numeric([precision, scale = 0]: readonly number[]): SqlType {
  if (precision === undefined) {
    throw notSupported('numeric without precision and scale', 'write numeric(precision, scale)')
  }
  return { form: { type: 'decimal', decimal: { precision, scale } } }
}
