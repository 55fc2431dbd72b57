import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestService, type TestService } from '../../../../test/support/service.js'
import { analyzeGrown } from './analyze-grown.js'
import { sql } from './sql.js'

let service: TestService

beforeAll(async () => {
  service = await createTestService()
  await service.database.query(sql`alter table offshoot.users set (autovacuum_enabled = off)`)
})
afterAll(() => service.close())

async function addUsers(count: number): Promise<void> {
  await service.database.query(sql`
    insert into offshoot.users (id, email, fullname, image)
    select id, id || '@example.com', repeat('x', 100), ''
    from (select gen_random_uuid()::text as id from generate_series(1, ${count})) given`)
}

async function rowsKnown(): Promise<number> {
  const [row] = await service.database.query<{ rows: number }>(sql`
    select reltuples as rows from pg_class where oid = 'offshoot.users'::regclass`)
  return row?.rows ?? 0
}

describe('the statistics of the catalogue', () => {
  it('are renewed when a table is twice as large, and not before', async () => {
    expect(await analyzeGrown(service.database)).not.toContain('users')
    await addUsers(2000)
    expect(await analyzeGrown(service.database)).toContain('users')
    const known = await rowsKnown()
    expect(known).toBeGreaterThanOrEqual(2000)
    await addUsers(1000)
    expect(await analyzeGrown(service.database)).toEqual([])
    expect(await rowsKnown()).toBe(known)
    await addUsers(2000)
    expect(await analyzeGrown(service.database)).toEqual(['users'])
    expect(await rowsKnown()).toBeGreaterThanOrEqual(5000)
  })
})
