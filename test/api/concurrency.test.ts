import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import {
  addMember,
  createDatabase,
  createKey,
  createUser,
  createWorkspace,
} from '../support/people.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { createTables } from '../support/tables.js'

/** Two processes of the service on one PostgreSQL. */
let first: TestService
let second: TestService

beforeAll(async () => {
  first = await createTestService({ limits: { databasesPerWorkspaceMax: 40 } })
  second = await createTestService({ url: first.url, limits: { databasesPerWorkspaceMax: 40 } })
})
afterAll(async () => {
  await second.close()
  await first.close()
})

const key = () => first.key
/** Sends many concurrent requests, alternating between the two processes. */
const storm = (count: number, call: (service: TestService, number: number) => Promise<Answer>) =>
  Promise.all(
    Array.from({ length: count }, (_, number) => call(number % 2 === 0 ? first : second, number)),
  )
const statusesOf = (answers: readonly Answer[]) => answers.map((answer) => answer.status).sort()
const expectOnly = (answers: readonly Answer[], ...allowed: number[]) => {
  const others = answers.filter((answer) => !allowed.includes(answer.status))
  expect(others.map(({ status, body }) => `${status} ${JSON.stringify(body)}`)).toEqual([])
}
const once = (success: number, refusal: number, count: number) =>
  [success, ...Array(count - 1).fill(refusal)].sort()

/** Waits until a transaction waits for another one. */
async function untilLocked(): Promise<void> {
  for (let isWaiting = false; !isWaiting; ) {
    const rows = await first.database.query(sql`
      select from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`)
    isWaiting = rows.length > 0
  }
}

describe('two processes on one database', () => {
  it('edit a schema while the rights on its tables change', async () => {
    const edit = await createTables(first, 'granted', { people: [{ name: 'age', type: 'int' }] })
    const other = new pg.Client({ connectionString: first.url })
    await other.connect()
    const { rows } = await other.query(`select id from offshoot.databases where name = 'granted'`)
    await other.query(
      `begin; grant select on all tables in schema offshoot_db_${rows[0].id} to current_user`,
    )
    const operation = { addColumn: { table: 'people', column: { name: 'name', type: 'string' } } }
    const edited = edit('POST', '/schema/apply', { body: { edits: { operations: [operation] } } })
    await untilLocked()
    await other.query('commit')
    await other.end()
    expect((await edited).status).toBe(200)
  })

  it('upsert records that others create and delete after it was looked for new ones', async () => {
    const call = await createTables(first, 'upserted', { items: [{ name: 'n', type: 'int' }] })
    const records = Array.from({ length: 300 }, (_, n) => ({ id: `r${n}`, n }))
    const old = { records: [{ id: 'r7', n: 0 }] }
    expect((await call('POST', '/tables/items/upsert', { body: old })).status).toBe(200)
    const other = new pg.Client({ connectionString: first.url })
    await other.connect()
    const { rows: heaps } = await other.query(
      `select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as name,
         'c' || h.column_ids[1] as n
       from offshoot.heaps h
       join offshoot.databases d on d.id = h.database_id
       where d.name = 'upserted'`,
    )
    const [{ name, n }] = heaps
    await other.query(
      `begin;
       delete from ${name} where id = 'r7';
       insert into ${name} (id, epoch, ${n}) select 'r250', epoch, 0 from offshoot.branches b
       join offshoot.databases d on d.id = b.database_id where d.name = 'upserted'`,
    )
    const upserted = call('POST', '/tables/items/upsert', { body: { records } })
    await untilLocked()
    await other.query('commit')
    await other.end()
    const { status, body } = await upserted
    expect(status).toBe(200)
    expect(body.results).toEqual(
      records.map(({ id }) => ({ id, outcome: id === 'r250' ? 'updated' : 'inserted' })),
    )
    const stored = await call('GET', '/tables/items/data/r250')
    expect(stored.body).toMatchObject({ n: 250, service: { version: 1 } })
  })

  it('upsert the same new records at once', async () => {
    const columns = [
      { name: 'code', type: 'string', unique: true },
      { name: 'n', type: 'int' },
    ] as const
    const call = await createTables(first, 'same', { items: columns })
    const answers = await storm(6, (service, n) => {
      const records = Array.from({ length: 200 }, (_, index) => ({
        ...{ id: `r${index}`, code: `c${index}`, n },
      }))
      const url = `${service.workspace}/db/same:main/tables/items/upsert`
      return service.call('POST', url, { key: key(), body: { records } })
    })
    expectOnly(answers, 200)
    const outcomes = answers.map(({ body }) => {
      const of = new Set(body.results.map(({ outcome }: { outcome: string }) => outcome))
      return [...of].join()
    })
    expect(outcomes.sort()).toEqual(['inserted', ...Array(5).fill('updated')])
    const stored = await call('GET', '/tables/items/data/r199')
    expect(stored.body.service.version).toBe(5)
  })

  it('let one request have a database name', async () => {
    const url = `/workspaces/${first.workspaceId}/dbs/contested`
    const answers = await storm(8, (service, number) =>
      service.call('PUT', url, { key: key(), body: { region: 'local', branchName: `b${number}` } }),
    )
    expect(statusesOf(answers)).toEqual(once(201, 422, 8))
    const winner = answers.findIndex((answer) => answer.status === 201)
    const { body } = await second.call('GET', `${first.workspace}/dbs/contested`, { key: key() })
    expect(body.branches.map((branch: { name: string }) => branch.name)).toEqual([`b${winner}`])
  })

  it('let one request have a branch name, from whatever source', async () => {
    await createDatabase(first, 'forked')
    await first.call('PUT', `${first.workspace}/db/forked:other`)
    const answers = await storm(10, (service, number) =>
      service.call('PUT', `${first.workspace}/db/forked:contested`, {
        key: key(),
        body: { from: number % 3 === 0 ? 'main' : 'other' },
      }),
    )
    expect(statusesOf(answers)).toEqual(once(201, 422, 10))
  })

  it('let one deletion of a thing succeed', async () => {
    await createDatabase(first, 'deleted-once')
    await first.call('PUT', `${first.workspace}/db/deleted-once:dev`)
    const branch = await storm(6, (service) =>
      service.call('DELETE', `${first.workspace}/db/deleted-once:dev`, { key: key() }),
    )
    expect(statusesOf(branch)).toEqual(once(200, 404, 6))
    const database = await storm(6, (service) =>
      service.call('DELETE', `/workspaces/${first.workspaceId}/dbs/deleted-once`, { key: key() }),
    )
    expect(statusesOf(database)).toEqual(once(200, 404, 6))
    const { id } = await createWorkspace(first, 'Deleted once')
    const workspace = await storm(6, (service) =>
      service.call('DELETE', `/workspaces/${id}`, { key: key() }),
    )
    expect(statusesOf(workspace)).toEqual(once(204, 404, 6))
  })

  it('see what the other did at once', async () => {
    await createDatabase(first, 'seen')
    const url = `${first.workspace}/db/seen`
    const call = (service: TestService, method: string, path: string, body?: unknown) =>
      service.call(method, path, { key: key(), body })
    for (let round = 0; round < 10; round++) {
      const [writer, reader] = round % 2 === 0 ? [first, second] : [second, first]
      const branch = `${url}:round-${round}`
      expect((await call(reader, 'GET', branch)).status).toBe(404)
      expect((await call(writer, 'PUT', branch)).status).toBe(201)
      expect((await call(reader, 'GET', branch)).status).toBe(200)
      await call(writer, 'PUT', `${branch}/metadata`, { stage: `s${round}` })
      expect((await call(reader, 'GET', branch)).body.metadata).toEqual({ stage: `s${round}` })
      expect((await call(writer, 'DELETE', branch)).status).toBe(200)
      expect((await call(reader, 'GET', branch)).status).toBe(404)
    }
    const rename = `/workspaces/${first.workspaceId}/dbs/seen/rename`
    await call(first, 'POST', rename, { newName: 'seen-again' })
    expect((await call(second, 'GET', `${url}:main`)).status).toBe(404)
    expect((await call(second, 'GET', `${url}-again:main`)).status).toBe(200)
  })

  it('forget a member who was removed at once, on every kind of path', async () => {
    await createDatabase(first, 'shared')
    const member = await createUser(first, 'member')
    await addMember(first, member)
    const paths = [
      `/workspaces/${first.workspaceId}`,
      `/workspaces/${first.workspaceId}/dbs/shared`,
      `${first.workspace}/db/shared:main`,
      `${first.workspace}/dbs/shared`,
    ]
    for (const path of paths) {
      expect((await second.call('GET', path, { key: member.key })).status).toBe(200)
    }
    await first.call('DELETE', `/workspaces/${first.workspaceId}/members/${member.id}`)
    for (const path of paths) {
      expect((await second.call('GET', path, { key: member.key })).status).toBe(404)
    }
  })

  it('hold a limit together', async () => {
    const { id } = await createWorkspace(first, 'Full')
    const answers = await storm(60, (service, number) =>
      service.call('PUT', `/workspaces/${id}/dbs/d${number}`, {
        key: key(),
        body: { region: 'local' },
      }),
    )
    expectOnly(answers, 201, 422, 409)
    const { body } = await first.call('GET', `/workspaces/${id}/dbs`)
    expect(body.databases.length).toBeLessThanOrEqual(40)
    expect(body.databases).toHaveLength(answers.filter((answer) => answer.status === 201).length)
  })
})

describe('what disappears while it is used', () => {
  it('is a database: nobody sees more than that it has gone', async () => {
    for (let round = 0; round < 4; round++) {
      await createDatabase(first, 'vanishing')
      const url = `/workspaces/${first.workspaceId}/dbs/vanishing`
      const data = `${first.workspace}/db/vanishing`
      const mapping = `${first.workspace}/dbs/vanishing`
      const calls: [string, string, unknown?][] = [
        ['GET', url],
        ['PATCH', url, { ui: { color: 'red' } }],
        ['GET', `${data}:main`],
        ['PUT', `${data}:a${round}`],
        ['PUT', `${data}:b${round}`, { from: 'main' }],
        ['GET', mapping],
        ['POST', `${mapping}/gitBranches`, { gitBranch: 'g', serviceBranch: 'main' }],
        ['GET', `${mapping}/resolveBranch?gitBranch=g`],
        ['PATCH', `${mapping}/settings`, { searchEnabled: false }],
        ['PUT', `${url}/github`, { owner: 'a', repo: 'b' }],
        ['DELETE', url],
        ['GET', `${data}:main`],
        ['PUT', `${data}:c${round}`],
        ['POST', `${mapping}/gitBranches`, { gitBranch: 'h', serviceBranch: 'main' }],
        ['PATCH', url, { ui: { color: 'blue' } }],
        ['GET', `${mapping}/settings`],
      ]
      const answers = await storm(calls.length, (service, number) => {
        const [method = '', path = '', body] = calls[number] ?? []
        return service.call(method, path, { key: key(), body })
      })
      expectOnly(answers, 200, 201, 204, 400, 404)
      expect((await second.call('GET', url, { key: key() })).status).toBe(404)
    }
  })

  it('is a workspace', async () => {
    for (let round = 0; round < 4; round++) {
      const { id } = await createWorkspace(first, 'Vanishing')
      const answers = await storm(14, (service, number) => {
        if (number === 5) return service.call('DELETE', `/workspaces/${id}`, { key: key() })
        const body = { region: 'local' }
        if (number % 4 === 0) {
          return service.call('PUT', `/workspaces/${id}/dbs/d${number}`, { key: key(), body })
        }
        if (number % 4 === 1) {
          const invite = { email: `i${number}@example.com`, role: 'owner' }
          return service.call('POST', `/workspaces/${id}/invites`, { key: key(), body: invite })
        }
        if (number % 4 === 2) return service.call('GET', `/workspaces/${id}`, { key: key() })
        return service.call('PUT', `/workspaces/${id}`, { key: key(), body: { name: 'Renamed' } })
      })
      expectOnly(answers, 200, 201, 204, 404)
    }
  })

  it('is a user', async () => {
    for (let round = 0; round < 4; round++) {
      const user = await createUser(first, `vanishing-${round}`)
      const answers = await storm(12, (service, number) => {
        if (number === 4) return service.call('DELETE', '/user', { key: user.key })
        if (number % 3 === 0) return service.call('GET', '/user', { key: user.key })
        if (number % 3 === 1) {
          return service.call('POST', `/user/keys/k${number}`, { key: user.key })
        }
        const body = { email: user.email, fullname: 'x', image: '' }
        return service.call('PUT', '/user', { key: user.key, body })
      })
      expectOnly(answers, 200, 201, 204, 401)
      expect((await second.call('GET', '/user', { key: user.key })).status).toBe(401)
    }
  })

  it('is a branch: mapping it and deleting it leaves no entry that points nowhere', async () => {
    await createDatabase(first, 'mapped')
    const url = `${first.workspace}/dbs/mapped/gitBranches`
    for (let round = 0; round < 6; round++) {
      const branch = `${first.workspace}/db/mapped:b${round}`
      await first.call('PUT', branch)
      await first.call('PUT', `${branch}-child`, { body: { from: `b${round}` } })
      const answers = await storm(6, (service, number) =>
        number === 2
          ? service.call('DELETE', branch, { key: key() })
          : service.call('POST', url, {
              key: key(),
              body: { gitBranch: `g${number}`, serviceBranch: `b${round}` },
            }),
      )
      expectOnly(answers, 200, 201, 204, 400)
    }
    const { body } = await first.call('GET', url)
    expect(body.mapping).toEqual([])
    const orphans = await first.database.query(sql`
      select from offshoot.git_branches g
      left join offshoot.branches b on b.id = g.branch_id and b.deleted_at is null
      where b.id is null`)
    expect(orphans).toHaveLength(0)
  })

  it('is the key itself, in the middle of many requests', async () => {
    const brief = await createKey(first, 'brief')
    const answers = await storm(20, (service, number) =>
      number === 7
        ? service.call('DELETE', '/user/keys/brief', { key: brief })
        : service.call('GET', '/user', { key: brief }),
    )
    expectOnly(answers, 200, 204, 401)
    expect((await first.call('GET', '/user', { key: brief })).status).toBe(401)
    expect((await second.call('GET', '/user', { key: brief })).status).toBe(401)
  })
})

describe('after all of this', () => {
  it('every database has its default branch, and every branch its schema', async () => {
    const broken = await first.database.query<{ name: string }>(sql`
      select d.name
      from offshoot.databases d
      left join offshoot.branches b
        on b.id = d.default_branch_id and b.database_id = d.id and b.deleted_at is null
      where b.id is null`)
    expect(broken).toEqual([])
  })

  it('every workspace has an owner', async () => {
    const ownerless = await first.database.query(sql`
      select w.id
      from offshoot.workspaces w
      where not exists (
        select from offshoot.members m where m.workspace_id = w.id and m.role = 'owner'
      )`)
    expect(ownerless).toEqual([])
  })
})
