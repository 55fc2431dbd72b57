import type { BranchTable } from '../../rows/open-branch.js'
import type { Session } from '../session/session.js'

/** Returns the next new id for a record of the request. */
export type NewId = () => string

/**
 * Returns new ids for the records that have none. Numbers are taken from the sequence of the table, all at once; the
 * sequence goes on after the greatest number that a record has.
 */
export async function newIds(
  { numbers }: Pick<Session, 'numbers'>,
  { codec }: BranchTable,
  records: Iterable<unknown>,
): Promise<NewId> {
  if (codec.ids.create !== undefined) return codec.ids.create
  const max = codec.ids.numberMax
  let count = 0
  let above = 0
  for (const record of records) {
    const id = idOf(record)
    const number = Number(id)
    if (id === undefined) count++
    // Any other id is refused, or too great, and moves no sequence.
    else if (codec.ids.follows(number)) above = Math.max(above, number)
  }
  if (count === 0 && above === 0) return noMore
  const { id: itemId, name } = codec.table
  const of = `table [${name}]: column [id]`
  const first = await numbers.take({ itemId, count, above, max, of })
  let next = first
  return () => (next < first + count ? String(next++) : noMore())
}

function idOf(record: unknown): unknown {
  return typeof record === 'object' && record !== null ? (record as { id?: unknown }).id : null
}

function noMore(): never {
  throw new Error('new ids must be taken for all records without one')
}
