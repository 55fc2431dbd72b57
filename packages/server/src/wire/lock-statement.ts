import type { Limits } from '@offshoot/contract/limits'
import type { Node } from 'libpg-query'
import { contentOf, type NodeOf, namesOf } from '../dialect/nodes.js'
import type { LockOwner, LockRequest } from './advisory-locks.js'
import type { SessionSettings } from './session-settings.js'
import { unsupported, WireError } from './wire-error.js'

/* Statements that take and give back advisory locks: `select pg_try_advisory_lock(1)`. */

const [BOOL, INT8, INT4, TEXT, VOID] = [16, 20, 23, 25, 2278]

const FUNCTION =
  /^pg_(?:(?<attempt>try_)?advisory_(?<transaction>xact_)?lock|(?<unlock>advisory_unlock))(?<shared>_shared)?$/
const UNLOCK_ALL = 'pg_advisory_unlock_all'

type LockArgument =
  /** Digits. */
  | { readonly kind: 'number'; readonly text: string }
  | { readonly kind: 'parameter'; readonly number: number }
  | { readonly kind: 'hash'; readonly function: string; readonly of: LockArgument | string }

interface LockCall {
  readonly name: string
  /** The name of its column. */
  readonly column: string
  readonly given: readonly LockArgument[]
}

/** A query that calls functions of advisory locks. */
interface LockQuery {
  readonly calls: readonly LockCall[]
  /** The queries in WITH, which change settings before the locks are taken. */
  readonly settings: readonly Node[]
}

const nameOf = (node: Node | undefined): string | undefined => {
  const names = namesOf(contentOf(node, 'FuncCall')?.funcname)
  return names.length === 1 || names[0] === 'pg_catalog' ? names.at(-1) : undefined
}

const isLockFunction = (name: string | undefined): name is string =>
  name !== undefined && (name === UNLOCK_ALL || FUNCTION.test(name))

const NOT_ALONE = `functions of advisory locks must be alone in a query without FROM, but for a WITH of set_config('lock_timeout', ...)`

/** Reads a query that does nothing but to call functions of advisory locks. */
export function readLocks(node: Node): LockQuery | undefined {
  const query = contentOf(node, 'SelectStmt') ?? {}
  const { targetList = [], withClause, fromClause, limitOption: _, op: __, ...rest } = query
  const targets = targetList.map((each) => contentOf(each, 'ResTarget') ?? {})
  if (!targets.some(({ val }) => isLockFunction(nameOf(val)))) return undefined
  const isAlone = Object.values(rest).every((each) => each === undefined)
  const settings = readSettings({ withClause, fromClause })
  if (!isAlone || settings === undefined) throw unsupported(NOT_ALONE)
  const calls = targets.map(({ name: column, val }) => {
    const name = nameOf(val)
    if (!isLockFunction(name)) throw unsupported(NOT_ALONE)
    const given = (contentOf(val, 'FuncCall')?.args ?? []).map(readArgument)
    const isPossible = name === UNLOCK_ALL ? given.length === 0 : [1, 2].includes(given.length)
    if (!isPossible) throw new WireError('42883', `function ${name} takes other arguments`)
    return { name, column: column ?? name, given }
  })
  return { calls, settings }
}

/**
 * Returns the queries of WITH, if each does nothing but to change settings, and FROM names each of them once. Kysely sets
 * `lock_timeout` so, in the round trip that takes the lock of its migrations.
 */
function readSettings({
  withClause,
  fromClause = [],
}: {
  withClause: NodeOf<'SelectStmt'>['withClause'] | undefined
  fromClause: readonly Node[] | undefined
}): readonly Node[] | undefined {
  const named = (withClause?.ctes ?? []).map((each) => contentOf(each, 'CommonTableExpr') ?? {})
  const names = fromClause.map((each) => contentOf(each, 'RangeVar')?.relname)
  const isEachNamed =
    names.length === named.length && named.every(({ ctename }) => names.includes(ctename))
  const queries = named.flatMap(({ ctequery }) => ctequery ?? [])
  return isEachNamed && queries.every(setsOnly) ? queries : undefined
}

function setsOnly(node: Node): boolean {
  const { targetList = [], limitOption: _, op: __, ...rest } = contentOf(node, 'SelectStmt') ?? {}
  const isPlain = Object.values(rest).every((each) => each === undefined)
  const values = targetList.map((each) => contentOf(each, 'ResTarget')?.val)
  return isPlain && values.length > 0 && values.every((each) => nameOf(each) === 'set_config')
}

const HASHES = new Set(['hashtext', 'hashtextextended'])

function readArgument(node: Node): LockArgument {
  const cast = contentOf(node, 'TypeCast')
  if (cast?.arg !== undefined) return readArgument(cast.arg)
  const parameter = contentOf(node, 'ParamRef')?.number
  if (parameter !== undefined) return { kind: 'parameter', number: parameter }
  const negative = contentOf(node, 'A_Expr')
  if (negative !== undefined && negative.lexpr === undefined && negative.rexpr !== undefined) {
    const number = readArgument(negative.rexpr)
    if (namesOf(negative.name)[0] === '-' && number.kind === 'number') {
      return { kind: 'number', text: `-${number.text}` }
    }
  }
  const constant = contentOf(node, 'A_Const')
  const text =
    constant?.ival === undefined
      ? (constant?.fval?.fval ?? constant?.sval?.sval)
      : String(constant.ival.ival ?? 0)
  if (text !== undefined && /^-?\d{1,19}$/.test(text)) return { kind: 'number', text }
  const name = nameOf(node)
  if (name !== undefined && HASHES.has(name)) return readHash(name, node)
  throw unsupported(
    'the number of an advisory lock must be a constant, a parameter or hashtext(...)',
  )
}

function readHash(name: string, node: Node): LockArgument {
  const [text] = contentOf(node, 'FuncCall')?.args ?? []
  const plain = contentOf(text, 'TypeCast')?.arg ?? text
  const constant = contentOf(plain, 'A_Const')?.sval
  if (constant !== undefined) return { kind: 'hash', function: name, of: constant.sval ?? '' }
  const parameter = contentOf(plain, 'ParamRef')?.number
  if (parameter === undefined) {
    throw unsupported(`${name} of an advisory lock takes a constant or a parameter`)
  }
  return { kind: 'hash', function: name, of: { kind: 'parameter', number: parameter } }
}

/** Returns the columns of the result, and the types of parameters. */
export function describeLocks(calls: readonly LockCall[], parameterCount: number) {
  const typeIds = new Array<number>(parameterCount).fill(TEXT)
  for (const { given } of calls) {
    for (const each of given) {
      if (each.kind === 'parameter') typeIds[each.number - 1] = given.length === 1 ? INT8 : INT4
    }
  }
  const columns = calls.map(({ name, column }) => ({
    name: column,
    typeId: String(/try|unlock(?!_all)/.test(name) ? BOOL : VOID),
  }))
  return { typeIds, columns }
}

/** The part of a key that a call gives. What is hashed is a text of its own, which no number is equal to. */
function keyOf({ given }: LockCall, parameters: readonly (string | null)[]): string {
  const textOf = (each: LockArgument): string => {
    if (each.kind === 'number') return requireNumber(each.text, given.length)
    if (each.kind === 'parameter') {
      return requireNumber(parameters[each.number - 1] ?? '', given.length)
    }
    const hashed = typeof each.of === 'string' ? each.of : parameterText(each.of, parameters)
    return `${each.function}(${hashed})`
  }
  return JSON.stringify(given.map(textOf))
}

function parameterText(given: LockArgument, parameters: readonly (string | null)[]): string {
  return given.kind === 'parameter' ? (parameters[given.number - 1] ?? '') : ''
}

function requireNumber(text: string, count: number): string {
  if (!/^-?\d{1,19}$/.test(text)) {
    throw new WireError('22P02', 'the number of an advisory lock must be a whole number')
  }
  const bits = count === 1 ? 64 : 32
  const number = BigInt(text)
  if (BigInt.asIntN(bits, number) === number) return String(number)
  throw new WireError('22003', 'the number of an advisory lock is out of range')
}

/** Returns how long a statement waits for a lock. */
export function lockWait(
  { lockTimeoutMs, statementTimeoutMs }: SessionSettings,
  { queryTimeoutMs }: Limits,
): Omit<Parameters<LockOwner['lock']>[1], 'signal'> {
  const statementMs = Math.min(statementTimeoutMs || queryTimeoutMs, queryTimeoutMs)
  if (lockTimeoutMs > 0 && lockTimeoutMs <= statementMs) {
    const timeout = new WireError('55P03', 'canceling statement due to lock timeout')
    return { timeoutMs: lockTimeoutMs, timeout }
  }
  const timeout = new WireError('57014', 'canceling statement due to statement timeout')
  return { timeoutMs: statementMs, timeout }
}

interface LockRun {
  readonly owner: LockOwner
  readonly databaseId: string
  readonly parameters: readonly (string | null)[]
  readonly wait: Parameters<LockOwner['lock']>[1]
  warn(message: string): void
}

/** Takes and gives back locks. Returns the row of the result. */
export async function runLocks(calls: readonly LockCall[], run: LockRun): Promise<string[]> {
  const row: string[] = []
  for (const call of calls) row.push(await runLock(call, run))
  return row
}

async function runLock(call: LockCall, run: LockRun): Promise<string> {
  const { owner, databaseId } = run
  if (call.name === UNLOCK_ALL) {
    await owner.unlockAll()
    return ''
  }
  const { attempt, transaction, unlock, shared } = FUNCTION.exec(call.name)?.groups ?? {}
  const request: LockRequest = {
    databaseId,
    key: keyOf(call, run.parameters),
    isShared: shared !== undefined,
    isOfTransaction: transaction !== undefined,
  }
  if (unlock !== undefined) {
    const wasHeld = await owner.unlock(request)
    if (!wasHeld) run.warn("you don't own a lock of this type")
    return wasHeld ? 't' : 'f'
  }
  if (attempt !== undefined) return (await owner.tryLock(request)) ? 't' : 'f'
  await owner.lock(request, run.wait)
  return ''
}
