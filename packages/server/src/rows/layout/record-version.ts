import { literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { deletedName } from './database-schema.js'
import type { BranchRows, HeapAddress } from './layout.js'

/*
 * A version identifies the content of a record on a branch: no version of an id is ever used for two
 * contents. Rows have a version of 32 bits, which starts at 0. A record that is created under the id of a
 * deleted one starts above all versions that the id had:
 *
 * - On a branch that inherits rows, a deleted record has a tombstone, and the new record continues from there.
 * - Elsewhere, `deleted_records` in the schema of the database has the version for a day. Then the collector
 *   deletes the entry and raises a floor, at which all records of the table start whose ids are given by
 *   requests. So a deleted record does not take any space for ever.
 * - Generated ids are never given twice by the service, but a request can name one. They have a floor of their
 *   own, which is raised by the delete. It is a multiple of a step, so that few deletes write it.
 *
 * A reset changes the rows of a branch to any other state. The versions of records are therefore those of
 * rows plus the base of the branch, and a reset increases the base by more than the largest version of a row.
 */

/** The largest version of a row. */
export const ROW_VERSION_MAX = 2 ** 31 - 1

/** A reset increases the base of a branch by this number. */
export const VERSION_BASE_STEP = 2 ** 32

/** JSON represents versions exactly up to this base: about two million resets. */
export const VERSION_BASE_MAX = 2 ** 53 - VERSION_BASE_STEP

/** Floors are multiples of this number, so that few deletes raise one. */
const FLOOR_STEP = raw('16')

/** Returns the lowest floor above a version. */
export function floorAbove(version: Sql): Sql {
  return sql`(${version} / ${FLOOR_STEP} + 1)::bigint * ${FLOOR_STEP}`
}

/** Matches the ids that the service generates. */
const generatedPattern = /^rec_[0-9a-v]{20}$/
/** Tests ids in PostgreSQL. A pattern with `{20}` would take it twice as long. */
const isGenerated = (id: Sql): Sql =>
  sql`(length(${id}) = 24 and ${id} ~ ${literal('^rec_[0-9a-v]+$')})`

/** Returns the version of a record from that of its row, which has the given alias. */
export function recordVersionOf({ versionBase }: BranchRows, row: Sql): Sql {
  if (versionBase === 0) return sql`${row}.version`
  return sql`(${row}.version + ${literal(String(versionBase))}::bigint)`
}

/**
 * Entries for all ids of a heap that were deleted long ago, or that the service has generated. No record has such an
 * id. The collector leaves them.
 */
const [ALL_GIVEN, ALL_GENERATED] = ['all given', 'all generated'].map(literal) as [Sql, Sql]

const ofHeap = ({ heapId }: HeapAddress): Sql => sql`${literal(heapId)}::bigint`

/** Selects the first version of a row whose id may have been used before, as `version`. Searches only if it `isNew`. */
export function selectFirstVersion(heap: HeapAddress, id: Sql, isNew = sql`true`): Sql {
  return sql`
      select coalesce(max(d.version) + 1, 0)::integer as version
      from ${deletedName(heap.databaseId)} d
      where ${isNew} and d.heap_id = ${ofHeap(heap)}
        and d.id in (${id}, case when ${isGenerated(id)} then ${ALL_GENERATED} else ${ALL_GIVEN} end)`
}

/** Returns statements that remember the versions of deleted rows, which the relation `gone` has. */
export function rememberVersions(heap: HeapAddress): { raise: Sql; remember: Sql } {
  const [deleted, heapId, id] = [deletedName(heap.databaseId), ofHeap(heap), sql`g.id`]
  return {
    // A row that is not raised must not be locked, because all who delete generated ids would wait for each other.
    raise: sql`
      insert into ${deleted} (heap_id, id, version, deleted_at)
      select ${heapId}, ${ALL_GENERATED}, g.version, null
      from (
        select ${floorAbove(sql`max(g.version)`)} - 1 as version
        from gone g
        where ${isGenerated(id)}
      ) g
      where g.version > coalesce((
          select d.version
          from ${deleted} d
          where d.heap_id = ${heapId} and d.id = ${ALL_GENERATED}
        ), -1)
      on conflict (heap_id, id) do update set version = excluded.version`,
    remember: sql`
      insert into ${deleted} as d (heap_id, id, version)
      select ${heapId}, g.id, g.version
      from gone g
      where not ${isGenerated(id)}
      order by g.id
      on conflict (heap_id, id) do update
      set version = excluded.version, deleted_at = excluded.deleted_at`,
  }
}

/**
 * Forgets some records of a database that were deleted long ago, and raises the floors of their heaps above their
 * versions. Both happen in one statement, so that every snapshot has one or the other. Returns their number.
 */
export function forgetVersions(
  databaseId: string,
  { ageSeconds, recordsMax }: { ageSeconds: number; recordsMax: number },
): Sql {
  const deleted = deletedName(databaseId)
  return sql`
    with due as materialized (
      select heap_id, id
      from ${deleted}
      where deleted_at <= now() - make_interval(secs => ${ageSeconds})
      order by deleted_at
      limit ${recordsMax}
      for update skip locked
    ),
    old as (
      delete from ${deleted} d
      using due
      where d.heap_id = due.heap_id and d.id = due.id
      returning d.heap_id, d.version
    ),
    raised as (
      insert into ${deleted} as d (heap_id, id, version, deleted_at)
      select heap_id, ${ALL_GIVEN}, ${floorAbove(sql`max(version)`)} - 1, null
      from old
      group by heap_id
      order by heap_id
      on conflict (heap_id, id) do update set version = greatest(d.version, excluded.version)
    )
    select count(*)::integer as count from old`
}

/** The first versions of rows in a heap without remembered deletions. */
export interface FirstVersions {
  readonly generatedFloor: number
  readonly givenFloor: number
}

/** Reads the floors of a heap, and whether it has remembered deletions. */
export function selectFloors(heap: HeapAddress): Sql {
  const [deleted, heapId] = [deletedName(heap.databaseId), ofHeap(heap)]
  const floor = (id: Sql) =>
    sql`coalesce(max(d.version) filter (where d.id = ${id}) + 1, 0)::integer`
  return sql`
    select ${floor(ALL_GENERATED)} as generated_floor, ${floor(ALL_GIVEN)} as given_floor,
      exists (select from ${deleted} e where e.heap_id = ${heapId} and e.deleted_at is not null)
    from ${deleted} d
    where d.heap_id = ${heapId} and d.id in (${ALL_GENERATED}, ${ALL_GIVEN})`
}

/** Returns the first version of a row in a heap without remembered deletions. */
export function firstVersionOf(id: string, { generatedFloor, givenFloor }: FirstVersions): number {
  return generatedPattern.test(id) ? generatedFloor : givenFloor
}
