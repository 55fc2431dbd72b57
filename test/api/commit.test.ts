import { rm } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { type EmbeddedPostgres, startEmbedded } from '@offshoot/embedded-postgres'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { settleCommit } from '../../packages/server/src/postgres/commit.js'
import { runPipeline } from '../../packages/server/src/postgres/pipeline.js'
import { TestBranches } from '../support/branches.js'
import { makeDataFolder } from '../support/data-folder.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'

/** Time limits of the service. Every COMMIT in this file waits longer. */
const LIMIT_MS = 1_000

let folder: string
let postgres: EmbeddedPostgres
let service: TestService
let branches: TestBranches
let admin: pg.Client

beforeAll(async () => {
  folder = await makeDataFolder('commit')
  // A separate server, because synchronous_standby_names applies to the whole server.
  postgres = await startEmbedded({ dataDir: folder, log: () => undefined })
  const { user, password, host, port, database } = postgres.connection
  const url = `postgresql://${user}:${encodeURIComponent(password)}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`
  service = await createTestService({
    url,
    statementTimeoutMs: LIMIT_MS,
    limits: { queryTimeoutMs: LIMIT_MS },
  })
  branches = await TestBranches.create(service, 'shop', {
    users: [{ name: 'name', type: 'string' }],
  })
  await branches.bulk('main', 'users', [{ id: 'first', name: 'First' }])
  admin = new pg.Client({ connectionString: url })
  await admin.connect()
  await admin.query('set synchronous_commit = local')
})
afterEach(() => setStandby(''))
afterAll(async () => {
  await service.close()
  await admin.end()
  await postgres.stop()
  await rm(folder, { recursive: true, force: true })
})

/**
 * Sets synchronous_standby_names. With the name of a standby that does not exist, each COMMIT
 * waits.
 */
async function setStandby(names: string): Promise<void> {
  await admin.query(`alter system set synchronous_standby_names = '${names}'`)
  await admin.query('select pg_reload_conf()')
  // Wait until a session shows the new setting. Other backends may still commit by the old one: see
  // `startWaiting`.
  await expect
    .poll(async () => {
      const { rows } = await admin.query('show synchronous_standby_names')
      return rows[0].synchronous_standby_names
    })
    .toBe(names)
}

async function waitingBackends(): Promise<number[]> {
  const { rows } = await admin.query<{ pid: number }>(
    `select pid from pg_stat_activity where wait_event = 'SyncRep'`,
  )
  return rows.map(({ pid }) => pid)
}

const WRITES: readonly (readonly [name: string, write: (id: string) => Promise<Answer>])[] = [
  [
    'SQL',
    (id) =>
      branches.call('main', 'POST', '/sql', {
        statement: 'insert into users (id, name) values ($1, $1)',
        params: [id],
      }),
  ],
  ['a record', (id) => branches.call('main', 'PUT', `/tables/users/data/${id}`, { name: id })],
  [
    'a record with a new id',
    (id) => branches.call('main', 'POST', '/tables/users/data', { name: id }),
  ],
  [
    'a transaction',
    (id) =>
      branches.call('main', 'POST', '/transaction', {
        operations: [{ insert: { table: 'users', record: { id, name: id } } }],
      }),
  ],
  [
    'a bulk insert',
    (id) => branches.call('main', 'POST', '/tables/users/bulk', { records: [{ id, name: id }] }),
  ],
  [
    'a schema edit',
    (id) =>
      branches.call('main', 'POST', '/schema/apply', {
        edits: { operations: [{ addTable: { table: id } }] },
      }),
  ],
]

describe('records with new ids that share a commit, with the synchronous standby gone,', () => {
  it('are all answered as unknown when somebody ends the wait, and not inserted again', async () => {
    await setStandby('gone')
    const write = (name: string) => branches.call('main', 'POST', '/tables/users/data', { name })
    for (let attempt = 0; ; attempt++) {
      const names = Array.from({ length: 8 }, (_, index) => `shared-${attempt}-${index}`)
      let isAnswered = false
      const all = Promise.all(names.map(write)).finally(() => {
        isAnswered = true
      })
      while (!isAnswered) {
        for (const pid of await waitingBackends()) {
          await admin.query('select pg_cancel_backend($1)', [pid])
        }
        await delay(20)
      }
      const answers = await all
      // Some may have been committed before the setting was in effect.
      if (answers.some(({ status }) => status === 201)) continue
      expect(answers.map(({ body }) => body.code)).toEqual(names.map(() => 'commit_unknown'))
      return
    }
  })
})

describe.each(WRITES)('%s, with the synchronous standby gone,', (name, write) => {
  const id = name.replaceAll(' ', '-')

  /**
   * Starts a write whose COMMIT waits. A write that commits before the setting is in effect is
   * repeated.
   */
  async function startWaiting(kind: string): Promise<{ answer: Promise<Answer> }> {
    await setStandby('gone')
    for (let attempt = 0; ; attempt++) {
      const answer = write(`${kind}-${id}-${attempt}`)
      const early = await Promise.race([
        answer,
        until(async () => (await waitingBackends()).length > 0),
      ])
      if (early === undefined) return { answer }
    }
  }

  it('is not answered before it is replicated, whatever its limit of time', async () => {
    const { answer } = await startWaiting('waits')
    const early = await Promise.race([answer, delay(3 * LIMIT_MS)])
    expect(early).toBeUndefined()
    expect(await waitingBackends()).toHaveLength(1)
    await setStandby('')
    expect([200, 201]).toContain((await answer).status)
  })

  it('is answered as unknown when somebody ends the wait', async () => {
    const { answer } = await startWaiting('ended')
    for (const pid of await waitingBackends()) {
      await admin.query('select pg_cancel_backend($1)', [pid])
    }
    expect(await answer).toMatchObject({ status: 503, body: { code: 'commit_unknown' } })
  })
})

async function until(condition: () => Promise<boolean>): Promise<undefined> {
  while (!(await condition())) await delay(20)
  return undefined
}

describe('the answer to a COMMIT', () => {
  it('is unknown when the connection breaks', async () => {
    const broken = Promise.reject(new Error('Connection terminated unexpectedly'))
    await expect(settleCommit(admin, broken)).rejects.toMatchObject({ code: 'commit_unknown' })
  })

  it('is unknown when it does not come, and the connection is kept until it does', async () => {
    const silent = new Promise<never>(() => undefined)
    await expect(settleCommit(admin, silent, 1)).rejects.toMatchObject({
      code: 'commit_unknown',
      pending: silent,
    })
  })

  it('is a failure when a node of a cluster cannot be reached before it, and unknown when it is during it', async () => {
    // The coordinator reports that with a code of class 08, over a connection that works.
    await admin.query(`
      create table lost (id integer);
      create function lose() returns trigger language plpgsql as $$
        begin raise exception 'connection to the remote node failed' using errcode = '08006'; end $$;
      create constraint trigger late after insert on lost deferrable initially deferred
        for each row execute function lose();
      create table refused (id integer);
      create trigger soon before insert on refused for each row execute function lose()`)
    const commit = (table: 'lost' | 'refused') => {
      const statements = ['begin', `insert into ${table} values (1)`, 'commit']
      const calls = statements.map((text) => ({ statement: { text, slots: [] }, values: [] }))
      return settleCommit(admin, runPipeline(admin, calls))
    }
    await expect(commit('refused')).rejects.toMatchObject({ code: '08006' })
    await admin.query('rollback')
    await expect(commit('lost')).rejects.toMatchObject({ code: 'commit_unknown' })
    await admin.query('rollback')
  })

  it('is a failure when PostgreSQL reports one', async () => {
    const failed = Promise.reject(Object.assign(new Error('conflict'), { code: '40001' }))
    await expect(settleCommit(admin, failed)).rejects.toMatchObject({ code: '40001' })
  })
})
