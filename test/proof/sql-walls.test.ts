import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { FUNCTIONS, isResultType, OPERATORS } from '../../packages/server/src/dialect/allowed.js'
import { LostBackendError, runBounded } from '../../packages/server/src/postgres/bounds.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import {
  KEPT_USE_MS_MAX,
  UserConnections,
} from '../../packages/server/src/postgres/user-connections.js'
import { TestBranches } from '../support/branches.js'
import { LONG as IS_LONG } from '../support/random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { openWire, type WireService } from '../support/wire-clients.js'

let service: TestService
/** The same with less time for a statement, for those that use all of it. */
let hasty: TestService
let branches: TestBranches
let wire: WireService

const LIMITS = {
  queryTimeoutMs: 300,
  sqlConnectionsMax: 3,
  sqlQuickConnectionsMax: 2,
  sqlQuickConnectionsPerWorkspaceMax: 1,
  sqlConnectionsPerWorkspaceMax: 2,
  sqlTransactionsMax: 2,
  sqlTransactionsPerWorkspaceMax: 1,
  sqlWaitingMax: 2,
  sqlWaitingPerWorkspaceMax: 1,
  sqlWaitMs: 200,
}

beforeAll(async () => {
  service = await createTestService({ limits: LIMITS })
  hasty = await createTestService({ url: service.url, limits: { ...LIMITS, queryTimeoutMs: 100 } })
  branches = await TestBranches.create(service, 'walls', {
    large: [
      { name: 'body', type: 'text' },
      { name: 'tags', type: 'multiple' },
      { name: 'doc', type: 'json' },
    ],
  })
  wire = await openWire(service)
  await branches.bulk('main', 'large', [
    {
      id: 'one',
      body: 'a'.repeat(400_000),
      tags: new Array(40_000).fill('x'),
      doc: Array.from({ length: 30_000 }, (_, index) => index),
    },
  ])
})
afterAll(async () => {
  await wire.close()
  await hasty.close()
  await service.close()
})

function ask(statement: string, params?: unknown[]): Promise<Answer> {
  return branches.call('main', 'POST', '/sql', {
    statement,
    ...(params === undefined ? {} : { params }),
  })
}

/** Counts the backends that are running a statement, except this one. */
async function busyBackends(): Promise<number> {
  const rows = await service.database.query(sql`
    select 1 from pg_stat_activity
    where datname = current_database() and state = 'active' and pid <> pg_backend_pid()`)
  return rows.length
}

/**
 * Expressions of each type with the largest values that a statement can have, chosen to be slow to
 * search.
 */
const LARGE: Readonly<Record<string, readonly [first: string, other: string]>> = {
  text: ['l.body', `'b' || left(l.body, 999)`],
  bytea: [`convert_to(l.body, 'UTF8')`, `convert_to('b' || left(l.body, 999), 'UTF8')`],
  jsonb: ['l.doc', 'l.doc'],
  json: ['l.doc::json', 'l.doc::json'],
  anyarray: ['l.tags', 'l.tags'],
  anycompatiblearray: ['l.tags', 'l.tags'],
  'text[]': ['l.tags', 'l.tags'],
  anyelement: ['l.body', 'l.body'],
  anycompatible: ['l.body', `'x'::text`],
  anynonarray: ['l.body', 'l.body'],
  anycompatiblenonarray: ['l.body', 'l.body'],
  '"any"': ['l.body', 'l.body'],
  integer: ['1000', '1000'],
  bigint: ['1000', '1000'],
  smallint: ['1000::int2', '1000::int2'],
  numeric: ['(1e1990::numeric / 7)', '(1e1990::numeric / 7)'],
  'double precision': ['1e300::float8', '1.5::float8'],
  real: ['1.5::float4', '1.5::float4'],
  boolean: ['true', 'true'],
  date: [`date '2026-01-01'`, `date '2027-01-01'`],
  interval: [`interval '1 day'`, `interval '1 day'`],
  'timestamp with time zone': [`timestamptz '2026-01-01'`, `timestamptz '2027-01-01'`],
  'timestamp without time zone': [`timestamp '2026-01-01'`, `timestamp '2027-01-01'`],
  tsvector: [`to_tsvector('simple', l.body)`, `to_tsvector('simple', l.body)`],
  tsquery: [`plainto_tsquery('simple', 'a b c')`, `plainto_tsquery('simple', 'a b c')`],
  regconfig: [`'simple'`, `'simple'`],
  anyrange: ['int4range(1, 9)', 'int4range(1, 9)'],
  int4range: ['int4range(1, 9)', 'int4range(1, 9)'],
  anymultirange: ['multirange(int4range(1, 9))', 'multirange(int4range(1, 9))'],
}

function largeValues(types: readonly string[]): string[] | undefined {
  const values = types.map((type, index) => LARGE[type]?.[index === 0 ? 0 : 1])
  return values.every((value) => value !== undefined) ? (values as string[]) : undefined
}

/**
 * Expects that a statement is executed, refused or stopped, and that no backend keeps running it.
 */
async function expectEnded(statement: string): Promise<void> {
  const answer = await branches.through(hasty).call('main', 'POST', '/sql', { statement })
  expect({ statement, status: answer.status, code: answer.body.code }).toMatchObject({
    status: expect.toSatisfy((status) => [200, 400, 503].includes(Number(status))),
  })
  await expect.poll(busyBackends, { message: statement }).toBe(0)
}

describe('every function that may be called', () => {
  it.each([...FUNCTIONS.keys()])('%s ends soon, whatever it is given', async (name) => {
    const overloads = await service.database.query<{
      kind: string
      aggregateKind: string | null
      types: string[]
      isVariadic: boolean
    }>(sql`
      select p.prokind as kind, a.aggkind as "aggregateKind", p.provariadic <> 0 as "isVariadic",
        array(select format_type(t, null) from unnest(p.proargtypes) t) as types
      from pg_proc p left join pg_aggregate a on a.aggfnoid = p.oid
      where p.proname = ${name} and p.pronamespace = 'pg_catalog'::regnamespace`)
    const calls = overloads.flatMap(({ kind, aggregateKind, types }) => {
      const values = largeValues(types)
      if (values === undefined) return []
      if (aggregateKind !== null && aggregateKind !== 'n') {
        return `${name}() within group (order by l.body)`
      }
      return `${name}(${values.join(', ')})${kind === 'w' ? ' over ()' : ''}`
    })
    for (const call of new Set(calls)) {
      await expectEnded(`select ${call} is null from large l`)
      if (overloads.some(({ kind }) => kind === 'a')) {
        await expectEnded(`select ${call} is null from large l, generate_series(1, 100000) g`)
      }
    }
  })
})

describe('every operator that may be used', () => {
  it.each([...OPERATORS.keys()])('%s ends soon, whatever it is given', async (name) => {
    const overloads = await service.database.query<{ left: string; right: string }>(sql`
      select format_type(oprleft, null) as left, format_type(oprright, null) as right
      from pg_operator
      where oprname = ${name} and oprleft <> 0 and oprnamespace = 'pg_catalog'::regnamespace`)
    for (const { left, right } of overloads) {
      const values = largeValues([left, right])
      if (values === undefined) continue
      await expectEnded(`select (${values[0]} ${name} (${values[1]})) is null from large l`)
      await expectEnded(
        `select (x.a ${name} x.b) is null from (select ${values[0]} as a, ${values[1]} as b from large l) x`,
      )
    }
  })
})

describe('types of results', () => {
  it('are none that look up objects of the server, for every function and operator', async () => {
    const functions = await service.database.query<{ name: string; type: string }>(sql`
      select distinct p.proname::text as name, t.typname::text as type
      from pg_proc p join pg_type t on t.oid = p.prorettype
      where p.proname = any(${[...FUNCTIONS.keys()].filter((name) => name !== 'pg_typeof')})
        and p.prorettype <> all(p.proargtypes)
        and p.pronamespace = 'pg_catalog'::regnamespace`)
    const operators = await service.database.query<{ name: string; type: string }>(sql`
      select distinct o.oprname::text as name, t.typname::text as type
      from pg_operator o join pg_type t on t.oid = o.oprresult
      where o.oprname = any(${[...OPERATORS.keys()]}) and o.oprresult not in (o.oprleft, o.oprright)
        and o.oprnamespace = 'pg_catalog'::regnamespace`)
    const others = [...functions, ...operators]
      .filter(({ type }) => !isResultType(type) && !/^any/.test(type))
      .map(({ name, type }) => `${name}: ${type}`)
    // Functions and operators with an argument of their result type are left out: no statement can
    // make such an argument.
    expect(others.filter((each) => /: (reg|oid|xid|cid|tid|name|pg_)/.test(each))).toEqual([])
  })

  it.each([
    [`select array[pg_typeof(1), '16400']`, 200],
    [`select pg_typeof(1) union select '16400'`, 200],
    [`select coalesce(pg_typeof(1), '16400')`, 200],
    [`select u.* from unnest(to_tsvector('simple', 'a b')) u`, 200],
    [`select s.positions from (select * from unnest(to_tsvector('simple', 'a b'))) s`, 400],
    [`select unnest(to_tsvector('simple', 'a b'))`, 200],
  ])('%s tells nothing of the server', async (statement, status) => {
    const answer = await ask(statement)
    expect(answer.status).toBe(status)
    expect(JSON.stringify(answer.body)).not.toMatch(/heap_|offshoot|pg_toast/)
  })
})

/** Statements that compare a large value with many patterns. */
const PATTERNS = [
  'select l.body like any (array(select l.body from generate_series(1, 20))) from large l',
  `select l.body like any (select '%b' || l.body from generate_series(1, 20)) from large l`,
  'select l.doc @> all (array(select l.doc from generate_series(1, 20))) from large l',
]

/** Statements that would take much memory. */
const GREEDY = [
  'select cardinality(array_agg(g)) from generate_series(1, 3000000) g',
  'select cardinality(array_agg(1)) from generate_series(1, 3000000) g',
  `select length(string_agg('some text', ',')) from generate_series(1, 3000000) g`,
  'select cardinality(array(select g from generate_series(1, 3000000) g))',
  'select jsonb_array_length(jsonb_agg(g)) from generate_series(1, 300000) g',
  'select jsonb_object_agg(g, g) is null from generate_series(1, 300000) g',
  'select isempty(range_agg(int4range(2 * g, 2 * g + 1))) from generate_series(1, 100000) g',
  `select length(repeat(repeat(repeat('x', 1000), 1000), 1000))`,
  `select length(replace(repeat(repeat('x', 1000), 1000), 'x', $1))`,
  `with a as (select repeat('x', 1000) as t), b as (select t||t||t||t||t||t||t||t||t||t as t from a),
    c as (select t||t||t||t||t||t||t||t||t||t as t from b), d as (select t||t||t||t||t||t||t||t||t||t as t from c),
    e as (select t||t||t||t||t||t||t||t||t||t as t from d), f as (select t||t||t||t||t||t||t||t||t||t as t from e),
    g as (select t||t||t||t||t||t||t||t||t||t as t from f)
    select length(t||t) from g`,
  'with recursive r(n) as (select 1 union select n + 1 from r) select count(*) from r',
]

/** Statements with a jsonpath, and what the error names. */
const PATHS = [
  [`select jsonb_path_query('[1, 2]', '$[*] ? (@ == $[*])')`, 'jsonb_path_query'],
  [`select '[1, 2]'::jsonb @? '$[*] ? (@ == $[*])'`, '@?'],
  [`select '[1, 2]'::jsonb @@ '$[*] == $[*]'`, '@@'],
  [`select '[1, 2]'::jsonb @@ any('{$[*] == 1}')`, '@@'],
  [`select '$[*]'::jsonpath`, 'jsonpath'],
] as const

describe('patterns in a list', () => {
  it.each(PATTERNS)('are bounded as single ones: %s', async (statement) => {
    const answer = await ask(statement)
    expect(answer).toMatchObject({ status: 400, body: { code: 'query_too_costly' } })
    await expect.poll(busyBackends).toBe(0)
  })
})

describe('memory of a statement', () => {
  it.each(GREEDY)('is bounded: %s', async (statement) => {
    const params = statement.includes('$1') ? ['y'.repeat(1000)] : undefined
    const answer = await ask(statement, params)
    expect(answer).toMatchObject({ status: 400, body: { code: 'query_too_costly' } })
  })
})

/** Runs until it is cancelled. */
const LONG = 'select count(*) from generate_series(1, 1000000000) a'

describe('jsonpath', () => {
  // A filter that compares every element with every other one takes memory by their product.
  it.each(PATHS)('is refused: %s', async (statement, name) => {
    const { status, body } = await branches.call('main', 'POST', '/sql', { statement })
    expect([status, body.code]).toEqual([400, 'invalid_sql'])
    expect(body.message).toContain(name)
  })

  it('leaves the search in texts as it is', async () => {
    const statement = `select to_tsvector('simple', 'one two') @@ to_tsquery('simple', 'two') as found`
    const { body } = await branches.call('main', 'POST', '/sql', { statement })
    expect(body.records).toEqual([{ found: true }])
  })
})

/** What clients of PostgreSQL send, too. The walls are the same, so that the short form has one of each kind. */
const WIRED = [...PATTERNS, ...GREEDY].filter(
  (statement) => IS_LONG || [PATTERNS[0], GREEDY[0], GREEDY.at(-1)].includes(statement),
)

describe('a client of PostgreSQL', () => {
  it.each(WIRED)('is stopped in both protocols: %s', async (statement) => {
    const codes = await codesOf(statement)
    for (const code of codes) expect(code).toMatch(/^(?:54000|57014|53200)$/)
    await expect.poll(busyBackends).toBe(0)
  })

  it.each(PATHS)('is refused in both protocols: %s', async (statement) => {
    for (const code of await codesOf(statement)) expect(code).toMatch(/^(?:0A000|42\w{3})$/)
  })
})

/** Returns the SQLSTATEs of a statement as a simple query, if it has no parameters, and as a prepared one. */
async function codesOf(statement: string): Promise<(string | undefined)[]> {
  const client = await wire.connect('walls:main')
  const codeOf = (work: Promise<unknown>) =>
    work.then(
      () => undefined,
      (error: { code?: string }) => error.code,
    )
  const hasParameter = statement.includes('$1')
  const values = hasParameter ? ['y'.repeat(1000)] : []
  const codes = [await codeOf(client.query({ text: statement, values, name: 'prepared' }))]
  if (!hasParameter) codes.push(await codeOf(client.query(statement)))
  await client.end()
  return codes
}

describe('connections for SQL', () => {
  it('are apart from those of records, and one workspace cannot have all of them', async () => {
    const connections = new UserConnections(service.database, { ...LIMITS, sqlWaitMs: 60_000 })
    const held = [
      await connections.connect('a', { lane: 'long' }),
      await connections.connect('a', { lane: 'long' }),
    ]
    const waiting = connections.connect('a', { lane: 'long' })
    expect(connections.state).toEqual({ held: 2, lost: 0, waiting: 1 })
    await expect(connections.connect('a', { lane: 'long' })).rejects.toMatchObject({
      code: 'overloaded',
      status: 503,
    })
    const other = await connections.connect('b', { lane: 'long' })
    const late = connections.connect('b', { lane: 'long' })
    await expect(connections.connect('c', { lane: 'long' })).rejects.toMatchObject({
      code: 'overloaded',
    })
    other.release()
    held[0]?.release()
    for (const client of await Promise.all([waiting, late])) client.release()
    held[1]?.release()
    expect(connections.state).toEqual({ held: 0, lost: 0, waiting: 0 })
  })

  it('are waited for only so long, and records are read meanwhile', async () => {
    const running = Array.from({ length: 3 }, () => ask(LONG))
    const record = await branches.call('main', 'GET', '/tables/large/data/one?columns=id')
    expect(record.status).toBe(200)
    const answers = await Promise.all(running)
    for (const { body } of answers)
      expect(['query_too_costly', 'timeout', 'overloaded']).toContain(body.code)
  })

  it('are replaced after a long use, because their backends keep memory', async () => {
    const connections = new UserConnections(service.database, LIMITS)
    const client = await connections.connect('a', { lane: 'long' })
    const { rows } = await client.query<{ pid: number }>(
      'select pg_backend_pid() as pid from pg_sleep($1)',
      [(2 * KEPT_USE_MS_MAX) / 1000],
    )
    client.release()
    const isOpen = async () => {
      const found = await service.database.query(
        sql`select 1 from pg_stat_activity where pid = ${rows[0]?.pid}`,
      )
      return found.length > 0
    }
    await expect.poll(isOpen).toBe(false)
    expect(connections.state).toEqual({ held: 0, lost: 0, waiting: 0 })
  })

  it('keep a place taken by a backend that does not stop, until it ends', async () => {
    const connections = new UserConnections(service.database, LIMITS)
    const client = await connections.connect('a', { lane: 'long' })
    const stuck = runBounded(
      { database: service.database, client, bounds: { timeoutMs: 50 }, canLose: true },
      () => client.query(`select strpos(repeat('a', 250000), 'b' || repeat('a', 20000))`),
    )
    const error = await stuck.then(
      () => undefined,
      (failure: unknown) => failure,
    )
    // A fast machine finishes within the time limit, and no backend is lost.
    if (!(error instanceof LostBackendError)) return client.release()
    expect(error.code).toBe('query_too_costly')
    client.release(error)
    expect(connections.state).toEqual({ held: 1, lost: 1, waiting: 0 })
    await expect.poll(() => connections.state.held).toBe(0)
    await delay(0)
  })
})
