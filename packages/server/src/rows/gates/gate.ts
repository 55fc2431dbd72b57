import { eachApart } from '../../common/each-apart.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { REPEATABLE_WORK, runTransaction, setLockWait } from '../../postgres/run-transaction.js'
import type { Server } from '../../postgres/server.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileStatement, prepared, slot } from '../../postgres/statement.js'

/*
 * The gate of a branch is an empty table. Writers lock it in shared mode, forks and schema edits in exclusive
 * mode. It must be the first statement of the transaction: `lock table` takes no snapshot, so the transaction
 * sees everything that was committed before it got the lock. A lock function called in a `select` would take
 * the snapshot before it waits, and a write could then miss a fork.
 *
 * A gate is created for the first writer of a branch. So a fork is a row in the catalogue and nothing else, also if
 * it is forked itself: transactions that run alone need no gate (`offshoot_work.enter_alone`).
 */

/** The beginning of the names of gates. */
const PREFIX = 'gate_'

function gateOf(branchId: string): Sql {
  return sql`offshoot_work.${ident(`${PREFIX}${branchId}`)}`
}

const toCall = (statement: Sql): Call => ({ statement: compileStatement(statement), values: [] })

/** Enters the gate of a branch as a writer, together with other writers. */
export function enterGateCall(branchId: string): Call {
  return toCall(sql`lock table ${gateOf(branchId)} in row share mode`)
}

/** A backup of a cluster waits for the transactions that run alone, and these for a backup that takes its snapshots. */
const ENTER_INSTANCE = sql`lock table offshoot_work.instance in row exclusive mode`

/**
 * Enters the instance without a gate, like a transaction that runs alone. A transaction that refers to rows in the
 * catalogue must do so before: a backup of a cluster reads rows as of a moment before that of the catalogue.
 */
export async function enterBesideBackups(transaction: Queryable): Promise<void> {
  await transaction.query(ENTER_INSTANCE)
}

const ENTER_ALONE = compileStatement(sql`select offshoot_work.enter_alone(${slot(0)}::text)`)

/** Enters the gates of branches alone. Fails if one of them does not open within the given time. */
export function enterAloneCalls(
  server: Server,
  branchIds: readonly string[],
  waitMs: number,
): Call[] {
  return [
    ...server.limitLockWait(waitMs).map(toCall),
    toCall(ENTER_INSTANCE),
    ...branchIds.map((id) => ({ statement: ENTER_ALONE, values: [id] })),
  ]
}

/** Keeps out all transactions that run alone, until the transaction ends. Writers continue. */
export async function enterInstance(transaction: Queryable): Promise<void> {
  await transaction.query(sql`lock table offshoot_work.instance in share mode`)
}

/** Creates the gate of a branch, unless it has one. A branch that gets its first heap needs it. */
export async function createGate(transaction: Queryable, branchId: string): Promise<void> {
  await transaction.query(prepared(createGateSql(branchId)))
}

export const createGateSql = (branchId: string): Sql =>
  sql`select offshoot_work.create_gate(${branchId}::text)`

/** Creates the gate of a branch if it is missing. Returns false if the branch does not exist. */
export async function createMissingGate(database: Database, branchId: string): Promise<boolean> {
  const created = await runTransaction(
    database,
    (transaction) =>
      transaction.query(sql`
    select offshoot_work.create_gate(id)
    from offshoot.branches
    where id = ${branchId} and deleted_at is null`),
    // A gate that is lost in a crash is created again, and a later commit of a write behind the gate waits for the gate, too.
    REPEATABLE_WORK,
  )
  return created.length > 0
}

/** Returns whether all of these branches exist. */
export async function areBranches(
  database: Database,
  branchIds: readonly string[],
): Promise<boolean> {
  const branches = await database.query(sql`
    select from offshoot.branches where id = any(${branchIds}::text[]) and deleted_at is null`)
  return branches.length === branchIds.length
}

/** Maximum number of gates dropped by one step. */
const STEP_GATES = 100
const DROP_WAIT_MS = 100

/** Drops gates of branches that no longer exist. Returns whether there may be more. */
export async function collectGates(database: Database): Promise<boolean> {
  const gone = await database.query<{ branchId: string }>(sql`
    select g.id as "branchId"
    -- Names of relations have another collation than ids, which would keep PostgreSQL from using the index of ids.
    from pg_class c, lateral (select substr(c.relname, ${PREFIX.length + 1}) collate "default" as id) g
    where c.relname >= ${PREFIX} and c.relname < ${`${PREFIX}~`}
      and c.relnamespace = 'offshoot_work'::regnamespace
      and not exists (
        select from offshoot.branches b where b.id = g.id and b.deleted_at is null
      )
    -- Gates that cannot be dropped must not always be the first ones.
    order by random()
    limit ${STEP_GATES}`)
  const dropped = await eachApart(gone, ({ branchId }) =>
    runTransaction(
      database,
      async (transaction) => {
        await setLockWait(transaction, DROP_WAIT_MS)
        await transaction.query(sql`drop table if exists ${gateOf(branchId)}`)
      },
      { isolation: 'read committed' },
    ),
  )
  return dropped > 0 && gone.length === STEP_GATES
}
