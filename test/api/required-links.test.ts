import { createHash } from 'node:crypto'
import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService
let number = 0
beforeAll(async () => {
  service = await createTestService({ limits: { linkedRecordsMax: 8 } })
})
afterAll(() => service.close())

const linkTo = (
  table: string,
  onDelete: 'none' | 'restrict' | 'setNull' | 'cascade',
  name = table,
) => ({ name, type: 'link', link: { table, onDelete } }) as const satisfies Column

/** Teams have members; tasks belong to a member and may have a parent; notes belong to tasks. */
const TABLES = {
  teams: [{ name: 'name', type: 'string' }],
  members: [{ name: 'name', type: 'string' }, linkTo('teams', 'restrict', 'team')],
  tasks: [
    { name: 'title', type: 'string' },
    { name: 'changed', type: 'datetime', generate: 'updatedAt' },
    linkTo('members', 'setNull', 'owner'),
    linkTo('tasks', 'cascade', 'parent'),
  ],
  notes: [linkTo('tasks', 'cascade', 'task'), linkTo('teams', 'none', 'about')],
} as const satisfies Record<string, readonly Column[]>

/** A branch with a team and a member. A fork inherits them. */
async function open(branch: string) {
  const branches = await TestBranches.create(service, `links${++number}`, TABLES)
  await branches.put('main', 'teams', 't', { name: 'one' })
  await branches.put('main', 'members', 'm', { name: 'Ada', team: 't' })
  if (branch === 'fork') await branches.fork('fork')
  const send = (
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ) => branches.call(branch, method, path, body, { headers })
  return {
    branches,
    send,
    read: (table: string, ...ids: string[]) => branches.read(branch, table, ids),
    put: (table: string, id: string, values: object) =>
      branches.put(branch, table, id, values as never),
  }
}

const MISSING = {
  code: 'link_violation',
  table: 'members',
  column: 'team',
  target: { table: 'teams', record: 'nobody' },
}
const REFUSED = {
  code: 'link_violation',
  table: 'members',
  column: 'team',
  target: { table: 'teams', record: 't' },
}
const ndjson = { 'content-type': 'application/x-ndjson' }

describe.each(['main', 'fork'])('links that must exist on %s', (branch) => {
  it('are refused by a single write if the record does not exist', async () => {
    const { send, read } = await open(branch)
    const path = '/tables/members/data'
    expect(await send('POST', path, { team: 'nobody' })).toMatchObject({
      status: 400,
      body: MISSING,
    })
    expect(await send('POST', path, { team: 't' })).toMatchObject({ status: 201 })
    expect(await send('POST', path, {})).toMatchObject({ status: 201 })
    const named = { status: 400, body: { ...MISSING, record: 'x' } }
    expect(await send('PUT', `${path}/x`, { team: 'nobody' })).toMatchObject(named)
    expect(await send('POST', `${path}/x`, { team: 'nobody' })).toMatchObject(named)
    const updated = { status: 400, body: { ...MISSING, record: 'm' } }
    expect(await send('PATCH', `${path}/m`, { team: 'nobody' })).toMatchObject(updated)
    expect(await send('PATCH', `${path}/x`, { team: 'nobody' })).toMatchObject({ status: 404 })
    expect(await read('members', 'm', 'x')).toEqual({
      m: { name: 'Ada', team: expect.objectContaining({ id: 't' }) },
    })
  })

  it('name each record of a bulk insert', async () => {
    const { send, read } = await open(branch)
    const records = [{ id: 'a', team: 't' }, { id: 'b', team: 'nobody' }, { team: 'nobody' }]
    const answer = await send('POST', '/tables/members/bulk', { records })
    expect(answer).toMatchObject({
      status: 400,
      body: {
        errors: [
          { index: 1, ...MISSING },
          { index: 2, ...MISSING },
        ],
      },
    })
    expect(await read('members', 'a')).toEqual({})
    // Records of one request may link to each other, in any order.
    const chain = [{ id: 'child', parent: 'root' }, { id: 'root' }, { id: 'own', parent: 'own' }]
    expect(await send('POST', '/tables/tasks/bulk', { records: chain })).toMatchObject({
      status: 200,
    })
    const many = Array.from({ length: 50 }, (_, index) => ({
      id: `c${index}`,
      parent: index === 49 ? 'nobody' : `c${index + 1}`,
    }))
    const broken = await send('POST', '/tables/tasks/bulk', { records: many })
    expect(broken).toMatchObject({ status: 400, body: { code: expect.any(String) } })
    expect(await read('tasks', 'c0')).toEqual({})
  })

  it.each(['', '?mode=partial', '?existing=replace', '?existing=skip'])(
    'name the line of a stream%s',
    async (query) => {
      const { send, read } = await open(branch)
      const lines = [{ id: 'a', team: 't' }, { id: 'b', team: 'nobody' }, { id: 'c' }]
      const body = lines.map((line) => JSON.stringify(line)).join('\n')
      const answer = await send('POST', `/tables/members/bulk${query}`, body, ndjson)
      const refused = [{ line: 2, ...MISSING }]
      const isPartial = query === '?mode=partial'
      if (isPartial) expect(answer.body).toMatchObject({ inserted: 2, errors: refused })
      else expect(answer).toMatchObject({ status: 400, body: { errors: refused } })
      expect(Object.keys(await read('members', 'a', 'b', 'c'))).toEqual(isPartial ? ['a', 'c'] : [])
    },
  )

  it('are kept by a partial stream of which other lines are refused', async () => {
    const { branches, send, read } = await open(branch)
    await branches.edit(
      branch,
      { addColumn: { table: 'tasks', column: { name: 'n', type: 'int' } } },
      { addColumn: { table: 'tasks', column: { name: 'code', type: 'string', unique: true } } },
      { addConstraint: { table: 'tasks', constraint: { name: 'positive', check: '10 / n > 0' } } },
    )
    const insert = async (lines: readonly object[]) => {
      const body = lines.map((line) => JSON.stringify(line)).join('\n')
      const answer = await send('POST', '/tables/tasks/bulk?mode=partial', body, ndjson)
      expect(answer.status).toBe(200)
      return answer.body
    }
    const result = await insert([
      { id: 'child', parent: 'root' },
      { id: 'failing', n: -1, code: '1' },
      { id: 'nobodys', parent: 'nobody', code: '1' },
      { id: 'free', code: '1' },
      { id: 'taken', code: '1' },
      { id: 'of-failing', parent: 'failing' },
      { id: 'of-taken', parent: 'taken' },
      { id: 'unevaluated', n: 0 },
      { id: 'root' },
    ])
    expect(result.inserted).toBe(3)
    expect(result.errors).toMatchObject(
      [
        [2, 'check_violation'],
        [3, 'link_violation'],
        [5, 'unique_violation'],
        [6, 'link_violation'],
        [7, 'link_violation'],
        [8, 'check_violation'],
      ].map(([line, code]) => ({ line, code })),
    )
    expect(Object.keys(await read('tasks', 'child', 'free', 'root'))).toHaveLength(3)
  })

  it('are kept by a partial stream with values that only PostgreSQL refuses', async () => {
    const { branches, send, read } = await open(branch)
    const keys = ['k1', 'k2', 'k3', 'k4']
    await branches.edit(
      branch,
      ...keys.map((name) => ({
        addColumn: { table: 'tasks', column: { name, type: 'string' as const } },
      })),
      { addConstraint: { table: 'tasks', constraint: { name: 'together', unique: keys } } },
    )
    // Together, they are too long for an index. PostgreSQL cannot compress them.
    const letters = (of: string) =>
      createHash('shake256', { outputLength: 500 }).update(of).digest('hex')
    const long = Object.fromEntries(keys.map((key) => [key, letters(key)]))
    const lines = [
      { id: 'child', parent: 'root' },
      { id: 'long', ...long },
      { id: 'of-long', parent: 'long' },
      { id: 'own', parent: 'own' },
      { id: 'one', parent: 'other' },
      { id: 'root' },
      { id: 'other', parent: 'one' },
    ]
    const body = lines.map((line) => JSON.stringify(line)).join('\n')
    const answer = await send('POST', '/tables/tasks/bulk?mode=partial', body, ndjson)
    expect(answer.body).toMatchObject({
      inserted: 5,
      failed: 2,
      errors: [{ line: 2 }, { line: 3 }],
    })
    expect(Object.keys(await read('tasks', 'child', 'one', 'other', 'own', 'root'))).toHaveLength(5)
  })

  describe.each(['records', 'lines'])('of %s of an upsert', (form) => {
    type Sent = Record<string, unknown>
    async function openUpsert() {
      const opened = await open(branch)
      const { branches, send } = opened
      const column = { name: 'code', type: 'string', unique: true } as const
      await branches.edit(branch, { addColumn: { table: 'tasks', column } })
      const upsert = async (records: readonly Sent[], by = 'id') => {
        const path = '/tables/tasks/upsert'
        const answer =
          form === 'records'
            ? await send('POST', path, { records, by })
            : await send(
                'POST',
                `${path}?by=${by}`,
                records.map((record) => JSON.stringify(record)).join('\n'),
                ndjson,
              )
        expect(answer.status).toBe(200)
        return answer.body.results as { id: string; outcome: string; error?: object }[]
      }
      return { ...opened, upsert }
    }

    const outcomes = (results: readonly { id: string; outcome: string }[]) =>
      results.map(({ id, outcome }) => `${id} ${outcome}`)

    it.each(['id', 'code'])(
      'may be to later ones, whatever fields they have, by %s',
      async (by) => {
        const { upsert, read } = await openUpsert()
        const records = [
          { id: 'b', code: '2', parent: 'a', title: 'B' },
          { id: 'a', code: '1' },
          { id: 'd', code: '4', parent: 'c', title: 'D' },
          { id: 'c', code: '3', parent: 'd' },
          { id: 'e', code: '5', parent: 'e', owner: 'm' },
        ]
        expect(outcomes(await upsert(records, by))).toEqual(
          ['b', 'a', 'd', 'c', 'e'].map((id) => `${id} inserted`),
        )
        expect(await read('tasks', 'b', 'c', 'd')).toMatchObject({
          b: { parent: { id: 'a' } },
          c: { parent: { id: 'd' } },
          d: { parent: { id: 'c' } },
        })
        expect(outcomes(await upsert(records, by))).toEqual(
          ['b', 'a', 'd', 'c', 'e'].map((id) => `${id} unchanged`),
        )
      },
    )

    it('are refused with the record that they link to, and no others are', async () => {
      const { upsert, read, put } = await openUpsert()
      await put('tasks', 'kept', { code: 'k' })
      const results = await upsert([
        { id: 'z', parent: 'y', title: 'links to one that is refused' },
        { id: 'y', parent: 'x' },
        { id: 'kept', parent: 'x', title: 'not changed' },
        { id: 'v', parent: 'kept', title: 'links to one that exists' },
        { id: 'x', code: 'k', title: 'has the value of another' },
        { id: 'w', title: 'right' },
      ])
      expect(outcomes(results)).toEqual([
        'z failed',
        'y failed',
        'kept failed',
        'v inserted',
        'x failed',
        'w inserted',
      ])
      expect(results.slice(0, 3).map(({ error }) => error)).toMatchObject(
        ['y', 'x', 'x'].map((record) => ({
          code: 'link_violation',
          column: 'parent',
          target: { table: 'tasks', record },
        })),
      )
      expect(await read('tasks', 'v', 'w', 'x', 'y', 'z', 'kept')).toMatchObject({
        v: {},
        w: {},
        kept: { code: 'k' },
      })
      expect(Object.keys(await read('tasks', 'x', 'y', 'z'))).toEqual([])
    })

    it('are judged again if others are refused that they need, and all end', async () => {
      const { upsert, put, read } = await openUpsert()
      // Each record takes the value that the one before it gives up, unless that one is refused.
      const count = 12
      for (let index = 0; index <= count; index++) {
        await put('tasks', `h${index}`, { code: `v${index}` })
      }
      const records = Array.from({ length: count }, (_, index): Sent[] => [
        { id: `h${index}`, parent: `n${index}`, code: `free${index}` },
        { id: `n${index}`, code: index === 0 ? `v${count}` : `v${index - 1}`, title: 'new' },
      ]).flat()
      const results = await upsert(records)
      expect(outcomes(results).filter((each) => !each.endsWith('failed'))).toEqual([])
      expect(await read('tasks', 'h1')).toMatchObject({ h1: { code: 'v1' } })
    })
  })

  it('may be written before their records in a transaction', async () => {
    const { send, read } = await open(branch)
    const operations = [
      { insert: { table: 'members', record: { id: 'x', team: 'new' } } },
      { insert: { table: 'teams', record: { id: 'new' } } },
    ]
    expect(await send('POST', '/transaction', { operations })).toMatchObject({ status: 200 })
    const broken = [
      { insert: { table: 'teams', record: { id: 'newer' } } },
      { insert: { table: 'members', record: { id: 'y', team: 'nobody' } } },
      { insert: { table: 'members', record: { id: 'z', team: 'newer' } } },
    ]
    expect(await send('POST', '/transaction', { operations: broken })).toMatchObject({
      status: 400,
      body: { code: 'transaction_failed', errors: [{ index: 1, ...MISSING }] },
    })
    const mended = [
      { insert: { table: 'members', record: { id: 'y', team: 'nobody' } } },
      { update: { table: 'members', id: 'y', fields: { team: 't' } } },
      { delete: { table: 'teams', id: 'new' } },
      { update: { table: 'members', id: 'x', fields: { team: 't' } } },
    ]
    expect(await send('POST', '/transaction', { operations: mended })).toMatchObject({
      status: 200,
    })
    expect(await read('members', 'x', 'y')).toMatchObject({ x: { team: { id: 't' } }, y: {} })
    const removed = [{ delete: { table: 'teams', id: 't' } }]
    expect(await send('POST', '/transaction', { operations: removed })).toMatchObject({
      status: 400,
      body: { errors: [{ index: 0, ...REFUSED }] },
    })
  })

  it('are kept by SQL, and by writes to sets of records', async () => {
    const { send, read, put } = await open(branch)
    const run = (statement: string) => send('POST', '/sql', { statement })
    const refused = { status: 400, body: MISSING }
    expect(await run(`insert into members (id, team) values ('x', 'nobody')`)).toMatchObject(
      refused,
    )
    expect(await run(`update members set team = 'nobody'`)).toMatchObject(refused)
    expect(await run(`delete from teams`)).toMatchObject({ status: 400, body: REFUSED })
    expect(await run(`truncate teams`)).toMatchObject({
      status: 400,
      body: {
        code: 'invalid_sql',
        message: expect.stringContaining(
          'table [teams] cannot be truncated: table [members] links to it',
        ),
      },
    })
    expect(await read('members', 'm')).not.toEqual({})
    expect(await run(`truncate teams, members, tasks, notes`)).toMatchObject({ status: 200 })
    expect(await read('members', 'm')).toEqual({})
    await put('teams', 't', {})
    await put('members', 'm', { team: 't' })
    const path = '/tables/members/data'
    expect(await send('PATCH', path, { all: true, set: { team: 'nobody' } })).toMatchObject(refused)
    expect(await send('PATCH', path, { all: true, set: { team: 't' } })).toMatchObject({
      body: { updated: 1 },
    })
    const set = { filter: { id: 't' } }
    expect(await send('DELETE', '/tables/teams/data', set)).toMatchObject({
      status: 400,
      body: REFUSED,
    })
    expect(await send('DELETE', '/tables/members/data', { all: true })).toMatchObject({
      body: { deleted: 1 },
    })
    expect(await send('DELETE', '/tables/teams/data', set)).toMatchObject({ body: { deleted: 1 } })
    expect(await read('teams', 't')).toEqual({})
  })

  it('fail single records of an upsert', async () => {
    const { send, read } = await open(branch)
    const records = [
      { id: 'a', team: 't' },
      { id: 'b', team: 'nobody' },
      { id: 'm', team: 'nobody' },
    ]
    const { body } = await send('POST', '/tables/members/upsert', { records })
    expect(body.results).toMatchObject([
      { id: 'a', outcome: 'inserted' },
      { id: 'b', outcome: 'failed', error: MISSING },
      { id: 'm', outcome: 'failed', error: MISSING },
    ])
    expect(await read('members', 'a', 'b', 'm')).toMatchObject({
      a: { team: { id: 't' } },
      m: { team: { id: 't' } },
    })
  })

  it('with restrict refuse to delete a linked record, and name the linking ones', async () => {
    const { send, put, read } = await open(branch)
    await put('members', 'n', { team: 't' })
    expect(await send('DELETE', '/tables/teams/data/t')).toMatchObject({
      status: 400,
      body: {
        ...REFUSED,
        record: 'm',
        records: ['m', 'n'],
        message: expect.stringMatching(/2 records of table \[members\]/),
      },
    })
    expect(await read('teams', 't')).toEqual({ t: { name: 'one' } })
    await send('DELETE', '/tables/members/data/m')
    await send('PATCH', '/tables/members/data/n', { team: null })
    expect(await send('DELETE', '/tables/teams/data/t')).toMatchObject({ status: 204 })
  })

  it('with setNull lose the link, as an update would', async () => {
    const { send, put, branches } = await open(branch)
    await put('tasks', 'a', { title: 'A', owner: 'm', changed: '2020-01-01T00:00:00Z' })
    await put('tasks', 'b', { title: 'B' })
    expect(await send('DELETE', '/tables/members/data/m')).toMatchObject({ status: 204 })
    const task = await branches.record(branch, 'tasks', 'a')
    expect(task).toMatchObject({ title: 'A', service: { version: 1 } })
    expect(task).not.toHaveProperty('owner')
    expect(task.changed).not.toContain('2020')
    expect(await branches.record(branch, 'tasks', 'b')).toMatchObject({ service: { version: 0 } })
  })

  it('with cascade delete records through several tables, and in circles', async () => {
    const { send, put, read } = await open(branch)
    await put('tasks', 'root', {})
    await put('tasks', 'child', { parent: 'root' })
    await put('tasks', 'root', { parent: 'child' })
    await put('notes', 'n', { task: 'child', about: 'nowhere' })
    await put('tasks', 'other', {})
    await put('notes', 'kept', { task: 'other' })
    expect(await send('DELETE', '/tables/tasks/data/root')).toMatchObject({ status: 204 })
    expect(await read('tasks', 'root', 'child')).toEqual({})
    expect(Object.keys(await read('notes', 'n', 'kept'))).toEqual(['kept'])
    expect(await send('DELETE', '/tables/tasks/data', { all: true })).toMatchObject({
      status: 200,
    })
    expect(await read('notes', 'kept')).toEqual({})
  })

  it('keep their tables from being truncated alone, whatever they do when a record is deleted', async () => {
    const { send, put, read } = await open(branch)
    const run = (statement: string) => send('POST', '/sql', { statement })
    await put('tasks', 'a', { owner: 'm' })
    for (let index = 0; index < 9; index++) await put('tasks', `t${index}`, { parent: 'a' })
    await put('notes', 'n', { task: 'a' })
    const refusals = [
      ['tasks', 'notes'],
      ['members', 'tasks'],
      ['teams, tasks, notes', 'members'],
    ]
    for (const [tables, referrer] of refusals) {
      expect(await run(`truncate ${tables}`)).toMatchObject({
        status: 400,
        body: {
          code: 'invalid_sql',
          message: expect.stringContaining(`cannot be truncated: table [${referrer}] links to it`),
        },
      })
    }
    expect(await read('tasks', 'a')).toMatchObject({ a: { owner: { id: 'm' } } })
    expect(await read('notes', 'n')).toMatchObject({ n: { task: { id: 'a' } } })
    expect(await run('truncate members cascade')).toMatchObject({
      status: 200,
      body: {
        notices: [
          'TRUNCATE ... CASCADE empties table [tasks], too',
          'TRUNCATE ... CASCADE empties table [notes], too',
        ],
      },
    })
    expect([await read('members', 'm'), await read('tasks', 'a')]).toEqual([{}, {}])
    expect([await read('notes', 'n'), await read('teams', 't')]).toEqual([
      {},
      { t: { name: 'one' } },
    ])
    // Links that need no linked record refer to no table.
    await put('notes', 'n', { about: 't' })
    expect(await run('truncate teams, members, tasks')).toMatchObject({ status: 400 })
    expect(await run('truncate notes')).toMatchObject({ status: 200 })
  })

  it('bound what a deletion deletes by a limit', async () => {
    const { send, put, read } = await open(branch)
    await put('tasks', 'root', {})
    for (let index = 0; index < 8; index++) await put('tasks', `c${index}`, { parent: 'root' })
    await put('notes', 'n', { task: 'c0' })
    expect(await send('DELETE', '/tables/tasks/data/root')).toMatchObject({
      status: 422,
      body: { code: 'limit_reached', message: expect.stringMatching(/more than 8 records/) },
    })
    expect(Object.keys(await read('tasks', 'root', 'c0'))).toEqual(['root', 'c0'])
    await send('DELETE', '/tables/notes/data/n')
    expect(await send('DELETE', '/tables/tasks/data/root')).toMatchObject({ status: 204 })
    expect(await read('tasks', 'root', 'c0')).toEqual({})
  })

  it('name the line of a long stream, which is staged', async () => {
    const { send, read } = await open(branch)
    const name = 'x'.repeat(2000)
    const linesTo = (team: string) =>
      Array.from({ length: 700 }, (_, index) =>
        JSON.stringify({ id: `l${index}`, name, team: index === 120 ? team : 't' }),
      ).join('\n')
    const path = '/tables/members/bulk'
    expect(await send('POST', path, linesTo('nobody'), ndjson)).toMatchObject({
      status: 400,
      body: { errors: [{ line: 121, ...MISSING }] },
    })
    expect(await read('members', 'l0')).toEqual({})
    expect(await send('POST', path, linesTo('t'), ndjson)).toMatchObject({ status: 200 })
    expect(await read('members', 'l699')).toMatchObject({ l699: { team: { id: 't' } } })
  })

  it('never lead to nothing, if others delete records at the same time', async () => {
    const { send, put, read } = await open(branch)
    for (let round = 0; round < 12; round++) {
      await put('teams', 'passing', {})
      await put('tasks', 'passing', {})
      const writes = [
        () => send('POST', '/tables/members/data', { id: 'p', team: 'passing' }),
        () => send('PUT', '/tables/notes/data/p', { task: 'passing' }),
        () => send('DELETE', '/tables/teams/data/passing'),
        () => send('DELETE', '/tables/tasks/data/passing'),
      ]
      const answers = await Promise.all(writes.map((write) => write()))
      for (const { status } of answers) expect([200, 201, 204, 400]).toContain(status)
      const [teams, members] = [await read('teams', 'passing'), await read('members', 'p')]
      expect(Object.keys(members).length === 0 || 'passing' in teams).toBe(true)
      const [tasks, notes] = [await read('tasks', 'passing'), await read('notes', 'p')]
      expect(Object.keys(notes).length === 0 || 'passing' in tasks).toBe(true)
      await send('DELETE', '/tables/members/data/p')
      await send('DELETE', '/tables/notes/data/p')
    }
  })

  it('with none are not looked at', async () => {
    const { put, read } = await open(branch)
    await put('notes', 'n', { about: 'nowhere' })
    expect(await read('notes', 'n')).toMatchObject({ n: {} })
  })
})

describe('the rule of a link', () => {
  it('is part of the schema, unless it is none', async () => {
    const { send } = await open('main')
    const { body } = await send('GET', '')
    const columnOf = (table: string, name: string) =>
      body.schema.tables
        .find((each: { name: string }) => each.name === table)
        .columns.find((column: Column) => column.name === name)
    expect(columnOf('members', 'team').link).toEqual({ table: 'teams', onDelete: 'restrict' })
    expect(columnOf('notes', 'about').link).toEqual({ table: 'teams' })
  })

  it('can be changed if all linked records exist', async () => {
    const { send, put } = await open('main')
    await put('notes', 'n', { about: 'nowhere' })
    await put('notes', 'o', { about: 't' })
    const path = '/tables/notes/columns/about'
    const rule = { link: { onDelete: 'restrict' } }
    const problems = [{ kind: 'link', records: 1, samples: [{ id: 'n', value: 'nowhere' }] }]
    expect(await send('PATCH', path, { ...rule, dryRun: true })).toMatchObject({
      status: 200,
      body: { column: { link: { table: 'teams', onDelete: 'restrict' } }, problems },
    })
    expect(await send('PATCH', path, rule)).toMatchObject({ status: 400, body: { problems } })
    await send('DELETE', '/tables/notes/data/n')
    expect(await send('PATCH', path, rule)).toMatchObject({ status: 200 })
    expect(await send('POST', '/tables/notes/data', { about: 'nowhere' })).toMatchObject({
      status: 400,
      body: { code: 'link_violation' },
    })
    const none = { link: { table: 'teams', onDelete: 'none' } }
    expect(await send('PATCH', path, none)).toMatchObject({ status: 200 })
    expect(await send('POST', '/tables/notes/data', { about: 'nowhere' })).toMatchObject({
      status: 201,
    })
    const other = { link: { table: 'tasks', onDelete: 'none' } }
    expect(await send('PATCH', path, other)).toMatchObject({
      status: 400,
      body: { message: expect.stringMatching(/links to table \[teams\], which cannot be changed/) },
    })
    const text = { link: { onDelete: 'restrict' } }
    expect(await send('PATCH', '/tables/teams/columns/name', text)).toMatchObject({ status: 400 })
  })

  it('is kept if a schema is sent that does not name it, and changed if it does', async () => {
    const { send } = await open('main')
    const { body } = await send('GET', '')
    const sent = {
      tables: body.schema.tables.map(
        ({ name, columns }: { name: string; columns: readonly Column[] }) => ({
          name,
          columns: columns.map((column) =>
            column.name === 'team'
              ? { ...column, link: { table: 'teams' } }
              : column.name === 'owner'
                ? { ...column, link: { table: 'members', onDelete: 'cascade' } }
                : column,
          ),
        }),
      ),
    }
    const compared = await send('POST', '/schema/compare', { schema: sent })
    expect(compared.body.edits.operations).toEqual([
      { alterColumn: { table: 'tasks', column: 'owner', link: { onDelete: 'cascade' } } },
    ])
  })
})
