import type { Column, ColumnType } from '@offshoot/contract/schema'
import type { Node } from 'libpg-query'
import { contentOf, type NodeOf, namesOf } from '../../../dialect/nodes.js'
import { parseArray } from '../../../postgres/array-literal.js'
import { notSupported } from './not-supported.js'
import { type ColumnForm, readCast } from './sql-types.js'

/** What gives a column its value. */
export type Default = Pick<Column, 'defaultValue' | 'generate'>

const MOMENT_TYPES: readonly ColumnType[] = ['datetime', 'date', 'time']
const TEXT_TYPES: readonly ColumnType[] = ['string', 'text', 'email', 'enum']
const NOW = new Set(['now', 'transaction_timestamp', 'statement_timestamp', 'clock_timestamp'])
const NOW_VALUES = new Set([
  'SVFOP_CURRENT_TIMESTAMP',
  'SVFOP_CURRENT_TIMESTAMP_N',
  'SVFOP_LOCALTIMESTAMP',
  'SVFOP_LOCALTIMESTAMP_N',
  'SVFOP_CURRENT_DATE',
  'SVFOP_CURRENT_TIME',
  'SVFOP_CURRENT_TIME_N',
  'SVFOP_LOCALTIME',
  'SVFOP_LOCALTIME_N',
])
/** Names of the zone UTC. */
const UTC = /^(?:(?:etc\/)?(?:utc|gmt)|z(?:ulu)?)$/i
const NEW_UUID = new Set(['gen_random_uuid', 'uuid_generate_v4', 'uuidv4', 'uuidv7'])

/** A time as PostgreSQL reads and writes it, with or without a time of day and an offset. */
const MOMENT =
  /^(\d{4}-\d\d-\d\d)(?:[ t](\d\d:\d\d)(:\d\d(?:\.\d+)?)?)? ?(z|utc|[+-]\d\d(?::?\d\d)?)?$/i

/** The enums that defaults can name, and the function that takes notices about them. */
interface DefaultContext {
  readonly enums: ReadonlyMap<string, readonly string[]>
  note(notice: string): void
}

/** Returns the default that an expression of SQL stands for. Only constants and some functions do. */
export function readDefault(
  node: Node | undefined,
  form: ColumnForm,
  context: DefaultContext,
): Default {
  const { enums } = context
  const cast = contentOf(node, 'TypeCast')
  if (cast !== undefined) {
    if (!isSameKind(readCast(cast.typeName, enums), form.type))
      throw unknownDefault('a cast to another type')
    return readDefault(cast.arg, form, context)
  }
  const constant = constantOf(node)
  if (constant === null) return {}
  if (form.type === 'multiple') return { defaultValue: JSON.stringify(textsOf(node, constant)) }
  if (constant !== undefined) {
    if (constant === 'now' && MOMENT_TYPES.includes(form.type)) {
      throw unknownDefault("'now'", 'write now()')
    }
    if (form.type === 'datetime') return { defaultValue: momentText(constant, context) }
    return { defaultValue: form.type === 'bool' ? boolText(constant) : constant }
  }
  const { name: call, args } = callOf(node)
  // A moment at UTC is what PostgreSQL would store in a timestamp: the zone changes nothing here.
  const moment = form.type === 'datetime' ? (atUtc({ name: call, args }) ?? node) : node
  if (isNow(moment) && MOMENT_TYPES.includes(form.type)) return { defaultValue: 'now' }
  if (call !== undefined && NEW_UUID.has(call) && args.length === 0) return { generate: 'uuid' }
  throw unknownDefault(call === undefined ? 'an expression' : `function [${call}]`)
}

/** Whether an expression is the time of the transaction or of the statement. */
function isNow(node: Node | undefined): boolean {
  const value = contentOf(node, 'SQLValueFunction')?.op
  if (value !== undefined) return NOW_VALUES.has(value)
  const { name, args } = callOf(node)
  return name !== undefined && NOW.has(name) && args.length === 0
}

/** Returns the moment of `moment at time zone 'utc'`, which is also written as `timezone('utc', moment)`. */
function atUtc({ name, args }: Call): Node | undefined {
  const [zone, moment, ...others] = args
  if (name !== 'timezone' || others.length > 0) return undefined
  const text = constantOf(contentOf(zone, 'TypeCast')?.arg ?? zone)
  return typeof text === 'string' && UTC.test(text) ? moment : undefined
}

/** Returns the texts of a list: those of its literal, or of an expression such as `array['a', 'b']`. */
function textsOf(node: Node | undefined, literal: string | undefined): readonly string[] {
  const elements = contentOf(node, 'A_ArrayExpr')
  const items =
    literal === undefined
      ? elements && (elements.elements ?? []).map(elementOf)
      : /^\{.*\}$/s.test(literal)
        ? parseArray(literal).items
        : undefined
  if (items === undefined) throw unknownDefault('an expression that is not a list of constants')
  return items.map((item) => {
    if (typeof item !== 'string') throw unknownDefault('a list of other values than texts')
    return item
  })
}

function elementOf(node: Node): string | null | undefined {
  return constantOf(contentOf(node, 'TypeCast')?.arg ?? node)
}

/** Returns a time as the service writes it. One of another form is refused where all defaults are checked. */
function momentText(given: string, { note }: DefaultContext): string {
  const found = MOMENT.exec(given.trim())
  if (found === null) return given
  const [, date = '', time = '00:00', seconds = ':00', offset] = found
  if (offset === undefined) note(`DEFAULT '${given}': a time without an offset is one of UTC`)
  const isUtc = offset === undefined || /^[zu]/i.test(offset)
  const [, hours = '', minutes = '00'] = /^(...):?(..)?$/.exec(offset ?? '') ?? []
  return `${date}T${time}${seconds}${isUtc ? 'Z' : `${hours}:${minutes}`}`
}

/** Returns a boolean as the service writes it. PostgreSQL has other words for it, too. */
function boolText(given: string): string {
  const text = given.trim().toLowerCase()
  if (/^(?:t|tr|tru|true|y|ye|yes|on|1)$/.test(text)) return 'true'
  return /^(?:f|fa|fal|fals|false|n|no|of|off|0)$/.test(text) ? 'false' : given
}

function unknownDefault(what: string, instead = 'only constants, now() and gen_random_uuid() are') {
  return notSupported(`DEFAULT with ${what}`, instead)
}

/** Whether a constant of one type is the same value of the other. */
function isSameKind(one: ColumnType, other: ColumnType): boolean {
  return one === other || (TEXT_TYPES.includes(one) && TEXT_TYPES.includes(other))
}

/** Returns the text of a constant, null for NULL, or undefined for another expression. */
function constantOf(node: Node | undefined): string | null | undefined {
  const constant = contentOf(node, 'A_Const')
  if (constant === undefined) return negativeOf(contentOf(node, 'A_Expr'))
  if (constant.isnull) return null
  if (constant.sval !== undefined) return constant.sval.sval ?? ''
  if (constant.boolval !== undefined) return String(constant.boolval.boolval ?? false)
  if (constant.fval !== undefined) return constant.fval.fval ?? '0'
  return constant.ival === undefined ? undefined : String(constant.ival.ival ?? 0)
}

function negativeOf(expression: NodeOf<'A_Expr'> | undefined): string | undefined {
  const [operator] = namesOf(expression?.name)
  if (operator !== '-' || expression?.lexpr !== undefined) return undefined
  // PostgreSQL writes `-1::numeric` of a dump as `(- (1)::numeric)`.
  const operand = contentOf(expression?.rexpr, 'TypeCast')?.arg ?? expression?.rexpr
  const constant = contentOf(operand, 'A_Const')
  if (constant?.ival === undefined && constant?.fval === undefined) return undefined
  return `-${constantOf(operand)}`
}

/** A call of a function. It has no name if an expression is none. */
interface Call {
  readonly name?: string | undefined
  readonly args: readonly Node[]
}

function callOf(node: Node | undefined): Call {
  const call = contentOf(node, 'FuncCall')
  if (call === undefined) return { args: [] }
  const names = namesOf(call.funcname)
  const isKnown = names.length === 1 || (names.length === 2 && names[0] === 'pg_catalog')
  if (!isKnown) throw unknownDefault(`function [${names.join('.')}]`)
  return { name: names.at(-1), args: call.args ?? [] }
}
