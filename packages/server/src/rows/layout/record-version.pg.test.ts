import { afterAll, beforeAll, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../../test/support/database.js'
import { newRecordId } from '../../common/ids.js'
import { Database } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { firstVersionOf, selectFirstVersion } from './record-version.js'

const HEAP = { databaseId: '1', heapId: '7' }
const FLOORS = { generatedFloor: 33, givenFloor: 17 }

let own: TestDatabase
let database: Database

beforeAll(async () => {
  own = await createTestDatabase()
  database = new Database({ poolMax: 1, statementTimeoutMs: 5_000, onIdleError: () => undefined })
  database.connect({ url: own.url })
  await database.query(sql`create schema offshoot_db_1`)
  await database.query(sql`
    create table offshoot_db_1.deleted_records (heap_id bigint, id text collate "C", version integer)`)
  await database.query(sql`
    insert into offshoot_db_1.deleted_records
    values (7, 'all generated', ${FLOORS.generatedFloor - 1}), (7, 'all given', ${FLOORS.givenFloor - 1})`)
})
afterAll(async () => {
  await database.close()
  await own.close()
})

const DIGITS = '0123456789abcdefghij'

it.each([
  newRecordId(),
  `rec_${DIGITS}`,
  // One digit less, and one more.
  `rec_${DIGITS.slice(1)}`,
  `rec_${DIGITS}k`,
  // The last digit is v.
  `rec_${DIGITS.slice(1)}v`,
  `rec_${DIGITS.slice(1)}w`,
  `rec_${DIGITS.slice(1)}A`,
  `rec_${DIGITS.slice(1)}-`,
  `Rec_${DIGITS}`,
  `rec-${DIGITS}`,
  `xrec_${DIGITS.slice(1)}`,
  'a',
])('PostgreSQL and the process give a record [%s] the same first version', async (id) => {
  const [row] = await database.query<{ version: number }>(
    selectFirstVersion(HEAP, sql`${id}::text`),
  )
  expect(row?.version).toBe(firstVersionOf(id, FLOORS))
})
