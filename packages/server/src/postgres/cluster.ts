import { LRUCache } from 'lru-cache'
import type pg from 'pg'
import type { Recovery } from './in-doubt.js'
import { ANCHOR, type NodeWatch } from './node-watch.js'
import { type Placement, placeText } from './placement.js'
import { fromRecord, toArray } from './record-text.js'
import { empty, ident, type Sql, sql } from './sql.js'
import {
  type Call,
  compileStatement,
  type Parameter,
  type Statement,
  slot,
  type TextRow,
  toParameter,
} from './statement.js'

/*
 * On a Citus cluster, the schema of each database is on one node, and Citus sends statements there. But it splits some
 * statements into several ones, refuses some and deparses some wrongly: the order of a query can change. So statements
 * on rows are passed to the node as texts, to the function `offshoot_node.run`. It runs them on the tables of the node,
 * in the same distributed transaction. So a statement means on a cluster what it means on one server. Only
 * definitions, and short queries of the control plane, are left to Citus.
 */

/** Whether the server of a connection is a cluster. It is known once the catalogue is up to date. */
export interface ServerKind extends Recovery {
  isCluster: boolean
  /** Whether new databases are placed on the nodes. */
  readonly distributes: boolean
  readonly nodes: NodeWatch
}

const kinds = new WeakMap<object, ServerKind>()

/** Notes the server of a new connection. */
export function noteServer(client: pg.ClientBase, kind: ServerKind): void {
  kinds.set(client, kind)
}

export function isOnCluster(client: pg.ClientBase): boolean {
  return kinds.get(client)?.isCluster === true
}

export function distributesDatabases(client: pg.ClientBase): boolean {
  return kinds.get(client)?.distributes === true
}

export function recoveryOf(client: pg.ClientBase): Recovery | undefined {
  return kinds.get(client)
}

/**
 * Notes which database a statement concerns: that of the given schema, or the one that its text names. Fails if a node for
 * that does not answer.
 */
function noteUse(client: pg.ClientBase, text: string, given: string | undefined): void {
  const named = given === undefined ? placeText(text) : { schema: given, isDefinition: false }
  const { schema, isDefinition } = named
  if (schema !== undefined) kinds.get(client)?.nodes.use(client, schema, isDefinition)
}

/** Statements that call the function, by schema and kind. */
const runs = new LRUCache<string, Statement>({ max: 10_000 })
const areRuns = new WeakSet<Statement>()

/**
 * Returns the statement that runs a text on the node of a schema. It names a table that each database has, so that Citus
 * finds the node. Citus must know whether the node is written to:
 * otherwise it ignores a failure to commit there. So the statement deletes a row that cannot exist.
 */
function runStatementOf({ schema, isWrite }: Pick<Placement, 'schema' | 'isWrite'>): Statement {
  const key = `${schema} ${isWrite}`
  let statement = runs.get(key)
  if (statement === undefined) {
    const anchor = sql`${ident(schema)}.${ident(ANCHOR)}`
    const writing = sql`with written as (delete from ${anchor} where ctid = '(0,0)'::tid)`
    statement = compileStatement(sql`
      ${isWrite ? writing : empty}
      select offshoot_node.run(${slot(0)}::text[], ${slot(1)}::text[], ${slot(2)}::text, ${slot(3)}::text)
      from (select count(*) from (select from ${anchor} limit 0) nothing) once`)
    runs.set(key, statement)
    areRuns.add(statement)
  }
  return statement
}

/** The function returns rows as texts or as JSON, or it returns nothing. */
type Form = 'texts' | 'json' | 'nothing' | 'utility'

function runCall(
  placement: Pick<Placement, 'schema' | 'isWrite'>,
  run: { text: string; values: readonly Parameter[]; form: Form; role?: string | undefined },
): Call {
  return {
    statement: runStatementOf(placement),
    passedText: run.text,
    values: [toArray(placeText(run.text).parts), toArray(run.values), run.form, run.role ?? null],
  }
}

/** Transactions of the control plane that have not written rows yet. */
const unwritten = new WeakSet<object>()

/**
 * Notes that a transaction begins or ends that may write both rows and the catalogue, which are on different nodes. If it
 * writes rows, Citus commits it in two phases, so that a crash cannot separate them.
 */
export function noteControl(client: pg.ClientBase, begins: boolean): void {
  if (begins && isOnCluster(client)) unwritten.add(client)
  else unwritten.delete(client)
}

/** Any write to a table of the coordinator that Citus knows makes it commit in two phases. */
const USE_TWO_PHASES: Call = {
  statement: compileStatement(sql`delete from offshoot_node.two_phases where ctid = '(0,0)'::tid`),
  values: [],
}

/** Calls as they are sent to a cluster. */
interface PlacedCalls {
  readonly calls: readonly Call[]
  /** Returns the rows of the original calls. */
  restore(rows: readonly (readonly TextRow[])[]): TextRow[][]
}

/** Passes calls on rows to the function. Returns undefined if all calls can be sent as they are. */
export function placeCalls(client: pg.ClientBase, calls: readonly Call[]): PlacedCalls | undefined {
  for (const { statement, node } of calls) noteUse(client, statement.text, node?.schema)
  const placements = calls.map(placementOf)
  if (placements.every((placement) => placement === undefined)) return undefined
  const sent: Call[] = []
  const positions: number[] = []
  for (const [index, call] of calls.entries()) {
    const placement = placements[index]
    if (placement?.isWrite && unwritten.delete(client)) sent.push(USE_TWO_PHASES)
    positions.push(sent.length)
    sent.push(placement === undefined ? call : placeCall(call, placement))
  }
  return {
    calls: sent,
    restore: (rows) =>
      positions.map((position, index) => {
        const found = rows[position] ?? []
        if (placements[index] === undefined) return [...found]
        return found.map(([record]) => fromRecord(record ?? ''))
      }),
  }
}

function placementOf({ statement, describes, input, node }: Call): Placement | undefined {
  if (describes || input !== undefined || areRuns.has(statement)) return undefined
  if (node !== undefined) return { schema: node.schema, kind: 'rows', isWrite: false }
  const { placement, reads } = placeText(statement.text)
  if (placement !== undefined || reads === undefined) return placement
  return { schema: reads, kind: 'rows', isWrite: false }
}

function placeCall({ statement, values: given, node }: Call, placement: Placement): Call {
  const values = statement.slots.map((value) =>
    typeof value === 'string' ? value : (given[value] ?? null),
  )
  const form = placement.kind === 'rows' ? 'texts' : placement.kind
  return runCall(placement, { text: statement.text, values, form, role: node?.role })
}

/** Queries that run on the node of a schema. */
const pinned = new WeakMap<Sql, string>()

/** Marks a query that a cluster must run on the node with a schema, because it reads PostgreSQL's own catalogue there. */
export function onNode(schema: string, template: Sql): Sql {
  pinned.set(template, schema)
  return template
}

/**
 * Passes a statement with values of `pg` to the function if it writes rows. Returns the calls to send; the rows of the
 * last one are JSON texts. Returns undefined if the statement can be sent as it is.
 */
export function placeQuery(
  client: pg.ClientBase,
  template: Sql,
  { text, values }: { text: string; values: readonly unknown[] },
): readonly Call[] | undefined {
  if (!isOnCluster(client)) return undefined
  const schema = pinned.get(template)
  noteUse(client, text, schema)
  const placement: Placement | undefined =
    schema === undefined ? placeText(text).placement : { schema, kind: 'rows', isWrite: false }
  if (placement === undefined) return undefined
  const form = placement.kind === 'rows' ? 'json' : placement.kind
  const call = runCall(placement, { text, values: values.map(toParameter), form })
  return placement.isWrite && unwritten.delete(client) ? [USE_TWO_PHASES, call] : [call]
}
