import { LIMITS } from '@offshoot/contract/limits'
import { PROPOSAL_TEXT_LENGTH_MAX, PROPOSAL_TITLE_LENGTH_MAX } from '@offshoot/contract/proposals'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { deleteLostPins } from '../../packages/server/src/domain/merges/pins.js'
import { collectProposals } from '../../packages/server/src/domain/proposals/collect-proposals.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { addMember, createKey, createUser, type TestUser } from '../support/people.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

const limits = { openProposalsMax: 3, commentsPerProposalMax: 3 }

let service: TestService
/** Another process on the same PostgreSQL. */
let other: TestService
/** Maintainers of the workspace; the first user is its owner. */
let ada: TestUser
let bob: TestUser
let number = 0

beforeAll(async () => {
  service = await createTestService({ limits })
  other = await createTestService({ url: service.url, limits })
  ada = await createUser(service, 'ada')
  bob = await createUser(service, 'bob')
  await addMember(service, ada)
  await addMember(service, bob)
})
afterAll(async () => {
  await other.close()
  await service.close()
})

/** A database with the records `a`, `b` and `c` on `main`, and its fork `sale`, which has changed two of them. */
async function open(): Promise<TestBranches> {
  const branches = await TestBranches.create(service, `offer${++number}`, {
    items: [
      { name: 'name', type: 'string' },
      { name: 'price', type: 'int' },
    ],
  })
  for (const [index, id] of ['a', 'b', 'c'].entries()) {
    await branches.put('main', 'items', id, { name: id, price: index + 1 })
  }
  await branches.fork('sale')
  await branches.patch('sale', 'items', 'a', { price: 10 })
  await branches.remove('sale', 'items', 'b')
  return branches
}

interface CallOptions {
  readonly key?: string
  readonly body?: unknown
  readonly via?: TestService
}

const call = (
  branches: TestBranches,
  method: string,
  path = '',
  { key = ada.key, body, via = service }: CallOptions = {},
): Promise<Answer> =>
  via.call(method, `${service.workspace}/dbs/${branches.database}/proposals${path}`, { key, body })

const propose = async (branches: TestBranches, fields: object = {}, key = ada.key) =>
  expectOk(
    await call(branches, 'POST', '', {
      key,
      body: { from: 'sale', into: 'main', title: 'Sale', ...fields },
    }),
  ).body

const read = async (branches: TestBranches, path = '/1', key = ada.key) =>
  expectOk(await call(branches, 'GET', path, { key })).body

const approve = (branches: TestBranches, user: TestUser, body: object = {}) =>
  call(branches, 'POST', '/1/approvals', { key: user.key, body })

/** Protects `main`, which then requires approvals. */
const requireApprovals = async (branches: TestBranches, requiredApprovals = 1) =>
  expectOk(await branches.call('main', 'PATCH', '', { protected: true, requiredApprovals }))

const CHANGED = [
  {
    name: 'items',
    inserted: 0,
    updated: 1,
    deleted: 1,
    changes: [
      { change: 'updated', id: 'a', columns: { price: { from: 1, to: 10 } } },
      { change: 'deleted', id: 'b', record: { name: 'b', price: 2 } },
    ],
    cursor: 'b',
    more: false,
  },
]

describe('a proposal', () => {
  it('has a number, a state and what its branch would change', async () => {
    const branches = await open()
    const answer = await call(branches, 'POST', '', {
      body: { from: 'sale', title: 'Sale', body: 'All **prices**.' },
    })
    expect(answer.status).toBe(201)
    expect(answer.body).toEqual({
      number: 1,
      state: 'open',
      title: 'Sale',
      body: 'All **prices**.',
      from: 'sale',
      into: 'main',
      author: { id: ada.id, email: ada.email, key: expect.any(String) },
      comments: 0,
      createdAt: expect.any(String),
      revision: 1,
      changed: [],
      deleted: [],
      requiredApprovals: 0,
      approvals: 0,
      reviews: [],
    })
    expect(await read(branches)).toEqual(answer.body)
    const shown = await read(branches, '/1/diff')
    expect(shown).toMatchObject({ live: true, revision: 1, merge: { merged: false } })
    expect(shown.difference).toEqual({
      branch: 'sale',
      against: { branch: 'main', at: 'fork' },
      schema: { operations: [] },
      tables: CHANGED,
    })
  })

  it('can get another title and another text, and keeps its reviews', async () => {
    const branches = await open()
    await propose(branches, { body: 'Prices.' })
    expectOk(await approve(branches, bob))
    const change = (body: object, path = '/1') => call(branches, 'PATCH', path, { body })
    expect(expectOk(await change({ title: 'Winter' })).body).toMatchObject({
      ...{ title: 'Winter', body: 'Prices.', approvals: 1, revision: 1 },
    })
    expect(expectOk(await change({ body: '' })).body).toMatchObject({ title: 'Winter', body: '' })
    for (const body of [{}, { title: '' }, { state: 'open' }]) {
      expect([body, (await change(body)).status]).toEqual([body, 400])
    }
    expect((await change({ title: 'None' }, '/2')).body.code).toBe('proposal_not_found')
    expect(await read(branches)).toMatchObject({ title: 'Winter', body: '' })
  })

  it('shows what has changed since, on both sides, and the conflicts', async () => {
    const branches = await open()
    await propose(branches)
    await branches.patch('sale', 'items', 'c', { price: 30 })
    expect((await read(branches)).changed).toEqual(['from'])
    await branches.patch('main', 'items', 'c', { price: 31 })
    expect((await read(branches)).changed).toEqual(['from', 'into'])
    const { difference, merge } = await read(branches, '/1/diff')
    expect(difference.tables[0]).toMatchObject({ updated: 2, deleted: 1 })
    expect(merge.conflicts).toMatchObject([{ table: 'items', id: 'c' }])
    const page = await read(branches, '/1/diff?table=items&size=1&after=a')
    expect(page.difference.tables[0].changes).toMatchObject([{ id: 'b' }])
    expect(page.merge).toBeUndefined()
  })

  it('is listed by its state, newest first, in pages', async () => {
    const branches = await open()
    await branches.fork('other')
    for (const title of ['One', 'Two']) await propose(branches, { title })
    await propose(branches, { title: 'Three', from: 'other' })
    expectOk(await call(branches, 'POST', '/2/close'))
    const numbers = async (query: string) =>
      (await read(branches, query)).proposals.map((each: { number: number }) => each.number)
    expect(await numbers('')).toEqual([3, 1])
    expect(await numbers('?state=closed')).toEqual([2])
    expect(await numbers('?state=all')).toEqual([3, 2, 1])
    expect(await numbers('?state=all&from=sale')).toEqual([2, 1])
    const page = await read(branches, '?state=all&size=2')
    expect(page.meta).toEqual({ cursor: 2, more: true })
    expect(await numbers('?state=all&size=2&after=2')).toEqual([1])
  })

  it.each<[object, number, string]>([
    [{ from: 'none' }, 404, 'branch_not_found'],
    [{ into: 'none' }, 404, 'branch_not_found'],
    [{ into: 'sale' }, 400, 'invalid_request'],
    [{ from: 'main', into: undefined }, 409, 'no_source'],
    [{ title: '' }, 400, 'invalid_request'],
    [{ title: 'x'.repeat(PROPOSAL_TITLE_LENGTH_MAX + 1) }, 400, 'invalid_request'],
    [{ body: 'x'.repeat(PROPOSAL_TEXT_LENGTH_MAX + 1) }, 400, 'invalid_request'],
    [{ title: 7 }, 400, 'invalid_request'],
  ])('is refused if a field is wrong (%#)', async (fields, status, code) => {
    const branches = await open()
    const body = { from: 'sale', into: 'main', title: 'Sale', ...fields }
    const answer = await call(branches, 'POST', '', { body })
    expect([answer.status, answer.body.code]).toEqual([status, code])
    expect((await read(branches, '?state=all')).proposals).toEqual([])
  })

  it('of branches without a common ancestor is refused', async () => {
    const branches = await open()
    await branches.fork('empty', 'main', { data: false })
    const body = { from: 'empty', into: 'main', title: 'Empty' }
    const answer = await call(branches, 'POST', '', { body })
    expect([answer.status, answer.body.code]).toEqual([409, 'unrelated_branches'])
  })

  it('can have texts of the greatest length', async () => {
    const branches = await open()
    const title = 'x'.repeat(PROPOSAL_TITLE_LENGTH_MAX)
    const body = 'y'.repeat(PROPOSAL_TEXT_LENGTH_MAX)
    expect(await propose(branches, { title, body })).toMatchObject({ title, body })
  })

  it('is refused if a database has as many open ones as it can have, and numbers are never used again', async () => {
    const branches = await open()
    for (let count = 0; count < limits.openProposalsMax; count++) await propose(branches)
    const body = { from: 'sale', title: 'More' }
    const answer = await call(branches, 'POST', '', { body })
    expect([answer.status, answer.body.code]).toEqual([422, 'limit_reached'])
    expectOk(await call(branches, 'POST', '/3/close'))
    expect((await propose(branches)).number).toBe(4)
    const reopened = await call(branches, 'POST', '/3/reopen')
    expect([reopened.status, reopened.body.code]).toEqual([422, 'limit_reached'])
  })

  it('that does not exist is not found', async () => {
    const branches = await open()
    for (const path of ['/1', '/1/diff', '/1/comments', '/2147483647']) {
      const answer = await call(branches, 'GET', path)
      expect([answer.status, answer.body.code]).toEqual([404, 'proposal_not_found'])
    }
    for (const path of ['/0', '/x', '/2147483648']) {
      expect((await call(branches, 'GET', path)).status).toBe(400)
    }
  })
})

describe('a merge of a proposal', () => {
  it('merges the branch, and keeps the difference readable', async () => {
    const branches = await open()
    await propose(branches)
    await branches.patch('sale', 'items', 'c', { price: 30 })
    const merged = expectOk(await call(branches, 'POST', '/1/merge', { body: {} })).body
    expect(merged).toMatchObject({ merged: true, from: 'sale', into: 'main' })
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ price: 10 })
    const proposal = await read(branches)
    expect(proposal).toMatchObject({ state: 'merged', endedBy: ada.id, entry: merged.entry })
    const shown = await read(branches, '/1/diff')
    expect(shown).toMatchObject({ live: false, revision: 2 })
    expect(shown.difference.tables[0]).toMatchObject({ updated: 2, deleted: 1 })
    await branches.patch('main', 'items', 'a', { price: 99 })
    await branches.reset('sale')
    await branches.delete('sale')
    await runBackground(service)
    await runBackground(service)
    expect(await read(branches, '/1/diff')).toEqual({ ...shown, merge: undefined })
    expect((await read(branches)).deleted).toEqual(['from'])
  })

  it('is done once, if two requests come at once', async () => {
    const branches = await open()
    await propose(branches)
    const answers = await Promise.all(
      [service, other].map((via) => call(branches, 'POST', '/1/merge', { via })),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
    expect(answers.find(({ status }) => status === 409)?.body).toMatchObject({
      code: 'conflict',
      message: 'proposal [1]: is merged',
    })
  })

  it('takes the options of a merge', async () => {
    const branches = await open()
    await propose(branches)
    await branches.patch('main', 'items', 'a', { price: 11 })
    const tried = expectOk(await call(branches, 'POST', '/1/merge', { body: { dryRun: true } }))
    expect(tried.body).toMatchObject({ merged: false, conflictCount: 1 })
    const refused = await call(branches, 'POST', '/1/merge', { body: {} })
    expect([refused.status, refused.body.code]).toEqual([409, 'merge_conflict'])
    expect((await read(branches)).state).toBe('open')
    expectOk(await call(branches, 'POST', '/1/merge', { body: { strategy: 'theirs' } }))
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ price: 10 })
  })

  it('of a branch that was merged by itself marks the proposal as merged', async () => {
    const branches = await open()
    await propose(branches)
    await branches.merge('sale')
    const answer = expectOk(await call(branches, 'POST', '/1/merge', { body: {} }))
    expect(answer.body.merged).toBe(false)
    expect((await read(branches)).state).toBe('merged')
  })

  it('goes on while both branches are written', async () => {
    const branches = await open()
    await propose(branches)
    let isDone = false
    const writing = (async () => {
      for (let count = 0; !isDone; count++) {
        await branches.put('main', 'items', `m${count}`, { price: count })
        await branches.put('sale', 'items', `s${count}`, { price: count })
      }
    })()
    const answer = await call(branches, 'POST', '/1/merge', { body: {} })
    isDone = true
    await writing
    expect(expectOk(answer).body.merged).toBe(true)
  })

  it('is refused if a branch was deleted, also if there is a new one of that name', async () => {
    const branches = await open()
    await propose(branches)
    await branches.delete('sale')
    const refused = await call(branches, 'POST', '/1/merge', { body: {} })
    expect([refused.status, refused.body.code]).toEqual([404, 'branch_not_found'])
    await branches.fork('sale')
    expect((await call(branches, 'POST', '/1/merge', { body: {} })).status).toBe(404)
    expect((await call(branches, 'POST', '/1/approvals', { key: bob.key, body: {} })).status).toBe(
      404,
    )
    const shown = await read(branches, '/1/diff')
    expect(shown).toMatchObject({ live: false, difference: { tables: CHANGED } })
  })

  it('of a large branch needs no lock of it', async () => {
    const branches = await open()
    const records = Array.from({ length: LIMITS.mergeLockedRowsMax + 1 }, (_, index) => ({
      id: `r${index}`,
      price: index,
    }))
    await branches.bulk('sale', 'items', records)
    await propose(branches)
    await requireApprovals(branches)
    expectOk(await approve(branches, bob))
    expectOk(await call(branches, 'POST', '/1/merge', { body: {} }))
    expect((await read(branches, '/1/diff?size=0')).difference.tables[0]).toMatchObject({
      inserted: records.length,
    })
  })
})

describe('a proposal that was closed', () => {
  it('keeps its difference, and can be opened again', async () => {
    const branches = await open()
    await propose(branches)
    const closed = expectOk(await call(branches, 'POST', '/1/close')).body
    expect(closed).toMatchObject({ state: 'closed', endedBy: ada.id, endedAt: expect.any(String) })
    await branches.patch('sale', 'items', 'c', { price: 30 })
    expect(await read(branches, '/1/diff')).toMatchObject({
      live: false,
      difference: { tables: CHANGED },
    })
    for (const path of ['/1/close', '/1/merge', '/1/approvals']) {
      const answer = await call(branches, 'POST', path, { key: bob.key })
      expect([path, answer.status, answer.body.code]).toEqual([path, 409, 'conflict'])
    }
    const again = expectOk(await call(branches, 'POST', '/1/reopen')).body
    expect(again).toMatchObject({ state: 'open', changed: ['from'] })
    expect(again.endedAt).toBeUndefined()
    expect((await call(branches, 'POST', '/1/reopen')).body.code).toBe('conflict')
  })
})

describe('comments', () => {
  it('are about the whole, a table, a record or a cell, and are listed oldest first in pages', async () => {
    const branches = await open()
    await propose(branches)
    const places = [
      {},
      { table: 'items' },
      { table: 'items', record: 'a', column: 'price' },
    ] as const
    for (const place of places) {
      const answer = await call(branches, 'POST', '/1/comments', {
        key: bob.key,
        body: { body: 'Why?', ...place },
      })
      expect(answer.status).toBe(201)
      expect(answer.body).toEqual({
        id: expect.stringMatching(/^com_/),
        by: { id: bob.id, email: bob.email, key: expect.any(String) },
        body: 'Why?',
        ...place,
        revision: 1,
        createdAt: expect.any(String),
      })
    }
    const { comments } = await read(branches, '/1/comments')
    expect(comments).toHaveLength(3)
    const page = await read(branches, '/1/comments?size=2')
    expect(page).toEqual({
      comments: comments.slice(0, 2),
      meta: { cursor: comments[1].id, more: true },
    })
    expect((await read(branches, `/1/comments?after=${page.meta.cursor}`)).comments).toEqual(
      comments.slice(2),
    )
    expect((await read(branches)).comments).toBe(3)
    // One more than a proposal can have.
    const refused = await call(branches, 'POST', '/1/comments', { body: { body: 'More' } })
    expect([refused.status, refused.body.code]).toEqual([422, 'limit_reached'])
  })

  it.each([
    { body: '' },
    { body: 'x'.repeat(PROPOSAL_TEXT_LENGTH_MAX + 1) },
    { body: 'x', record: 'a' },
    { body: 'x', table: 'items', column: 'price' },
    { body: 'x', author: 'me' },
  ])('are refused if a field is wrong (%#)', async (body) => {
    const branches = await open()
    await propose(branches)
    const answer = await call(branches, 'POST', '/1/comments', { body })
    expect([answer.status, answer.body.code]).toEqual([400, 'invalid_request'])
    expect((await read(branches)).comments).toBe(0)
    expect((await call(branches, 'GET', '/1/comments?after=none')).status).toBe(400)
  })
})

describe('a review', () => {
  it('approves, or requests changes, can be replaced and withdrawn', async () => {
    const branches = await open()
    await propose(branches)
    const approved = expectOk(await approve(branches, bob, { body: 'Fine.' })).body
    expect(approved).toMatchObject({ approvals: 1 })
    expect(approved.reviews).toEqual([
      {
        by: { id: bob.id, email: bob.email, key: expect.any(String) },
        verdict: 'approve',
        body: 'Fine.',
        revision: 1,
        stale: false,
        createdAt: expect.any(String),
      },
    ])
    const replaced = expectOk(await approve(branches, bob, { verdict: 'requestChanges' })).body
    expect(replaced).toMatchObject({ approvals: 0, reviews: [{ verdict: 'requestChanges' }] })
    const key = { key: bob.key }
    expect(expectOk(await call(branches, 'DELETE', '/1/approvals', key)).body.reviews).toEqual([])
    expect((await call(branches, 'DELETE', '/1/approvals', key)).body.code).toBe('conflict')
  })

  it('is stale once one of the branches changes, by a write, a schema edit or a reset', async () => {
    const changes: ((branches: TestBranches) => Promise<unknown>)[] = [
      (branches) => branches.patch('sale', 'items', 'c', { price: 30 }),
      (branches) => branches.patch('main', 'items', 'c', { price: 30 }),
      (branches) => branches.remove('main', 'items', 'c'),
      (branches) => branches.edit('sale', { addTable: { table: 'notes' } }),
      (branches) => branches.reset('sale'),
      (branches) => branches.pull('sale'),
    ]
    for (const [index, change] of changes.entries()) {
      const branches = await open()
      await branches.put('main', 'items', 'd', { price: 4 })
      await propose(branches)
      expectOk(await approve(branches, bob))
      await change(branches)
      const stale = await read(branches)
      expect([index, stale.approvals, stale.reviews[0].stale]).toEqual([index, 0, true])
      // A new approval is of the new state.
      const again = expectOk(await approve(branches, bob)).body
      expect(again).toMatchObject({ revision: 2, approvals: 1, reviews: [{ stale: false }] })
    }
  })

  it('of a revision is refused if the branches have changed since', async () => {
    const branches = await open()
    await propose(branches)
    await branches.patch('sale', 'items', 'c', { price: 30 })
    const refused = await approve(branches, bob, { revision: 1 })
    expect([refused.status, refused.body.code]).toEqual([409, 'conflict'])
    expect(refused.body.message).toContain('review revision [2]')
    expect((await read(branches)).reviews).toEqual([])
    expectOk(await approve(branches, bob, { revision: 2 }))
  })

  it('of the author is refused, with any key', async () => {
    const branches = await open()
    await propose(branches)
    const second = await createKey(service, `second${number}`, { key: ada.key })
    for (const key of [ada.key, second]) {
      const answer = await call(branches, 'POST', '/1/approvals', { key, body: {} })
      expect([answer.status, answer.body.code]).toEqual([403, 'forbidden'])
    }
  })
})

describe('a branch that requires approvals', () => {
  it('changes by an approved proposal alone', async () => {
    const branches = await open()
    await branches.fork('next')
    await requireApprovals(branches)
    expect(expectOk(await branches.call('main', 'GET', '')).body.requiredApprovals).toBe(1)
    const data = '/tables/items/data'
    const writes: [string, string, unknown?][] = [
      ['POST', data, { price: 1 }],
      ['PUT', `${data}/x`, { price: 1 }],
      ['PATCH', `${data}/a`, { price: 1 }],
      ['DELETE', `${data}/a`],
      ['POST', '/tables/items/bulk', { records: [{ price: 1 }] }],
      ['POST', '/transaction', { operations: [{ delete: { table: 'items', id: 'a' } }] }],
      ['PATCH', data, { all: true, set: { price: 1 } }],
      ['DELETE', data, { all: true }],
      ['POST', '/sql', { statement: 'delete from items' }],
      ['POST', '/sql', { statement: 'create table notes (id text)' }],
      ['POST', '/pull', { from: 'sale' }],
      ['POST', '/reset', { to: 'sale' }],
    ]
    for (const [method, path, body] of writes) {
      const answer = await branches.call('main', method, path, body)
      expect([method, path, answer.status, answer.body.code]).toEqual([
        method,
        path,
        409,
        'approvals_required',
      ])
      expect(answer.body.message).toContain('[requiredApprovals]')
    }
    const merging = await branches.merging('sale', { into: 'main' })
    expect([merging.status, merging.body.code]).toEqual([409, 'approvals_required'])
    const edit = { operations: [{ addTable: { table: 'notes' } }] }
    const editing = await branches.call('main', 'POST', '/schema/update', edit)
    expect([editing.status, editing.body.code]).toEqual([409, 'protected_branch'])
    // Reads, dry runs, forks and merges into other branches go on.
    expectOk(await branches.merging('sale', { into: 'main', dryRun: true }))
    expectOk(await branches.call('main', 'POST', '/sql', { statement: 'select * from items' }))
    expectOk(await branches.merging('main', { into: 'next' }))
    await propose(branches)
    const early = await call(branches, 'POST', '/1/merge', { body: {} })
    expect([early.status, early.body.code]).toEqual([409, 'approvals_required'])
    expect(early.body.message).toContain('it has 0 of 1')
    expectOk(await approve(branches, bob))
    expectOk(await call(branches, 'POST', '/1/merge', { body: {} }))
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ price: 10 })
  })

  it('is not changed by what was written after the approval', async () => {
    const branches = await open()
    await requireApprovals(branches)
    await propose(branches)
    expectOk(await approve(branches, bob))
    await branches.patch('sale', 'items', 'c', { price: 666 })
    const refused = await call(branches, 'POST', '/1/merge', { body: {} })
    expect(refused.body.code).toBe('approvals_required')
    expect(refused.body.message).toContain('stale, because [sale] changed since')
    await branches.patch('sale', 'items', 'c', { price: 3 })
    expect((await call(branches, 'POST', '/1/merge', { body: {} })).status).toBe(409)
    expect(await branches.record('main', 'items', 'c')).toMatchObject({ price: 3 })
  })

  it('makes approvals stale when another proposal is merged', async () => {
    const branches = await open()
    await branches.fork('other')
    await branches.patch('other', 'items', 'c', { price: 30 })
    await requireApprovals(branches)
    await propose(branches)
    await propose(branches, { from: 'other' })
    expectOk(await approve(branches, bob))
    expectOk(await call(branches, 'POST', '/2/approvals', { key: bob.key, body: {} }))
    expectOk(await call(branches, 'POST', '/2/merge', { body: {} }))
    const refused = await call(branches, 'POST', '/1/merge', { body: {} })
    expect(refused.body.message).toContain('[main] changed since')
    expectOk(await approve(branches, bob))
    expectOk(await call(branches, 'POST', '/1/merge', { body: {} }))
  })

  it('counts each reviewer once, and nobody may have requested changes', async () => {
    const branches = await open()
    await requireApprovals(branches, 2)
    await propose(branches)
    expectOk(await approve(branches, bob))
    expectOk(await approve(branches, bob))
    const merge = () => call(branches, 'POST', '/1/merge', { body: {} })
    expect((await merge()).body.message).toContain('it has 1 of 2')
    const owner = { key: service.key, body: { verdict: 'requestChanges' } }
    expectOk(await call(branches, 'POST', '/1/approvals', owner))
    expect((await merge()).body.message).toContain('requested changes')
    expectOk(await call(branches, 'POST', '/1/approvals', { key: service.key, body: {} }))
    expectOk(await merge())
  })

  it('does not count users who have left the workspace', async () => {
    const branches = await open()
    const eve = await createUser(service, `eve${number}`)
    await addMember(service, eve)
    await requireApprovals(branches)
    await propose(branches)
    expectOk(await approve(branches, eve))
    const member = `/workspaces/${service.workspaceId}/members/${eve.id}`
    expectOk(await service.call('DELETE', member))
    const refused = await call(branches, 'POST', '/1/merge', { body: {} })
    expect(refused.body.message).toContain('it has 0 of 1')
  })

  it('is not merged with options that nobody has reviewed', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 11 })
    await requireApprovals(branches)
    await propose(branches)
    expectOk(await approve(branches, bob))
    const { merge } = await read(branches, '/1/diff')
    const [{ table, id, token }] = merge.conflicts
    for (const body of [
      { strategy: 'theirs' },
      { tables: { items: { mode: 'skip' } } },
      { resolutions: [{ table, id, token, take: 'theirs' }] },
    ]) {
      const answer = await call(branches, 'POST', '/1/merge', { body })
      expect([answer.status, answer.body.code]).toEqual([409, 'approvals_required'])
    }
  })

  it('takes no uploads by links', async () => {
    const branches = await TestBranches.create(service, `offer${++number}`, {
      people: [{ name: 'photo', type: 'file' }],
    })
    await branches.put('main', 'people', 'a', { photo: { name: 'a.bin' } })
    const path = '/tables/people/data/a?columns=photo.uploadUrl'
    const { photo } = expectOk(await branches.call('main', 'GET', path)).body
    await requireApprovals(branches)
    const { pathname, search } = new URL(photo.uploadUrl)
    const answer = await other.app.inject({
      method: 'PUT',
      url: `${pathname}${search}`,
      headers: { 'content-type': 'application/octet-stream' },
      payload: Buffer.from('x'),
    })
    expect([answer.statusCode, answer.json().code]).toEqual([409, 'approvals_required'])
    const column = '/tables/people/data/a/column/photo/file'
    const upload = await branches.call('main', 'DELETE', column)
    expect([upload.status, upload.body.code]).toEqual([409, 'approvals_required'])
    const again = expectOk(await branches.call('main', 'GET', path)).body
    expect(again.photo.uploadUrl).toBeUndefined()
  })

  it('is noticed by other processes at once', async () => {
    const branches = await open()
    const there = branches.through(other)
    await there.patch('main', 'items', 'a', { price: 5 })
    await requireApprovals(branches)
    const answer = await there.call('main', 'PATCH', '/tables/items/data/a', { price: 6 })
    expect(answer.body.code).toBe('approvals_required')
    expectOk(await branches.call('main', 'PATCH', '', { requiredApprovals: 0 }))
    await there.patch('main', 'items', 'a', { price: 7 })
  })

  it('is protected, and only an owner can lower the number', async () => {
    const branches = await open()
    const change = (body: object, key = service.key) =>
      service.call('PATCH', `${service.workspace}/db/${branches.database}:main`, { key, body })
    expect((await change({ requiredApprovals: 1 })).body).toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining('[requiredApprovals]'),
    })
    for (const requiredApprovals of [-1, 11, 1.5, '1']) {
      expect((await change({ protected: true, requiredApprovals })).status).toBe(400)
    }
    expectOk(await change({ protected: true, requiredApprovals: 10 }, ada.key))
    for (const body of [{ requiredApprovals: 9 }, { protected: false }]) {
      const answer = await change(body, ada.key)
      expect([answer.status, answer.body.code]).toEqual([403, 'forbidden'])
    }
    const fields = { scope: { databases: [branches.database], branches: ['main'] } }
    const narrow = await createKey(service, `narrow${number}`, { fields })
    expect((await change({ requiredApprovals: 0 }, narrow)).body.code).toBe('key_scope')
    const opened = expectOk(await change({ protected: false })).body
    expect(opened.requiredApprovals).toBeUndefined()
  })

  it('can be set by a rule', async () => {
    const branches = await open()
    const rules = (body: object) =>
      service.call('PUT', `${service.workspace}/dbs/${branches.database}/branchRules`, { body })
    const refused = await rules({ rules: [{ pattern: 'release-*', requiredApprovals: 1 }] })
    expect([refused.status, refused.body.code]).toEqual([400, 'invalid_request'])
    const rule = { pattern: 'release-*', protected: true, requiredApprovals: 2 }
    expectOk(await rules({ rules: [rule] }))
    await branches.fork('release-1')
    const made = expectOk(await branches.call('release-1', 'GET', '')).body
    expect(made).toMatchObject({ protected: true, requiredApprovals: 2 })
    const write = await branches.call('release-1', 'DELETE', '/tables/items/data/a')
    expect(write.body.code).toBe('approvals_required')
    await branches.fork('release-2', 'main', { protected: false })
    await branches.patch('release-2', 'items', 'a', { price: 2 })
  })
})

describe('a key with a scope', () => {
  it('that does not reach the target can propose and comment, and sees its own branches alone', async () => {
    const branches = await open()
    await branches.fork('secret')
    await propose(branches, { from: 'secret', title: 'Secret' })
    const fields = { scope: { databases: [branches.database], branches: ['sale'] } }
    const key = await createKey(service, `agent${number}`, { fields, key: ada.key })
    const made = await propose(branches, {}, key)
    expect(made).toMatchObject({ number: 2, from: 'sale' })
    expect(made.into).toBeUndefined()
    const shown = await read(branches, '/2/diff', key)
    expect(shown).toMatchObject({ difference: { tables: CHANGED } })
    expect(shown.difference.against.branch).toBeUndefined()
    expect(shown.merge).toBeUndefined()
    expectOk(await call(branches, 'POST', '/2/comments', { key, body: { body: 'Please.' } }))
    const listed = (await read(branches, '', key)).proposals
    expect(listed.map((each: { number: number }) => each.number)).toEqual([2])
    for (const path of ['/1', '/1/diff', '/1/comments']) {
      expect((await call(branches, 'GET', path, { key })).body.code).toBe('proposal_not_found')
    }
    for (const path of ['/1/close', '/1/merge', '/1/approvals']) {
      expect((await call(branches, 'POST', path, { key })).body.code).toBe('proposal_not_found')
    }
    for (const path of ['/2/merge', '/2/approvals']) {
      const answer = await call(branches, 'POST', path, { key })
      expect([path, answer.status, answer.body.code]).toEqual([path, 403, 'key_scope'])
    }
    // It can change the text of its own proposal, and of no other.
    expectOk(await call(branches, 'PATCH', '/2', { key, body: { title: 'Mine' } }))
    await propose(branches, { title: 'Of another' }, bob.key)
    const edited = await call(branches, 'PATCH', '/3', { key, body: { title: 'Mine' } })
    expect([edited.status, edited.body.code]).toEqual([403, 'key_scope'])
    expectOk(await call(branches, 'PATCH', '/2', { key: bob.key, body: { title: 'Reviewed' } }))
    // Neither an existing branch nor a missing one can be named.
    for (const into of ['secret', 'none']) {
      const answer = await call(branches, 'POST', '', {
        key,
        body: { from: 'sale', into, title: 'x' },
      })
      expect([answer.status, answer.body.message]).toEqual([404, `branch [${into}] not found`])
    }
  })

  it('that can only read changes nothing', async () => {
    const branches = await open()
    await propose(branches)
    const key = await createKey(service, `reader${number}`, {
      fields: { scope: { access: 'read' } },
    })
    await read(branches, '/1', key)
    expect((await read(branches, '/1/diff', key)).merge).toBeUndefined()
    const bodies: [string, unknown?][] = [
      ['', { from: 'sale', title: 'x' }],
      ['/1/comments', { body: 'x' }],
      ['/1/approvals'],
      ['/1/merge'],
      ['/1/close'],
      ['/1/reopen'],
    ]
    for (const [path, body] of bodies) {
      const answer = await call(branches, 'POST', path, { key, body })
      expect([path, answer.status, answer.body.code]).toEqual([path, 403, 'key_scope'])
    }
    expect((await call(branches, 'DELETE', '/1/approvals', { key })).status).toBe(403)
  })
})

describe('the storage of proposals', () => {
  const countPins = async ({ database }: TestBranches): Promise<number> => {
    const [row] = await service.database.query<{ count: number }>(sql`
      select count(*)::integer as count
      from offshoot.branches b
      join offshoot.databases d on d.id = b.database_id
      where d.name = ${database} and b.deleted_at is not null`)
    return row?.count ?? 0
  }

  it('has two states of each proposal, however often it is reviewed', async () => {
    const branches = await open()
    await propose(branches)
    const before = await countPins(branches)
    for (let count = 0; count < 4; count++) {
      await branches.patch('sale', 'items', 'c', { price: 100 + count })
      expectOk(await approve(branches, bob))
    }
    expect((await read(branches)).revision).toBe(5)
    expect(await countPins(branches)).toBe(before)
  })

  it('is collected with merged and closed proposals, and open ones stay', async () => {
    const branches = await open()
    await branches.call('main', 'PATCH', '', { checkpoints: null })
    const before = await countPins(branches)
    await propose(branches)
    await propose(branches)
    await propose(branches)
    expectOk(await call(branches, 'POST', '/1/close'))
    expectOk(await call(branches, 'POST', '/2/close'))
    expect(await countPins(branches)).toBe(before + 6)
    await service.database.query(sql`
      update offshoot.branches set deleted_at = deleted_at - interval '1 day' where deleted_at is not null`)
    const [row] = await service.database.query<{ id: string }>(sql`
      select id::text as id from offshoot.databases where name = ${branches.database}`)
    await deleteLostPins(service.database, row?.id ?? '')
    expect(await countPins(branches)).toBe(before + 6)
    await collectProposals(service.database, { days: 1, endedMax: 1 })
    expect(await countPins(branches)).toBe(before + 4)
    expect((await call(branches, 'GET', '/1')).body.code).toBe('proposal_not_found')
    await collectProposals(service.database, { days: 0, endedMax: 1 })
    expect(await countPins(branches)).toBe(before + 2)
    expect((await read(branches, '?state=all')).proposals).toHaveLength(1)
    expect((await propose(branches)).number).toBe(4)
  })

  it('goes with its database, and stays with a renamed one', async () => {
    const branches = await open()
    await propose(branches)
    const url = `/workspaces/${service.workspaceId}/dbs`
    const newName = `${branches.database}-new`
    expectOk(
      await service.call('POST', `${url}/${branches.database}/rename`, { body: { newName } }),
    )
    const path = `${service.workspace}/dbs/${newName}/proposals/1`
    expectOk(await service.call('GET', `${path}/diff`))
    expectOk(await service.call('POST', `${path}/merge`, { body: {} }))
    expectOk(await service.call('DELETE', `${url}/${newName}`))
    await runBackground(service)
    const [row] = await service.database.query<{ count: number }>(sql`
      select count(*)::integer as count
      from offshoot.proposals
      where not exists (select from offshoot.databases d where d.id = database_id)`)
    expect(row?.count).toBe(0)
  })
})

describe('the log', () => {
  it('of the target has what happened to its proposals', async () => {
    const branches = await open()
    await propose(branches)
    expectOk(await approve(branches, bob))
    expectOk(await call(branches, 'POST', '/1/merge', { body: {} }))
    const { entries } = expectOk(await branches.call('main', 'GET', '/log?kind=proposal')).body
    expect(entries).toMatchObject([
      { action: 'merged', proposal: 1, user: ada.id, from: 'sale' },
      { action: 'approved', proposal: 1, user: bob.id },
      { action: 'opened', proposal: 1, user: ada.id, requestId: expect.any(String) },
    ])
    const audit = expectOk(
      await service.call('GET', `/workspaces/${service.workspaceId}/audit?kind=proposal&size=3`),
    ).body
    expect(audit.entries).toMatchObject([{ action: 'merged' }, { action: 'approved' }, {}])
  })
})
