import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import type { Answer } from '../support/service.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import { openWire, type WireService } from '../support/wire-clients.js'

/*
 * PostgreSQL can fail to evaluate a check or a computed column for a record, such as by a division by zero. It does not say
 * for which record.
 */

let service: TestService
let wire: WireService
let number = 0
beforeAll(async () => {
  service = await createTestService({ limits: { automaticCheckpointsMax: 20 } })
  wire = await openWire(service)
})
afterAll(async () => {
  await wire.close()
  await service.close()
})

const NUMBER: Column = { name: 'n', type: 'int' }
/** For every value that the tests write, this constraint can be evaluated, and is kept. */
const KEPT = { name: 'kept', check: 'n < 1000' }

interface RuleCase {
  readonly name: string
  readonly rule: { readonly check: string } | Column
  /** Whether the table has other checks, so that the one that fails must be found. */
  readonly hasOthers: boolean
  readonly code: Readonly<Record<string, unknown>>
  readonly message: string
}

const CHECK = { code: 'check_violation', table: 'items', columns: ['n'], constraint: 'rule' }
const COMPUTED = { code: 'check_violation', table: 'items', column: 'r' }
const CASES: readonly RuleCase[] = [false, true].flatMap((hasOthers) => [
  {
    name: hasOthers ? 'one of several checks' : 'a check',
    rule: { check: '10 / n > 0' },
    hasOthers,
    code: CHECK,
    message: 'constraint [rule]: column [n]: the check cannot be evaluated for these values',
  },
  {
    name: hasOthers ? 'a computed column beside checks' : 'a computed column',
    rule: { name: 'r', type: 'int', computed: '10 / n' },
    hasOthers,
    code: COMPUTED,
    message: 'column [r]: is computed, and cannot be calculated of these values',
  },
])

async function open({ rule, hasOthers }: RuleCase): Promise<TestBranches> {
  const branches = await TestBranches.create(service, `unevaluated${++number}`, { items: [NUMBER] })
  const constrain = (name: string, check: string) =>
    branches.call('main', 'PUT', `/tables/items/constraints/${name}`, { check })
  if (hasOthers) expectOk(await constrain(KEPT.name, KEPT.check))
  if ('check' in rule) expectOk(await constrain('rule', rule.check))
  else await branches.edit('main', { addColumn: { table: 'items', column: rule } })
  if (hasOthers) expectOk(await constrain('late', 'n > -1000'))
  await branches.put('main', 'items', 'a', { n: 1 })
  await branches.put('main', 'items', 'b', { n: 2 })
  await branches.fork('dev')
  await branches.put('dev', 'items', 'a', { n: 1 })
  return branches
}

const NDJSON = { headers: { 'content-type': 'application/x-ndjson' } }

describe.each(CASES)('$name that cannot be evaluated', (rule) => {
  describe.each(['main', 'dev'])('on %s', (branch) => {
    let branches: TestBranches
    beforeAll(async () => {
      branches = await open(rule)
    })
    const call = (...args: [string, string, unknown?, object?]): Promise<Answer> =>
      branches.call(branch, ...args)
    const { code, message } = rule
    const fault = { ...code, message: expect.stringContaining(message) }
    const refused = (record: unknown) => ({ status: 400, body: { ...fault, record } })
    const unchanged = async () =>
      expect(await branches.read(branch, 'items', ['a', 'b', 'q', 'x'])).toMatchObject({
        a: { n: 1 },
        b: { n: 2 },
      })

    it('refuses a record', async () => {
      const zero = { n: 0 }
      expect(await call('POST', '/tables/items/data', { id: 'q', ...zero })).toMatchObject(
        refused('q'),
      )
      for (const id of ['x', 'a']) {
        expect(await call('PUT', `/tables/items/data/${id}`, zero)).toMatchObject(refused(id))
        expect(await call('POST', `/tables/items/data/${id}`, zero)).toMatchObject(refused(id))
      }
      expect(await call('PATCH', '/tables/items/data/a', zero)).toMatchObject(refused('a'))
      const less = { n: { $decrement: 1 } }
      expect(await call('PATCH', '/tables/items/data/a', less)).toMatchObject(refused('a'))
      await unchanged()
    })

    it('refuses records of a bulk insert', async () => {
      const records = [{ n: 1 }, { id: 'q', n: 0 }, { n: 3 }, { n: 0 }]
      expect(await call('POST', '/tables/items/bulk', { records })).toMatchObject({
        status: 400,
        body: {
          code: 'check_violation',
          message: '2 records are invalid; nothing was inserted',
          errors: [
            { index: 1, ...fault },
            { index: 3, ...fault },
          ],
        },
      })
      await unchanged()
    })

    it('refuses records of an upsert', async () => {
      const records = [
        { id: 'a', n: 1 },
        { id: 'b', n: 0 },
        { id: 'q', n: 0 },
      ]
      const { body } = expectOk(await call('POST', '/tables/items/upsert', { records }))
      expect(body.results).toMatchObject([
        { id: 'a', outcome: 'unchanged' },
        { id: 'b', outcome: 'failed', error: fault },
        { id: 'q', outcome: 'failed', error: fault },
      ])
      await unchanged()
    })

    it.each(['', '?existing=skip', '?existing=replace'])(
      'refuses a line of a stream%s',
      async (query) => {
        const lines = '{"n":1}\n{"id":"q","n":0}\n{"n":3}\n'
        const answer = await call('POST', `/tables/items/bulk${query}`, lines, NDJSON)
        expect(answer).toMatchObject({
          status: 400,
          body: { code: 'check_violation', errors: [{ line: 2, ...fault }] },
        })
        await unchanged()
      },
    )

    it('refuses a line of a stream that is stored in parts', async () => {
      const lines = '{"id":"q","n":0}\n{"n":0}\n'
      const answer = await call('POST', '/tables/items/bulk?mode=partial', lines, NDJSON)
      expect(answer).toMatchObject({
        status: 200,
        body: {
          inserted: 0,
          errors: [
            { line: 1, ...fault },
            { line: 2, ...fault },
          ],
        },
      })
      await unchanged()
    })

    it('refuses an operation of a transaction', async () => {
      const insert = { insert: { table: 'items', record: { id: 'q', n: 1 } } }
      const update = (fields: unknown) => ({ update: { table: 'items', id: 'q', fields } })
      for (const fields of [{ n: 0 }, { n: { $decrement: 1 } }]) {
        const operations = [insert, update(fields)]
        expect(await call('POST', '/transaction', { operations })).toMatchObject({
          status: 400,
          body: { code: 'transaction_failed', errors: [{ index: 1, ...fault }] },
        })
      }
      await unchanged()
      // The records are judged when the transaction ends.
      const operations = [insert, update({ n: 0 }), update({ n: 4 })]
      expectOk(await call('POST', '/transaction', { operations }))
      const last = [...operations, update({ n: 0 })].slice(1)
      expect(await call('POST', '/transaction', { operations: last })).toMatchObject({
        status: 400,
        body: { code: 'transaction_failed', errors: [{ index: 2, ...fault }] },
      })
      await branches.remove(branch, 'items', 'q')
      await unchanged()
    })

    it('refuses a change of a set', async () => {
      for (const [n, record] of [
        [0, 'a'],
        [{ $decrement: 2 }, 'b'],
      ]) {
        const body = { set: { n }, filter: { id: record } }
        const answer = await call('PATCH', '/tables/items/data', body)
        expect(answer).toMatchObject(refused(record))
      }
      await unchanged()
    })

    it('refuses a statement of SQL', async () => {
      for (const [statement, record] of [
        ["insert into items (id, n) values ('k', 1), ('l', 0)", 'l'],
        ["update items set n = n - 2 where id = 'b'", 'b'],
        [
          "insert into items (id, n) values ('b', 0) on conflict (id) do update set n = excluded.n",
          'b',
        ],
      ]) {
        expect(await call('POST', '/sql', { statement })).toMatchObject(refused(record))
      }
      await unchanged()
    })

    it('refuses a batch of SQL if its last statement leaves such a record', async () => {
      const batch = (...statements: readonly string[]) =>
        call('POST', '/sql/batch', { statements: statements.map((statement) => ({ statement })) })
      const [insert, repair] = [
        "insert into items (id, n) values ('q', 0)",
        "update items set n = 3 where id = 'q'",
      ]
      expect(await batch("delete from items where id = 'none'", insert)).toMatchObject(refused('q'))
      await unchanged()
      // The records are judged when the transaction ends.
      expectOk(await batch(insert, repair))
      await branches.remove(branch, 'items', 'q')
      await unchanged()
    })

    it('refuses statements of a connection', async () => {
      const client = await wire.connect(`${branches.database}:${branch}`)
      const failure = { code: '23514', table: 'items', message: expect.stringContaining(message) }
      await expect(client.query("insert into items (id, n) values ('q', 0)")).rejects.toMatchObject(
        failure,
      )
      await expect(client.query("update items set n = 0 where id = 'a'")).rejects.toMatchObject(
        failure,
      )
      await client.end()
      await unchanged()
    })
  })
})

describe('a check that cannot be evaluated', () => {
  it('refuses a line of a long stream', async () => {
    const [, , several] = CASES
    if (several === undefined) throw new Error('a case with several checks must exist')
    const branches = await open(several)
    // The values of rows that a stream holds are limited, so wide rows are written in more than one part.
    const columns = Array.from({ length: 40 }, (_, index) => ({ name: `c${index}`, type: 'int' }))
    await branches.edit(
      'dev',
      ...columns.map((column) => ({ addColumn: { table: 'items', column: column as Column } })),
    )
    const count = 12_500
    const bad = 10_123
    const lines = Array.from({ length: count }, (_, index) => `{"n":${index + 1 === bad ? 0 : 7}}`)
    const answer = await branches.call(
      'dev',
      'POST',
      '/tables/items/bulk',
      `${lines.join('\n')}\n`,
      NDJSON,
    )
    const { message } = several
    expect(answer).toMatchObject({
      status: 400,
      body: { errors: [{ line: bad, ...CHECK, message: expect.stringContaining(message) }] },
    })
  })

  it('refuses a large bulk insert, and lists the first records', async () => {
    const [single] = CASES
    if (single === undefined) throw new Error('a case must exist')
    const branches = await open(single)
    const records = Array.from({ length: 5000 }, (_, index) => ({ n: index % 2 }))
    const { status, body } = await branches.call('main', 'POST', '/tables/items/bulk', { records })
    expect(status).toBe(400)
    expect(body.errors).toHaveLength(100)
    expect(body.errors[99]).toMatchObject({ index: 198, ...CHECK })
  })

  it('is not blamed for arithmetic that overflows', async () => {
    const columns: Column[] = [{ name: 'f', type: 'float' }]
    const branches = await TestBranches.create(service, `unevaluated${++number}`, {
      items: columns,
    })
    const path = '/tables/items/constraints/positive'
    expectOk(await branches.call('main', 'PUT', path, { check: 'f > 0' }))
    await branches.put('main', 'items', 'a', { f: 1e300 })
    const more = { f: { $multiply: 1e300 } }
    const answers = [
      await branches.call('main', 'PATCH', '/tables/items/data/a', more),
      await branches.call('main', 'PATCH', '/tables/items/data', { set: more, all: true }),
    ]
    for (const answer of answers) {
      expect(answer).toMatchObject({
        status: 400,
        body: { code: 'invalid_record', message: 'invalid record: the result is out of range' },
      })
    }
  })

  it('refuses the deletion of a record whose links it would remove', async () => {
    const branches = await TestBranches.create(service, `unevaluated${++number}`, {
      teams: [],
      items: [{ name: 'team', type: 'link', link: { table: 'teams', onDelete: 'setNull' } }],
    })
    for (const [name, check] of [
      ['linked', '1 / (case when team is null then 0 else 1 end) > 0'],
      ['named', "team <> 'x'"],
    ]) {
      const path = `/tables/items/constraints/${name}`
      expectOk(await branches.call('main', 'PUT', path, { check }))
    }
    await branches.put('main', 'teams', 't', {})
    await branches.put('main', 'items', 'a', { team: 't' })
    expect(await branches.call('main', 'DELETE', '/tables/teams/data/t')).toMatchObject({
      status: 400,
      body: { code: 'check_violation', table: 'items', constraint: 'linked', record: 'a' },
    })
  })
})
