import type { Node } from 'libpg-query'
import { contentOf, kindOf, type NodeOf, namesOf } from '../dialect/nodes.js'
import { type ClientStatement, SESSION_VALUES, sessionFunction } from './client-statement.js'
import { type SessionSettings, usualName } from './session-settings.js'
import { readOnlyOf } from './transaction-block.js'
import { unsupported, WireError } from './wire-error.js'

/* Statements about the session are answered here: SET and SHOW, and what clients ask at their start. */

const [TEXT, INT4, BOOL] = [25, 23, 16]

/** The result of a statement about the session. */
interface SessionAnswer {
  readonly tag: string
  readonly columns: readonly { readonly name: string; readonly typeId: string }[]
  readonly rows: readonly (readonly (string | null)[])[]
  readonly notice?: string | undefined
  /** Prepared statements that the client no longer needs; null for all. */
  readonly forgets?: string | null
  /** It cannot run inside a transaction. */
  readonly isAlone?: boolean
  /** The links that the transaction has written so far are judged now. */
  readonly judgesLinks?: boolean
  /** What SET TRANSACTION says about the transaction. */
  readonly transactionOptions?: readonly Node[]
}

export interface SessionFacts {
  readonly settings: SessionSettings
  readonly user: string
  readonly database: string
  readonly processId: number
  readonly version: string
  /** The texts of parameters. */
  readonly parameters: readonly (string | null)[]
}

const done = (tag: string, more: Partial<SessionAnswer> = {}): SessionAnswer => ({
  tag,
  columns: [],
  rows: [],
  ...more,
})

/** Answers a statement about the session. With `isDescribed`, nothing is changed. */
export function answerSession(
  { node }: Pick<ClientStatement, 'node'>,
  facts: SessionFacts,
  { isDescribed = false } = {},
): SessionAnswer {
  switch (kindOf(node)) {
    case 'VariableSetStmt':
      return isDescribed
        ? done('SET')
        : setVariable(contentOf(node, 'VariableSetStmt') ?? {}, facts)
    case 'VariableShowStmt':
      return show(contentOf(node, 'VariableShowStmt')?.name ?? '', facts)
    case 'DiscardStmt':
      return discard(contentOf(node, 'DiscardStmt')?.target, facts, isDescribed)
    case 'DeallocateStmt': {
      const name = contentOf(node, 'DeallocateStmt')?.name
      if (name === undefined) return done('DEALLOCATE ALL', { forgets: null })
      return done('DEALLOCATE', { forgets: name })
    }
    case 'AlterOwnerStmt':
      return done('ALTER', { notice: 'OWNER TO has no effect: the workspace owns everything' })
    case 'ConstraintsSetStmt':
      return done('SET CONSTRAINTS', {
        judgesLinks: contentOf(node, 'ConstraintsSetStmt')?.deferred !== true,
      })
    case 'VacuumStmt': {
      const tag = contentOf(node, 'VacuumStmt')?.is_vacuumcmd ? 'VACUUM' : 'ANALYZE'
      return done(tag, { notice: `${tag} has no effect: the service takes care of its tables` })
    }
    case 'UnlistenStmt':
      // Pools of connections send it between two users. Nobody can listen.
      return done('UNLISTEN')
    case 'LockStmt':
      return done('LOCK TABLE', { notice: 'LOCK has no effect: every transaction is serializable' })
    default:
      return select(contentOf(node, 'SelectStmt') ?? {}, facts, isDescribed)
  }
}

function discard(
  target: NodeOf<'DiscardStmt'>['target'],
  { settings }: SessionFacts,
  isDescribed: boolean,
): SessionAnswer {
  if (target !== 'DISCARD_ALL') {
    return done(`DISCARD ${(target ?? '').replace('DISCARD_', '')}`)
  }
  if (!isDescribed) settings.reset(undefined)
  return done('DISCARD ALL', { forgets: null, isAlone: true })
}

function setVariable(
  { kind, name = '', args = [], is_local: isLocal = false }: NodeOf<'VariableSetStmt'>,
  { settings }: SessionFacts,
): SessionAnswer {
  switch (kind) {
    case 'VAR_RESET':
    case 'VAR_SET_DEFAULT':
      settings.reset(name)
      return done(kind === 'VAR_RESET' ? 'RESET' : 'SET')
    case 'VAR_RESET_ALL':
      settings.reset(undefined)
      return done('RESET')
    case 'VAR_SET_MULTI':
      if (name === 'TRANSACTION') return done('SET', { transactionOptions: args })
      return setCharacteristics(readOnlyOf(args), settings)
    case 'VAR_SET_VALUE':
      return done('SET', {
        notice: settings.set(name, args.map(constantText).join(', '), { isLocal }),
      })
    default:
      throw unsupported('this form of SET is not supported')
  }
}

/** Sets what later transactions are. Their isolation is always the highest. */
function setCharacteristics(
  isReadOnly: boolean | undefined,
  settings: SessionSettings,
): SessionAnswer {
  if (isReadOnly !== undefined) {
    settings.set('default_transaction_read_only', isReadOnly ? 'on' : 'off')
  }
  return done('SET')
}

function constantText(node: Node): string {
  const cast = contentOf(node, 'TypeCast')
  if (cast?.arg !== undefined) {
    const text = constantText(cast.arg)
    return namesOf(cast.typeName?.names).at(-1) === 'interval' ? `INTERVAL '${text}'` : text
  }
  const { sval, ival, fval, boolval } = contentOf(node, 'A_Const') ?? {}
  if (sval !== undefined) return sval.sval ?? ''
  if (fval !== undefined) return fval.fval ?? ''
  if (boolval !== undefined) return boolval.boolval ? 'on' : 'off'
  return String(ival?.ival ?? 0)
}

function show(name: string, { settings }: SessionFacts): SessionAnswer {
  const column = (each: string) => ({ name: each, typeId: String(TEXT) })
  if (name === 'all') {
    return {
      tag: 'SHOW',
      columns: [column('name'), column('setting'), column('description')],
      rows: settings.all.map(([each, value]) => [each, value, '']),
    }
  }
  const shown = usualName(name)
  return { tag: 'SHOW', columns: [column(shown)], rows: [[settings.get(name)]] }
}

interface Value {
  readonly name: string
  readonly typeId: number
  readonly text: string | null
}

function select(
  { targetList = [] }: NodeOf<'SelectStmt'>,
  facts: SessionFacts,
  isDescribed: boolean,
): SessionAnswer {
  const values = targetList.map((target) => {
    const { name, val } = contentOf(target, 'ResTarget') ?? {}
    const value = evaluate(val, facts, isDescribed)
    return { ...value, name: name ?? value.name }
  })
  return {
    tag: 'SELECT 1',
    columns: values.map(({ name, typeId }) => ({ name, typeId: String(typeId) })),
    rows: [values.map(({ text }) => text)],
  }
}

function evaluate(node: Node | undefined, facts: SessionFacts, isDescribed: boolean): Value {
  const text = (name: string, value: string | null): Value => ({ name, typeId: TEXT, text: value })
  const cast = contentOf(node, 'TypeCast')
  if (cast !== undefined) return evaluate(cast.arg, facts, isDescribed)
  const value = contentOf(node, 'SQLValueFunction')
  if (value !== undefined) {
    const kind = SESSION_VALUES[value.op ?? '']
    if (kind === 'user') return text('current_user', facts.user)
    if (kind === 'database') return text('current_database', facts.database)
    if (kind === 'schema') return text('current_schema', 'public')
  }
  const parameter = contentOf(node, 'ParamRef')?.number
  if (parameter !== undefined) return text('?column?', facts.parameters[parameter - 1] ?? null)
  const constant = contentOf(node, 'A_Const')
  if (constant !== undefined && node !== undefined) {
    const typeId = constant.ival === undefined ? TEXT : INT4
    return { name: '?column?', typeId, text: constant.isnull ? null : constantText(node) }
  }
  const name = sessionFunction(node)
  if (name === undefined) {
    throw unsupported('functions about the session cannot be mixed with others in one query')
  }
  const given = (contentOf(node, 'FuncCall')?.args ?? []).map(
    (argument) => evaluate(argument, facts, isDescribed).text,
  )
  return callFunction(name, given, facts, isDescribed)
}

function callFunction(
  name: string,
  [first, second, third]: readonly (string | null)[],
  facts: SessionFacts,
  isDescribed: boolean,
): Value {
  const { settings } = facts
  const text = (value: string | null): Value => ({ name, typeId: TEXT, text: value })
  switch (name) {
    case 'version':
      return text(facts.version)
    case 'current_schema':
      return text('public')
    case 'current_database':
      return text(facts.database)
    case 'pg_backend_pid':
      return { name, typeId: INT4, text: String(facts.processId) }
    case 'pg_is_in_recovery':
      return { name, typeId: BOOL, text: 'f' }
    case 'current_setting':
      return text(
        isDescribed
          ? ''
          : second === 'on' || second === 'true'
            ? (settings.find(first ?? '') ?? null)
            : settings.get(first ?? ''),
      )
    case 'set_config':
      if (!isDescribed) {
        const isLocal = third === 'on' || third === 'true'
        settings.set(first ?? '', second ?? '', { isLocal })
      }
      return text(second ?? '')
    default:
      throw new WireError('42883', `function ${name}() does not exist`)
  }
}
