import { empty, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { prepared, type TextRows } from '../../postgres/statement.js'

/** A state of a branch that forks can start from. */
export interface ForkPoint {
  readonly id: string
  readonly epoch: number
}

/** The source of a fork at the moment of forking. */
export interface ForkSource extends ForkPoint {
  readonly schemaId: string
  readonly lastMigrationId: string
}

/**
 * Closes the current epoch of a branch, so that forks see everything written so far and nothing later.
 * Requires the exclusive gate. Updates a single row, regardless of the size of the branch. Only the first fork
 * changes the stamp, because the layout changes with it: writers then keep versions for forks. They read the
 * epoch behind the gate.
 */
export const closeEpochSql = (branchId: string, conditions = empty): Sql => sql`
    update offshoot.branches
    set epoch = epoch + 1,
      stamp = case when epoch = 1 then nextval('offshoot.stamps') else stamp end
    where id = ${branchId} and deleted_at is null ${conditions}
    returning id, name, schema_id, last_migration_id, epoch - 1 as epoch`

export type ForkOutcome = 'forked' | 'name in use' | 'no source'

/**
 * Closes the epoch of a branch, and inserts a fork of it by the same statement. `columns` and `values` describe the
 * fork; values can read the row `source`. Without `inherits`, the fork has no rows. `taken` selects a row if the
 * name is in use. `effects` are statements that run for the fork, and can read `inserted` and `source`. With `source`, the
 * fork starts from a state that it selects, and no epoch is closed. `toForkOutcome` takes the result.
 * If the name of the fork is in use, the epoch stays open, unless another request takes the name at the same time.
 */
export function forkSql(fork: {
  readonly sourceId: string
  readonly source?: Sql | undefined
  readonly taken: Sql
  readonly inherits: boolean
  readonly columns: Sql
  readonly values: Sql
  readonly effects: readonly Sql[]
}): Sql {
  const { sourceId, taken, inherits, columns, values, effects } = fork
  const isFree = sql`and not exists (select from taken)`
  const { source = closeEpochSql(sourceId, isFree) } = fork
  const named = (effect: Sql, index: number) => sql`,
    ${raw(`effect_${index}`)} as (${effect})`
  return prepared(sql`
    with taken as (${taken}),
    source as (${source}),
    inserted as (
      insert into offshoot.branches (${columns}, ${FORK_COLUMNS})
      select ${values}, case when i.inherits then source.id end,
        case when i.inherits then source.epoch end
      from source, (select ${inherits}::boolean as inherits) i
      on conflict (database_id, name) where deleted_at is null do nothing
      returning id
    )${join([empty, ...effects.map(named)], '')}
    select case
      when exists (select from inserted) then 'forked'
      when exists (select from source) or exists (select from taken) then 'name in use'
      else 'no source' end as outcome`)
}

/** Returns the outcome of `forkSql` from its rows as texts. */
export function toForkOutcome(rows: TextRows): ForkOutcome {
  const outcome = rows[0]?.[0]
  if (outcome == null) throw new Error('a fork has an outcome')
  return outcome as ForkOutcome
}

/** The columns of a branch that say where its inherited rows come from. */
const FORK_COLUMNS = sql`parent_id, fork_epoch`

/** Expressions of a `with` that pin the present state of a branch. `pin` has the row of the hidden fork. */
export const pinSql = (branch: { branchId: string; databaseId: string }, pinId: string): Sql => sql`
    source as (${closeEpochSql(branch.branchId)}),
    pin as (
      insert into offshoot.branches
        (id, database_id, name, schema_id, last_migration_id, ${FORK_COLUMNS},
          fork_schema_id, deleted_at)
      select ${pinId}, ${branch.databaseId}::bigint, source.name, source.schema_id,
        source.last_migration_id, source.id, source.epoch, source.schema_id, now()
      from source
      returning id, database_id, parent_id, fork_epoch
    )`
