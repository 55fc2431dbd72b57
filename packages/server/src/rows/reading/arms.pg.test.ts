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
import { joinVisible, selectVisible } from './arms.js'

/*
 * How PostgreSQL looks up single rows. The statistics are those of a table before the latest fork: no row was changed
 * after the epoch that is read. Rows that were changed since are not in the statistics.
 */

let heaps: TwoHeaps

const codec = compileTable(PEOPLE, { limits: LIMITS, jsonAsText: false })

/** A fork with rows of its own, of a branch as of epoch 2. */
const fork = layoutOfHeaps({ heapId: '1', asOf: undefined }, { heapId: '2', asOf: 2 })

const ROWS = 5000

beforeAll(async () => {
  heaps = await createTwoHeaps()
  const { database } = heaps
  const [heap, past] = [heapName(heapOf('2')), pastName(heapOf('2'))]
  const change = (until: number) => sql`
    insert into ${past} (id, epoch, until) select 'r' || n, ${until - 1}, ${until}
    from generate_series(1, ${ROWS}) n`
  await database.query(sql`
    insert into ${heap} (id, epoch) select 'r' || n, 3 from generate_series(1, ${ROWS}) n`)
  await database.query(sql`alter table ${past} set (autovacuum_enabled = off)`)
  await database.query(change(2))
  await database.query(sql`analyze ${heap}`)
  await database.query(sql`analyze ${past}`)
  await database.query(change(3))
})
afterAll(() => heaps?.close())

it('A row of an earlier state is looked up by its id, not among all that were changed since', async () => {
  const ids = sql`(select 'r' || n as id from generate_series(1, 100) n) k`
  const lookups = sql`
    select r.id from ${ids} ${joinVisible(fork, codec, { id: sql`k.id`, alias: sql`r` })}`
  expect(await heaps.database.query(lookups)).toHaveLength(100)
  const plan = await heaps.planOf(lookups)
  expect(plan).toContain('past_2_pkey')
  expect(plan).not.toContain('past_2_until_idx')
})

it('A row of an inherited state is looked for by its id in the nearer ones', async () => {
  const above = layoutOfHeaps(
    { heapId: '1', asOf: undefined },
    { heapId: '2', asOf: 2 },
    { heapId: '1', asOf: 2 },
  )
  const plan = await heaps.planOf(sql`select id from (${selectVisible(above, codec)}) v`)
  expect(plan).toContain('past_2_pkey')
})
