import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../test/support/database.js'
import { Database } from './database.js'
import { findReaderKind, ReaderRoles, SHARED_READER } from './reader-role.js'
import { ident, sql } from './sql.js'

/** A role that may create schemas, but no roles. */
const OWNER = `owner_${randomBytes(6).toString('hex')}`
const SCHEMA = 'offshoot_db_1'

let own: TestDatabase
let administrator: Database
let database: Database

function connect(url: string): Database {
  const connected = new Database({
    poolMax: 3,
    statementTimeoutMs: 0,
    onIdleError: () => undefined,
  })
  connected.connect({ url })
  return connected
}

beforeAll(async () => {
  own = await createTestDatabase()
  administrator = connect(own.url)
  const url = new URL(own.url)
  const name = url.pathname.slice(1)
  await own.pool.query(`create role ${OWNER} login password '${OWNER}'`)
  await own.pool.query(`grant create on database ${name} to ${OWNER}`)
  url.username = OWNER
  url.password = OWNER
  database = connect(url.href)
  await database.query(sql`create schema ${ident(SCHEMA)}`)
  await database.query(sql`create table ${ident(SCHEMA)}.heap_1 (id text)`)
  await database.query(sql`create table ${ident(SCHEMA)}.idempotency_keys (hash bytea)`)
})
afterAll(async () => {
  await database.close()
  await own.pool.query(`drop owned by ${OWNER} cascade`)
  await own.pool.query(`drop role ${OWNER}`)
  await administrator.close()
  await own.close()
})

describe('without the right to create roles', () => {
  it('statements run as the role of the service, if there is no other', async () => {
    expect(await findReaderKind(administrator)).toBe('each')
    expect(await findReaderKind(database)).toBe('none')
    const roles = new ReaderRoles(database)
    expect(await roles.find(SCHEMA)).toBeUndefined()
    expect(await roles.exists(SCHEMA)).toBe(true)
  })

  it('statements run as the shared role, if an administrator has granted it', async () => {
    const [existing] = await administrator.query(sql`
      select from pg_roles where rolname = ${SHARED_READER}`)
    if (existing === undefined) {
      await administrator.query(sql`create role ${ident(SHARED_READER)} nologin`)
    }
    try {
      // A role that was not granted is of no use.
      expect(await findReaderKind(database)).toBe('none')
      await administrator.query(sql`grant ${ident(SHARED_READER)} to ${ident(OWNER)}`)
      expect(await findReaderKind(database)).toBe('shared')
      expect(await new ReaderRoles(database).find(SCHEMA)).toBe(SHARED_READER)
      const [rights] = await administrator.query(sql`
        select has_table_privilege(${SHARED_READER}, ${`${SCHEMA}.heap_1`}, 'select') as reads,
          has_table_privilege(${SHARED_READER}, ${`${SCHEMA}.heap_1`}, 'delete') as deletes,
          has_table_privilege(${SHARED_READER}, ${`${SCHEMA}.idempotency_keys`}, 'select') as answers`)
      expect(rights).toEqual({ reads: true, deletes: false, answers: false })
    } finally {
      await administrator.query(sql`drop owned by ${ident(OWNER)} cascade`)
      await administrator.query(sql`drop owned by ${ident(SHARED_READER)}`)
      if (existing === undefined) await administrator.query(sql`drop role ${ident(SHARED_READER)}`)
    }
  })
})
