import { literal, raw, type Sql, sql } from '../../postgres/sql.js'
import type { BranchRows } from './layout.js'

/*
 * A version identifies the content of a record on a branch: no version of an id is ever used for two
 * contents. Rows have a version of 32 bits, which starts at 0. A record that is created under the id of a
 * deleted one starts above all versions that the id had:
 *
 * - On a branch that inherits rows, a deleted record has a tombstone, and the new record continues from there.
 * - Elsewhere, `offshoot.deleted_records` has the version for a day. Then the collector deletes the entry and
 *   raises a floor, at which all records of the table start whose ids are given by requests. So a deleted
 *   record does not take any space for ever.
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
const GENERATED = '^rec_[0-9a-v]{20}$'
const generatedPattern = new RegExp(GENERATED)
const isGenerated = (id: Sql): Sql => sql`${id} ~ ${literal(GENERATED)}`

/** Returns the version of a record from that of its row, which has the given alias. */
export function recordVersionOf({ versionBase }: BranchRows, row: Sql): Sql {
  if (versionBase === 0) return sql`${row}.version`
  return sql`(${row}.version + ${literal(String(versionBase))}::bigint)`
}

const heapIs = (heapId: string): Sql => sql`h.id = ${literal(heapId)}::bigint`

/** Returns the first version of a row whose id may have been used before. */
export function firstVersion(heapId: string, id: Sql): Sql {
  return sql`(
      select case when ${isGenerated(id)} then h.generated_floor else greatest(h.given_floor, (
          select d.version + 1::bigint
          from offshoot.deleted_records d
          where d.heap_id = h.id and d.id = ${id}
        )) end
      from offshoot.heaps h
      where ${heapIs(heapId)}
    )::integer`
}

/** Returns statements that remember the versions of deleted rows, which the relation `gone` has. */
export function rememberVersions(heapId: string): { raise: Sql; remember: Sql } {
  const id = sql`g.id`
  return {
    raise: sql`
      update offshoot.heaps h
      set generated_floor = g.floor
      from (
        select ${floorAbove(sql`max(g.version)`)} as floor
        from gone g
        where ${isGenerated(id)}
      ) g
      where ${heapIs(heapId)} and h.generated_floor < g.floor`,
    remember: sql`
      insert into offshoot.deleted_records as d (heap_id, id, version)
      select ${literal(heapId)}::bigint, g.id, g.version
      from gone g
      where not ${isGenerated(id)}
      order by g.id
      on conflict (heap_id, id) do update
      set version = excluded.version, deleted_at = excluded.deleted_at`,
  }
}

/** The first versions of rows in a heap without remembered deletions. */
export interface FirstVersions {
  readonly generatedFloor: number
  readonly givenFloor: number
}

/** Reads the floors of a heap, and whether it has remembered deletions. */
export function selectFloors(heapId: string): Sql {
  return sql`
    select h.generated_floor::integer, h.given_floor::integer,
      exists (select from offshoot.deleted_records d where d.heap_id = h.id)
    from offshoot.heaps h
    where ${heapIs(heapId)}`
}

/** Returns the first version of a row in a heap without remembered deletions. */
export function firstVersionOf(id: string, { generatedFloor, givenFloor }: FirstVersions): number {
  return generatedPattern.test(id) ? generatedFloor : givenFloor
}
