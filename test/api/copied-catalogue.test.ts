import { afterAll, beforeAll, expect, it } from 'vitest'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * Services of tests get a copy of a catalogue instead of migrating an empty database. Whatever the migrations choose at
 * random must then be chosen again.
 */

let databases: TestDatabase[]
/** Two services that ran all migrations, and two that have a copy. */
let migrated: TestService[]
let copied: TestService[]

beforeAll(async () => {
  databases = [await createTestDatabase(), await createTestDatabase()]
  migrated = await Promise.all(databases.map(({ url }) => createTestService({ url })))
  copied = [await createTestService(), await createTestService()]
})
afterAll(async () => {
  for (const { close } of [...migrated, ...copied, ...databases]) await close()
})

/** Returns the values of the catalogue by column, without times. */
async function readValues({ database }: TestService): Promise<Map<string, string>> {
  const columns = await database.query<{ schema: string; table: string; column: string }>(sql`
    select c.table_schema as schema, c.table_name as table, c.column_name as column
    from information_schema.columns c
    join information_schema.tables t using (table_schema, table_name)
    where t.table_type = 'BASE TABLE'
      and c.table_schema like 'offshoot%'
      and c.data_type not like 'timestamp%'
    order by 1, 2, 3`)
  const values = new Map<string, string>()
  for (const { schema, table, column } of columns) {
    const [row] = await database.query<{ text: string }>(sql`
      select coalesce(string_agg(t.${ident(column)}::text, ' ' order by t.${ident(column)}::text), '') as text
      from ${ident(schema)}.${ident(table)} t`)
    values.set(`${schema}.${table}.${column}`, row?.text ?? '')
  }
  return values
}

async function listDifferent([left, right]: readonly TestService[]): Promise<string[]> {
  if (left === undefined || right === undefined) throw new Error('two services are compared')
  const [one, other] = [await readValues(left), await readValues(right)]
  return [...one.keys()].filter((column) => one.get(column) !== other.get(column))
}

it('has the columns of a migrated one, and shares no random value with another copy', async () => {
  const [expected, found] = [await listDifferent(migrated), await listDifferent(copied)]
  expect(expected).toContain('offshoot.secrets.secret')
  expect(found).toEqual(expected)
  const [one, copy] = [migrated[0], copied[0]] as [TestService, TestService]
  expect([...(await readValues(copy)).keys()]).toEqual([...(await readValues(one)).keys()])
})
