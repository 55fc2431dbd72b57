import { setTimeout as delay } from 'node:timers/promises'
import { createClient, type OperationInfo } from '@offshoot/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { collectOperations } from '../../packages/server/src/domain/long-work/operations.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { holdBranch } from '../support/held-branch.js'
import { createKey, createUser, createWorkspace } from '../support/people.js'
import { until } from '../support/process.js'
import { createServiceBeside, createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Work that does not end in time is answered by an operation. Here every answer is late, and a lock on the heap of a branch
 * keeps the work from ending.
 */

const patience = { mergeLockedRowsMax: 0, automaticCheckpointsMax: 20 }
const limits = { ...patience, answerWithinMs: 0 }

/** Longer than a preview takes. If it is not, the test proves less. */
const PREVIEW_MS = 1000

let service: TestService
/** Another process, whose answers are not late. */
let patient: TestService
let number = 0
/** The address at which `service` listens. */
let url: string

beforeAll(async () => {
  service = await createTestService({ limits })
  patient = await createServiceBeside(service, { limits: patience })
  url = await service.app.listen({ port: 0, host: '127.0.0.1' })
})
afterAll(async () => {
  await patient.close()
  await service.close()
})

const text = { name: 'text', type: 'string' } as const

/** The fork `dev` has records that `main` does not have. */
async function open(via = service, owner = patient): Promise<TestBranches> {
  const branches = await TestBranches.create(owner, `late${++number}`, {
    items: [{ name: 'price', type: 'int' }],
  })
  await branches.put('main', 'items', 'a', { price: 1 })
  await branches.fork('dev')
  await branches.put('dev', 'items', 'b', { price: 2 })
  return branches.through(via)
}

const read = (id: string, key = service.key) => service.call('GET', `/operations/${id}`, { key })

/** Waits until an operation has ended, and returns it. */
async function ended(id: string) {
  await until(async () => expectOk(await read(id)).body.state !== 'running')
  return expectOk(await read(id)).body
}

/** Starts a merge that is held, and returns its operation and what releases it. */
async function start(branches: TestBranches, body?: unknown) {
  const release = await holdBranch(branches, 'dev')
  const answer = await branches.merging('dev', body)
  expect(answer.status).toBe(202)
  return { release, answer, operation: answer.body.operation, id: answer.body.operation.id }
}

describe('a merge that takes longer than a request may', () => {
  it('is answered by an operation that ends with the result of the merge', async () => {
    const branches = await open()
    const { release, answer, operation, id } = await start(branches)
    expect(answer.headers.location).toBe(`/operations/${id}`)
    expect(operation).toMatchObject({
      kind: 'merge',
      state: 'running',
      database: branches.database,
      branch: 'dev',
    })
    expect(expectOk(await read(id)).body.state).toBe('running')
    expect(await branches.record('main', 'items', 'b')).toBeUndefined()
    await release()
    const { state, result, endedAt, error } = await ended(id)
    expect({ state, error }).toEqual({ state: 'done', error: undefined })
    expect(Date.parse(endedAt)).toBeGreaterThanOrEqual(Date.parse(operation.startedAt))
    expect(result).toMatchObject({ merged: true, tables: [{ name: 'items', inserted: 1 }] })
    expect(result.entry).toMatch(/^log_/)
    expect(await branches.record('main', 'items', 'b')).toMatchObject({ price: 2 })
  })

  it('tells what it does', async () => {
    const branches = await open()
    const { release, id } = await start(branches)
    await until(async () => expectOk(await read(id)).body.progress.step !== 'starting')
    expect(expectOk(await read(id)).body.progress).toEqual({
      step: 'reading the branches',
      done: 0,
      total: 1,
    })
    await release()
    await ended(id)
  })

  it('ends with the error that its request would have got', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 5 })
    await branches.patch('main', 'items', 'a', { price: 6 })
    const { release, id } = await start(branches)
    await release()
    const { state, error, result } = await ended(id)
    expect({ state, result }).toEqual({ state: 'failed', result: undefined })
    expect(error).toMatchObject({ code: 'merge_conflict', status: 409, conflictCount: 1 })
    expect(await branches.record('main', 'items', 'b')).toBeUndefined()
  })

  it('can be a dry run, a pull or a revert', async () => {
    const branches = await open()
    const dry = await start(branches, { dryRun: true })
    await dry.release()
    expect(await ended(dry.id)).toMatchObject({ state: 'done', result: { merged: false } })
    const release = await holdBranch(branches, 'dev')
    const pull = await branches.pulling('main', { from: 'dev' })
    expect(pull.body.operation).toMatchObject({ kind: 'pull', branch: 'main' })
    await release()
    const { result } = await ended(pull.body.operation.id)
    expect(await branches.record('main', 'items', 'b')).toMatchObject({ price: 2 })
    const body = { entry: result.entry }
    const revert = await branches.call('main', 'POST', '/revert', body)
    expect(revert.body.operation).toMatchObject({ kind: 'revert', branch: 'main' })
    expect(await ended(revert.body.operation.id)).toMatchObject({ state: 'done' })
    expect(await branches.record('main', 'items', 'b')).toBeUndefined()
  })

  it('can be cancelled, and has changed nothing then', async () => {
    const branches = await open()
    const { release, id } = await start(branches)
    expectOk(await service.call('POST', `/operations/${id}/cancel`))
    const { state, error } = await ended(id)
    expect({ state, code: error.code }).toEqual({
      state: 'cancelled',
      code: 'operation_cancelled',
    })
    await release()
    expect(await branches.record('main', 'items', 'b')).toBeUndefined()
    // An operation that has ended stays as it is.
    expect(expectOk(await service.call('POST', `/operations/${id}/cancel`)).body.state).toBe(
      'cancelled',
    )
    const again = await branches.merging('dev')
    expect(await ended(again.body.operation.id)).toMatchObject({ state: 'done' })
  })

  it('fails if the process stops, and another process says so', async () => {
    const stopped = await createTestService({ url: service.url, limits })
    const branches = await open(stopped)
    const { release, id } = await start(branches)
    await stopped.close()
    const { state, error } = await ended(id)
    expect({ state, code: error.code }).toEqual({
      state: 'failed',
      code: 'operation_interrupted',
    })
    await release()
    expect(await branches.through(service).record('main', 'items', 'b')).toBeUndefined()
  })

  it('counts as interrupted if its process is gone, and cannot take effect afterwards', async () => {
    const branches = await open()
    const { release, id } = await start(branches)
    // The process is not gone, but says nothing for long.
    await service.database.query(sql`
      create function offshoot_work.keep_silent() returns trigger language plpgsql as
        $$ begin new.seen_at := now() - interval '1 hour'; return new; end $$`)
    await service.database.query(sql`
      create trigger silent before update on offshoot_work.operations
        for each row execute function offshoot_work.keep_silent()`)
    await until(async () => expectOk(await read(id)).body.state === 'failed')
    expect(expectOk(await read(id)).body.error.code).toBe('operation_interrupted')
    await collectOperations(service.database)
    await service.database.query(sql`drop function offshoot_work.keep_silent cascade`)
    await release()
    const { error } = await ended(id)
    expect(error.code).toBe('operation_interrupted')
    expect(await branches.record('main', 'items', 'b')).toBeUndefined()
  })

  it('ends as an operation if it is over before the operation is stored', async () => {
    const branches = await open()
    const client = await service.database.pool.connect()
    await client.query('begin')
    await client.query('lock table offshoot_work.operations in exclusive mode')
    const answering = branches.merging('dev', { dryRun: true })
    await until(async () => {
      const waiting = await service.database.query(sql`
        select from pg_locks
        where relation = 'offshoot_work.operations'::regclass and not granted`)
      return waiting.length > 0
    })
    // The preview does not wait for the operation.
    await Promise.race([answering, delay(PREVIEW_MS)])
    await client.query('rollback')
    client.release()
    const { status, body } = await answering
    expect(status).toBe(202)
    expect(await ended(body.operation.id)).toMatchObject({ state: 'done' })
  })

  it('is answered as ever if enough operations are running, and other work is refused', async () => {
    const few = await createTestService({
      url: service.url,
      limits: { ...limits, operationsAtOnceMax: 1 },
    })
    const first = await open(few)
    const { release, id } = await start(first)
    const second = await open(few)
    expect((await second.merging('dev')).status).toBe(200)
    // A change of records would hold the branch for long.
    const again = await holdBranch(second, 'dev')
    const body = { all: true, set: { price: 9 } }
    const refused = await second.call('dev', 'PATCH', '/tables/items/data', body)
    expect(refused).toMatchObject({ status: 503, body: { code: 'timeout' } })
    expect(refused.body.message).toContain('operations are running already')
    await again()
    expect(await second.record('dev', 'items', 'b')).toMatchObject({ price: 2 })
    await release()
    await ended(id)
    await few.close()
  })

  it('leaves places for the operations of other workspaces', async () => {
    const few = await createTestService({
      url: service.url,
      limits: { ...limits, operationsAtOnceMax: 2 },
    })
    const { id: workspaceId } = await createWorkspace(service, 'neighbours')
    const own = await open(few)
    const held = await start(own)
    // The workspace has its share of the places, so the request waits for its end.
    const waiting = await open(few)
    expect((await waiting.merging('dev')).status).toBe(200)
    const neighbour = { ...patient, workspaceId, workspace: `/${workspaceId}.local` }
    const other = await open(few, neighbour)
    const theirs = await start(other)
    for (const { release, id } of [held, theirs]) {
      await release()
      expect((await ended(id)).state).toBe('done')
    }
    await few.close()
  })
})

describe('a change of many records that takes longer than a request may', () => {
  const all = '/tables/items/data'

  it('is answered by an operation that ends with the number of records', async () => {
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const update = await branches.call('dev', 'PATCH', all, { all: true, set: { price: 9 } })
    expect(update.status).toBe(202)
    expect(update.body.operation).toMatchObject({ kind: 'update', state: 'running', branch: 'dev' })
    await release()
    expect(await ended(update.body.operation.id)).toMatchObject({
      state: 'done',
      result: { updated: 2 },
    })
    expect(await branches.record('dev', 'items', 'b')).toMatchObject({ price: 9 })
    const again = await holdBranch(branches, 'dev')
    const deletion = await branches.call('dev', 'DELETE', all, { filter: { price: 9 } })
    expect(deletion.body.operation).toMatchObject({ kind: 'delete' })
    await again()
    expect((await ended(deletion.body.operation.id)).result).toEqual({ deleted: 2 })
    expect(await branches.record('dev', 'items', 'b')).toBeUndefined()
  })

  it('stops if its client goes away before it is answered', async () => {
    const address = await patient.app.listen({ port: 0, host: '127.0.0.1' })
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const leaving = new AbortController()
    const update = fetch(`${address}${patient.workspace}/db/${branches.database}:dev${all}`, {
      method: 'PATCH',
      body: JSON.stringify({ all: true, set: { price: 9 } }),
      headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
      signal: leaving.signal,
    }).catch(() => 'left')
    const waiting = async () => {
      const rows = await service.database.query(sql`
        select from pg_locks
        where not granted and database = (select oid from pg_database where datname = current_database())`)
      return rows.length > 0
    }
    await until(waiting)
    leaving.abort()
    expect(await update).toBe('left')
    await until(async () => !(await waiting()))
    await release()
    expect(await branches.record('dev', 'items', 'b')).toMatchObject({ price: 2 })
  })

  it('can be cancelled, and has changed nothing then', async () => {
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const update = await branches.call('dev', 'PATCH', all, { all: true, set: { price: 9 } })
    const { id } = update.body.operation
    expectOk(await service.call('POST', `/operations/${id}/cancel`))
    expect(await ended(id)).toMatchObject({
      state: 'cancelled',
      error: { code: 'operation_cancelled' },
    })
    await release()
    expect(await branches.record('dev', 'items', 'b')).toMatchObject({ price: 2 })
  })

  it('is executed once, even if it is sent again', async () => {
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const send = () =>
      service.call('DELETE', `${service.workspace}/db/${branches.database}:dev${all}`, {
        body: { all: true },
        headers: { 'idempotency-key': 'once' },
      })
    const { body } = await send()
    await release()
    expect((await ended(body.operation.id)).result).toEqual({ deleted: 2 })
    const { body: second } = await send()
    const { result } = second.operation ? await ended(second.operation.id) : { result: second }
    expect(result).toEqual({ deleted: 2 })
  })
})

describe('an import that takes longer than a request may', () => {
  const lines = `${JSON.stringify({ id: 'c', price: 3 })}\n${JSON.stringify({ id: 'd', price: 4 })}\n`
  const importing = (branches: TestBranches, body: string | ReadableStream) =>
    fetch(`${url}${service.workspace}/db/${branches.database}:dev/tables/items/bulk`, {
      method: 'POST',
      body,
      headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/x-ndjson' },
      ...{ duplex: 'half' },
    })
  it('is answered by an operation after its last line, which ends with the counts', async () => {
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const answer = await importing(branches, lines)
    expect(answer.status).toBe(202)
    const { operation } = (await answer.json()) as { operation: OperationInfo }
    expect(operation).toMatchObject({ kind: 'import', state: 'running', branch: 'dev' })
    await release()
    expect(await ended(operation.id)).toMatchObject({
      state: 'done',
      result: { inserted: 2, failed: 0 },
    })
    expect(await branches.record('dev', 'items', 'd')).toMatchObject({ price: 4 })
  })

  it('is listed while its lines arrive, and fails if its client goes away', async () => {
    const branches = await open()
    const leaving = new AbortController()
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(lines))
        leaving.signal.addEventListener('abort', () => controller.error(new Error('left')))
      },
    })
    const answering = importing(branches, body).catch(() => 'left')
    const [operation] = await listed(branches)
    expect(operation).toMatchObject({ kind: 'import', state: 'running', branch: 'dev' })
    leaving.abort()
    expect(await answering).toBe('left')
    expect((await ended(operation?.id ?? '')).state).toBe('failed')
    expect(await branches.record('dev', 'items', 'c')).toBeUndefined()
  })

  it('can be cancelled, and has changed nothing then', async () => {
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const answer = await importing(branches, lines)
    const { operation } = (await answer.json()) as { operation: OperationInfo }
    expectOk(await service.call('POST', `/operations/${operation.id}/cancel`))
    expect((await ended(operation.id)).state).toBe('cancelled')
    await release()
    expect(await branches.record('dev', 'items', 'c')).toBeUndefined()
  })

  /** Waits until the branch `dev` has an operation. */
  async function listed(branches: TestBranches): Promise<OperationInfo[]> {
    let operations: OperationInfo[] = []
    await until(async () => {
      operations = expectOk(await branches.call('dev', 'GET', '/operations')).body.operations
      return operations.length > 0
    })
    return operations
  }
})

describe('a change of a schema that takes longer than a request may', () => {
  it('is answered by an operation that ends with the migration', async () => {
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const change = { type: 'string' }
    const answer = await branches.call('dev', 'PATCH', '/tables/items/columns/price', change)
    expect(answer.status).toBe(202)
    expect(answer.body.operation).toMatchObject({ kind: 'migration', branch: 'dev' })
    await release()
    const { state, result } = await ended(answer.body.operation.id)
    expect({ state, status: result?.status }).toEqual({ state: 'done', status: 'completed' })
    expect(result.migrationID).toMatch(/^mig_/)
    expect(await branches.record('dev', 'items', 'b')).toMatchObject({ price: '2' })
  })

  it('converts the records of a large table in parts', async () => {
    const branches = await open()
    await branches.through(patient).edit('main', { addColumn: { table: 'items', column: text } })
    const statement = `insert into items (id, price, text)
      select 'r' || n, n, repeat('long', 400) from generate_series(1, 25000) n`
    expectOk(await branches.through(patient).call('main', 'POST', '/sql', { statement }))
    const change = { type: 'string' }
    const answer = await branches.call('main', 'PATCH', '/tables/items/columns/price', change)
    const { id } = answer.body.operation
    const steps = new Set<string>()
    await until(async () => {
      const { state, progress } = expectOk(await read(id)).body
      steps.add(progress.step)
      const isDone = state === 'done'
      if (isDone) expect(progress.done).toBe(progress.total)
      else expect(progress.done).toBeLessThan(progress.total)
      return state !== 'running'
    })
    expect(expectOk(await read(id)).body.state).toBe('done')
    const known = ['starting', 'changing the schema', 'writing column [items.price]']
    expect([...steps].filter((step) => !known.includes(step))).toEqual([])
    const wrong = await branches.through(patient).call('main', 'POST', '/sql', {
      statement: `select count(*), count(*) filter (where id <> 'r' || price) as wrong from items`,
    })
    expect(expectOk(wrong).body.records).toEqual([{ count: 25001, wrong: 1 }])
  })

  it('can be cancelled, and has changed nothing then', async () => {
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const path = '/tables/items/constraints/positive'
    const answer = await branches.call('dev', 'PUT', path, { check: 'price > 0' })
    const { id } = answer.body.operation
    expectOk(await service.call('POST', `/operations/${id}/cancel`))
    expect((await ended(id)).state).toBe('cancelled')
    await release()
    const table = await branches.call('dev', 'GET', '/tables/items/schema')
    expect(expectOk(table).body.constraints ?? []).toEqual([])
    await branches.put('dev', 'items', 'c', { price: -1 })
  })

  it('ends with the error that its request would have got', async () => {
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const path = '/tables/items/constraints/high'
    const { body } = await branches.call('dev', 'PUT', path, { check: 'price > 1' })
    await release()
    expect(await ended(body.operation.id)).toMatchObject({
      state: 'failed',
      error: { code: 'constraint_violated', status: 400 },
    })
  })
})

describe('the client', () => {
  it('waits for the operation of a merge, and tells its progress', async () => {
    const branches = await open()
    const release = await holdBranch(branches, 'dev')
    const client = createClient({
      url,
      apiKey: service.key,
      workspace: service.workspaceId,
      database: branches.database,
      branch: 'dev',
    })
    const told: OperationInfo[] = []
    const onProgress = (operation: OperationInfo) => {
      if (told.push(operation) === 1) void release()
    }
    expect(await client.branch().merge({ onProgress })).toMatchObject({ merged: true })
    expect(told[0]).toMatchObject({ kind: 'merge', state: 'running' })
    const id = told[0]?.id ?? ''
    expect(await client.account.operation(id)).toMatchObject({ state: 'done' })
    expect(await client.account.cancelOperation(id)).toMatchObject({ state: 'done' })
    await branches.patch('dev', 'items', 'a', { price: 5 })
    await branches.patch('main', 'items', 'a', { price: 6 })
    const again = await holdBranch(branches, 'dev')
    let releasing: Promise<void> | undefined
    const onFailing = () => {
      releasing ??= again()
    }
    const failing = client.branch().merge({ onProgress: onFailing })
    await expect(failing).rejects.toMatchObject({ code: 'merge_conflict', status: 409 })
    await releasing
  })
})

describe('the list of operations', () => {
  it('has those of the branch, newest first, without their results', async () => {
    const branches = await open()
    const first = await start(branches)
    await first.release()
    await ended(first.id)
    const second = await start(branches, { dryRun: true })
    const answer = expectOk(await branches.call('dev', 'GET', '/operations'))
    expect(answer.body.operations).toMatchObject([
      { id: second.id, kind: 'merge', state: 'running' },
      { id: first.id, kind: 'merge', state: 'done' },
    ])
    expect(answer.body.operations[1]).not.toHaveProperty('result')
    expect((await branches.call('main', 'GET', '/operations')).body.operations).toEqual([])
    await second.release()
    await ended(second.id)
  })

  it('ends with the oldest of a hundred', async () => {
    const branches = await open()
    await service.database.query(sql`
      insert into offshoot_work.operations (id, database_id, branch_name, kind, progress, started_at)
      select 'op_' || d.name || n, d.id, 'dev', 'merge', '{"step":"starting","done":0,"total":1}',
        now() - make_interval(secs => n)
      from offshoot.databases d, generate_series(1, 101) n
      where d.name = ${branches.database}`)
    const { operations } = expectOk(await branches.call('dev', 'GET', '/operations')).body
    expect(operations).toHaveLength(100)
    expect(operations[0].id).toBe(`op_${branches.database}1`)
    expect(operations[99].id).toBe(`op_${branches.database}100`)
  })
})

describe('an operation', () => {
  it('is known to those who may read its branch, and cancelled by those who may write', async () => {
    const branches = await open()
    const { release, id } = await start(branches)
    const stranger = await createUser(service, 'stranger')
    const missing = { status: 404, body: { code: 'operation_not_found' } }
    expect(await read(id, stranger.key)).toMatchObject(missing)
    expect(await read('op_missing')).toMatchObject(missing)
    const other = await createKey(service, `other${number}`, {
      fields: { scope: { branches: ['main'] } },
    })
    expect(await read(id, other)).toMatchObject(missing)
    const reader = await createKey(service, `reader${number}`, {
      fields: { scope: { access: 'read' } },
    })
    expectOk(await read(id, reader))
    const cancelling = await service.call('POST', `/operations/${id}/cancel`, { key: reader })
    expect(cancelling).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    await release()
    expect((await ended(id)).state).toBe('done')
  })

  it('is kept for some days after its end', async () => {
    const branches = await open()
    const { release, id } = await start(branches)
    await release()
    await ended(id)
    const age = (interval: string) =>
      service.database.query(sql`
        update offshoot_work.operation_ends set ended_at = now() - ${interval}::interval
        where operation_id = ${id}`)
    await age('6 days 23 hours')
    await collectOperations(service.database)
    expectOk(await read(id))
    await age('7 days 1 hour')
    await collectOperations(service.database)
    expect((await read(id)).status).toBe(404)
  })
})
