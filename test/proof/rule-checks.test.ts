import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { QueryHold } from '../support/hold-query.js'
import { LONG } from '../support/random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { Steps } from '../support/steps.js'

/*
 * A rule that many records have to keep is checked in several transactions: one finds that they are many, the next ones pin
 * a state and check it, and the last one checks what has changed since, and adds the rule. The tests add a rule as often as
 * that takes transactions, and each time something else happens after another one of them, in another process.
 */

const COLUMNS = {
  teams: [{ name: 'name', type: 'string' }],
  items: [
    { name: 'code', type: 'string' },
    { name: 'price', type: 'int' },
    { name: 'team', type: 'link', link: { table: 'teams' } },
    { name: 'note', type: 'string' },
  ],
} as const satisfies Record<string, readonly Column[]>
const IDS = ['a', 'b', 'c', 'd']
const limits = { ruleLockedRowsMax: IDS.length - 1 }

const hold = new QueryHold()
let first: TestService
let second: TestService
let number = 0

/** The short form tries every third place, and starts with another one in the next test. */
const STRIDE = LONG ? 1 : 3
let tests = 0

beforeAll(async () => {
  first = await createTestService({ limits, tracing: hold.tracing })
  second = await createTestService({ url: first.url, limits })
})
afterAll(async () => {
  await second.close()
  await first.close()
})

/** Records that keep all rules, on `main`, or inherited by its fork. Others are in the branch `other`. */
async function open(branch: string): Promise<TestBranches> {
  const branches = (await TestBranches.create(first, `rules${++number}`, COLUMNS)).through(second)
  await branches.bulk('main', 'teams', [{ id: 't' }, { id: 'u' }])
  await branches.bulk(
    'main',
    'items',
    IDS.map((id, index) => ({ id, code: id, price: index, team: 't', note: 'n' })),
  )
  if (branch === 'fork') await branches.fork('fork')
  return branches
}

const constraint = (body: object) => ({
  path: '/tables/items/constraints/rule',
  method: 'PUT',
  body,
})
const alter = (column: string, body: object) => ({
  path: `/tables/items/columns/${column}`,
  method: 'PATCH',
  body,
})

/** Values of a record that break a rule, the change that adds it, and how a write is refused that breaks it. */
const RULES = [
  ['a check', constraint({ check: 'price >= 0' }), { price: -1 }, 'check_violation'],
  ['a unique constraint', constraint({ unique: ['code', 'team'] }), {}, 'unique_violation'],
  ['a unique column', alter('code', { unique: true }), {}, 'unique_violation'],
  ['a required value', alter('note', { notNull: true }), { note: null }, 'not_null_violation'],
  [
    'a required link',
    alter('team', { link: { onDelete: 'restrict' } }),
    { team: 'no' },
    'link_violation',
  ],
  [
    'a computed column',
    {
      path: '/tables/items/columns',
      method: 'POST',
      body: { name: 'share', type: 'int', computed: '10 / (price + 5)' },
    },
    { price: -5 },
    'check_violation',
  ],
] as const

const GOOD = { code: 'x', price: 9, team: 'u', note: 'n' }
const breaking = (values: object) => ({ code: 'a', price: 0, team: 't', note: 'n', ...values })

/** The name by which errors and the schema tell of the rule. */
async function hasRule(branches: TestBranches, branch: string): Promise<string> {
  const { body } = await branches.call(branch, 'GET', '')
  const [, items] = body.schema.tables
  const before = JSON.stringify(COLUMNS.items)
  return items.constraints === undefined && JSON.stringify(items.columns) === before
    ? 'none'
    : 'whole'
}

async function countPins(branches: TestBranches): Promise<number> {
  const [row] = await first.database.query<{ count: number }>(sql`
    select count(*)::integer as count
    from offshoot.branches b
    join offshoot.databases d on d.id = b.database_id and d.name = ${branches.database}
    where b.deleted_at is not null`)
  return row?.count ?? 0
}

describe.each(['main', 'fork'])('a rule for many records of %s', (branch) => {
  const add = (branches: TestBranches, { method, path, body }: (typeof RULES)[number][1]) =>
    branches.through(first).call(branch, method, path, body)

  /** Adds a rule with an event after another one of its transactions each time. Returns what came of it, with the places. */
  async function betweenSteps(
    rule: (typeof RULES)[number][1],
    event: (branches: TestBranches) => Promise<unknown>,
    look: (branches: TestBranches, answer: Answer) => Promise<string>,
  ): Promise<Record<string, number[]>> {
    const found: Record<string, number[]> = {}
    let isInside = true
    for (let place = tests++ % STRIDE; isInside; place += STRIDE) {
      const branches = await open(branch)
      const steps = await Steps.take(first.database)
      const adding = add(branches, rule)
      try {
        for (let count = 0; count < place && isInside; count++) isInside = await steps.step(adding)
        await event(branches)
      } finally {
        steps.end()
      }
      const state = await look(branches, await adding)
      found[state] = [...(found[state] ?? []), place]
    }
    return found
  }

  it.each(RULES)('is added if writers keep %s meanwhile', async (_name, rule, values, code) => {
    const found = await betweenSteps(
      rule,
      async (branches) => {
        await branches.put(branch, 'items', 'new', GOOD)
        await branches.patch(branch, 'items', 'a', { note: 'changed' })
        await branches.remove(branch, 'items', 'b')
      },
      async (branches, { status, body }) => {
        const broken = await branches.call(
          branch,
          'PUT',
          '/tables/items/data/bad',
          breaking(values),
        )
        return `${status} ${body.code ?? ''}, ${await hasRule(branches, branch)}, ${broken.body.code}`
      },
    )
    expect(Object.keys(found)).toEqual([expect.stringMatching(`^20[01] , whole, ${code}$`)])
  })

  it.each(RULES)(
    'is refused if a writer breaks %s meanwhile, or refuses the write',
    async (_name, rule, values, code) => {
      let written: Answer | undefined
      const found = await betweenSteps(
        rule,
        async (branches) => {
          written = await branches.call(branch, 'PUT', '/tables/items/data/bad', breaking(values))
        },
        async (branches, { status, body }) => {
          const has = await hasRule(branches, branch)
          const listed = JSON.stringify(body).includes('bad') ? 'listed' : ''
          return `${written?.status} ${written?.body.code ?? ''}, ${status < 300 ? 'added' : listed}, ${has}`
        },
      )
      expect(Object.keys(found).sort()).toEqual(['201 , listed, none', `400 ${code}, added, whole`])
      // The rule is there from one transaction on.
      const [listed, refused] = [
        found['201 , listed, none'] ?? [],
        found[`400 ${code}, added, whole`],
      ]
      expect(listed.length).toBeGreaterThan(2)
      expect(Math.max(...listed)).toBeLessThan(Math.min(...(refused ?? [])))
    },
  )

  it('is refused if a linked record is deleted meanwhile', async () => {
    const rule = alter('team', { link: { onDelete: 'restrict' } })
    let deleted: Answer | undefined
    const found = await betweenSteps(
      rule,
      async (branches) => {
        deleted = await branches.call(branch, 'DELETE', '/tables/teams/data/t')
      },
      async (branches, { status, body }) => {
        const ids = body.problems?.[0]?.samples.map(({ id }: { id: string }) => id).join()
        return `${deleted?.status}, ${status < 300 ? 'added' : ids}, ${await hasRule(branches, branch)}`
      },
    )
    expect(Object.keys(found).sort()).toEqual(['204, a,b,c,d, none', '400, added, whole'])
  })

  it('is checked again if the schema changes or the branch is reset meanwhile', async () => {
    const rule = constraint({ check: 'price >= 0' })
    const renamed = await betweenSteps(
      rule,
      async (branches) => {
        const renaming = { renameColumn: { table: 'items', oldName: 'note', newName: 'text' } }
        await branches.edit(branch, renaming)
        await branches.put(branch, 'items', 'bad', { price: -1 })
      },
      async (branches, { status }) =>
        `${status}, ${(await branches.record(branch, 'items', 'bad')) ? 'written' : ''}`,
    ).catch((error: unknown) => String(error))
    // After the last transaction, the rule refuses the record.
    expect(renamed).toMatch(/check_violation/)
    if (branch === 'main') return
    const reset = await betweenSteps(
      rule,
      async (branches) => {
        await branches.put('main', 'items', 'bad', { price: -1 })
        await branches.reset(branch, 'main')
      },
      async (branches, { status, body }) =>
        `${status} ${body.records ?? ''}, ${await hasRule(branches, branch)}`,
    )
    expect(Object.keys(reset).sort()).toEqual(['200 , none', '400 bad, none'])
    expect(Math.max(...(reset['400 bad, none'] ?? []))).toBeLessThan(
      Math.min(...(reset['200 , none'] ?? [])),
    )
  })

  it.each(RULES)('keeps no writer waiting while %s is checked', async (_name, rule) => {
    const branches = await open(branch)
    let adding: Promise<Answer> | undefined
    await hold.during(
      (text) => /^begin isolation level repeatable read(?! read only)/.test(text),
      () => {
        adding = add(branches, rule)
      },
      async () => {
        await branches.put(branch, 'items', 'new', GOOD)
        expect(await hasRule(branches, branch)).toBe('none')
      },
    )
    expect((await adding)?.status).toBeLessThan(300)
    expect(await hasRule(branches, branch)).toBe('whole')
    expect(await countPins(branches)).toBe(0)
  })

  it.each([
    ['is checked', /^\s*select b\.id, /],
    ['is added', /^\s*insert into offshoot.schemas/],
  ])('leaves nothing behind if the connection is cut while it %s', async (_when, text) => {
    const branches = await open(branch)
    const rule = constraint({ check: 'price >= 0' })
    let adding: Promise<Answer> | undefined
    await hold.during(
      (next) => text.test(next),
      () => {
        adding = add(branches, rule)
      },
      async () => {
        await second.database.query(sql`
          select pg_terminate_backend(pid)
          from pg_stat_activity
          where datname = current_database() and state like 'idle in transaction%'`)
      },
    )
    expect((await adding)?.status).toBeGreaterThanOrEqual(500)
    expect(await hasRule(branches, branch)).toBe('none')
    await branches.put(branch, 'items', 'bad', breaking({ price: -1 }))
    await branches.remove(branch, 'items', 'bad')
    expect(await add(branches, rule)).toMatchObject({ status: 200 })
    expect(await hasRule(branches, branch)).toBe('whole')
    expect(await countPins(branches)).toBe(0)
  })
})
