import { afterAll, beforeAll, expect, it } from 'vitest'
import {
  createTwoHeaps,
  heapOf,
  layoutOfHeaps,
  type TwoHeaps,
} from '../../../../../test/support/two-heaps.js'
import { sql } from '../../postgres/sql.js'
import { heapName, pastName } from '../layout/layout.js'
import { changedIds, isAnyChanged, isChanged } from './changed-ids.js'

/* How PostgreSQL finds rows that both sides of a merge have changed, if its statistics say that there are none. */

let heaps: TwoHeaps

const base = layoutOfHeaps({ heapId: '1', asOf: 1 })
const ours = layoutOfHeaps({ heapId: '1', asOf: undefined })
const theirs = layoutOfHeaps({ heapId: '2', asOf: undefined }, { heapId: '1', asOf: 1 })

const ROWS = 5000

beforeAll(async () => {
  heaps = await createTwoHeaps()
  const { database } = heaps
  const [heap, past, forkHeap] = [
    heapName(heapOf('1')),
    pastName(heapOf('1')),
    heapName(heapOf('2')),
  ]
  for (const name of [heap, past, forkHeap]) {
    await database.query(sql`alter table ${name} set (autovacuum_enabled = off)`)
  }
  await database.query(sql`
    insert into ${heap} (id, epoch) select 'r' || n, 1 from generate_series(1, ${ROWS}) n`)
  await database.query(sql`insert into ${past} (id, epoch, until) values ('old', 1, 2)`)
  await database.query(sql`insert into ${forkHeap} (id, epoch) values ('r1', 1)`)
  for (const name of [heap, past, forkHeap]) await database.query(sql`analyze ${name}`)
  // Since then, the branch was forked, and both sides have changed many rows: r3000 and r3001 both.
  await database.query(sql`
    insert into ${past} (id, epoch, until) select 'r' || n, 1, 2 from generate_series(1, 3001) n`)
  await database.query(sql`update ${heap} set epoch = 2 where substr(id, 2)::integer <= 3001`)
  await database.query(sql`delete from ${forkHeap}`)
  await database.query(sql`
    insert into ${forkHeap} (id, epoch) select 'r' || n, 1 from generate_series(3000, ${ROWS}) n`)
})
afterAll(() => heaps?.close())

it('Rows that both sides have changed are looked up by their ids', async () => {
  const condition = isChanged(base, ours, { tableId: 1, id: sql`k.id` })
  const query = sql`select k.id from (${changedIds(base, theirs, 1)}) k where ${condition}`
  const found = await heaps.database.query<{ id: string }>(query)
  expect(found.map(({ id }) => id).sort()).toEqual(['r3000', 'r3001'])
  const plan = await heaps.planOf(query)
  expect(plan).toContain('heap_1_pkey')
  expect(plan).toContain('past_1_pkey')
  for (const other of ['epoch_idx', 'until_idx', 'Materialize', 'Join']) {
    expect(plan).not.toContain(other)
  }
})

it('Whether a branch has changed any row is read from the indexes of epochs', async () => {
  const query = sql`select ${isAnyChanged(base, ours, 1)} as "isAny"`
  expect(await heaps.database.query(query)).toEqual([{ isAny: true }])
  const later = layoutOfHeaps({ heapId: '1', asOf: 2 })
  const none = sql`select ${isAnyChanged(later, ours, 1)} as "isAny"`
  expect(await heaps.database.query(none)).toEqual([{ isAny: false }])
  for (const plan of [await heaps.planOf(query), await heaps.planOf(none)]) {
    expect(plan).toContain('heap_1_epoch_idx')
    expect(plan).toContain('past_1_until_idx')
    for (const other of ['Seq Scan', 'pkey', 'Sort']) expect(plan).not.toContain(other)
  }
})

it('Any row is changed exactly if one may differ', async () => {
  const before = layoutOfHeaps({ heapId: '2', asOf: 1 }, { heapId: '1', asOf: 1 })
  const states = [base, ours, theirs, before, layoutOfHeaps({ heapId: '1', asOf: 2 })]
  for (const left of states) {
    for (const right of states) {
      const [found] = await heaps.database.query<{ isAny: boolean; isFound: boolean }>(sql`
        select ${isAnyChanged(left, right, 1)} as "isAny",
          exists (${changedIds(left, right, 1)}) as "isFound"`)
      expect(found?.isAny).toBe(found?.isFound)
    }
  }
})

it('A row is changed exactly if it is among those that may differ', async () => {
  for (const [left, right] of [
    [base, ours],
    [base, theirs],
    [ours, theirs],
    [theirs, base],
    [base, base],
  ] as const) {
    const condition = isChanged(left, right, { tableId: 1, id: sql`k.id` })
    const rows = await heaps.database.query(sql`
      select from (
        select id, ${condition} as is_changed
        from (
          select 'old' as id union all select 'none'
          union all select 'r' || n from generate_series(1, ${ROWS}) n
        ) k
      ) k
      where is_changed <> (id in (${changedIds(left, right, 1)}))`)
    expect(rows).toHaveLength(0)
  }
})
