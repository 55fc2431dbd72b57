import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, expect, it } from 'vitest'
import {
  createTwoHeaps,
  heapOf,
  layoutOfHeaps,
  PEOPLE,
  type TwoHeaps,
} from '../../../../../test/support/two-heaps.js'
import { sql } from '../../postgres/sql.js'
import { compileTable } from '../columns/table-codec.js'
import { heapName, pastName } from '../layout/layout.js'
import { listCompared } from './compare-rows.js'
import { joinChanges } from './difference.js'

/* What a fork has changed by the end of an epoch, if it has gone on since. Heap 2 is that of the fork. */

let heaps: TwoHeaps

const base = layoutOfHeaps({ heapId: '1', asOf: 1 })
const then = layoutOfHeaps({ heapId: '2', asOf: 3 }, { heapId: '1', asOf: 1 })
const codec = compileTable(PEOPLE, { limits: LIMITS, jsonAsText: false }).stored

/** The ages before and after of records that the fork had changed, or had written without a change. */
const CHANGES = [
  { id: 'a', before: '1', after: '10' },
  { id: 'b', before: '2', after: '20' },
  { id: 'c', before: '3', after: null },
  { id: 'd', before: '4', after: null },
  { id: 'e', before: null, after: '50' },
  { id: 'f', before: null, after: '60' },
  { id: 'g', before: '7', after: '7' },
]

beforeAll(async () => {
  heaps = await createTwoHeaps()
  const [main, dev, devPast] = [heapName(heapOf('1')), heapName(heapOf('2')), pastName(heapOf('2'))]
  await heaps.database.query(sql`
    insert into ${main} (id, epoch, c2)
    values ('a', 1, 1), ('b', 1, 2), ('c', 1, 3), ('d', 1, 4), ('g', 1, 7), ('h', 1, 8), ('i', 1, 9)`)
  await heaps.database.query(sql`
    insert into ${dev} (id, epoch, deleted, c2)
    values ('a', 3, false, 10), ('b', 4, false, 21), ('c', 2, true, null), ('d', 4, false, 40),
      ('e', 1, false, 50), ('f', 4, true, null), ('g', 3, false, 7), ('h', 4, false, 80),
      ('x', 4, false, 90)`)
  await heaps.database.query(sql`
    insert into ${devPast} (id, epoch, until, deleted, c2)
    values ('a', 1, 2, false, 11), ('b', 2, 4, false, 20), ('d', 3, 4, true, null),
      ('f', 1, 4, false, 60), ('x', 1, 2, false, 91)`)
})
afterAll(() => heaps?.close())

it('A fork as of an epoch differs by the rows that it had then', async () => {
  const changed = { codec, columns: new Set([0]), before: base, after: then }
  const { joins, isInserted, isUpdated, isDeleted } = joinChanges(changed)
  const query = sql`
    select k.id, b.c2::text as before, a.c2::text as after
    ${joins}
    where ${isInserted} or ${isUpdated} or ${isDeleted}
    order by k.id`
  const found = await heaps.database.query(query)
  expect(found).toEqual(CHANGES.filter(({ before, after }) => before !== after))
  // Each row of the fork is read where it is found, instead of being looked up by its id.
  const plan = await heaps.planOf(query)
  expect(plan.match(/ on heap_2 /g)).toHaveLength(1)
  expect(plan.match(/ on past_2 /g)).toHaveLength(1)
  expect(plan).not.toContain('Aggregate')
})

it('Pages of these rows follow each other', async () => {
  const listed: object[] = []
  for (let afterId: string | undefined = ''; afterId !== undefined; ) {
    const page: Awaited<ReturnType<typeof listCompared>> = await listCompared(heaps.database, {
      codec,
      before: [base],
      after: then,
      form: 'write',
      afterId,
      limit: 3,
    })
    listed.push(
      ...page.rows.map(({ id, before: [before], after }) => ({
        id,
        before: before?.[0] ?? null,
        after: after?.[0] ?? null,
      })),
    )
    afterId = page.next
  }
  expect(listed).toEqual(CHANGES)
})
