import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import {
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
  XATA_CLIENT,
} from '../support/tables.js'

let service: TestService
let main: BranchCall
/** Has the same rows as `main`, half of them written after the fork. */
let fork: BranchCall

const PEOPLE: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'email', type: 'email', unique: true },
  { name: 'bio', type: 'text' },
  { name: 'age', type: 'int' },
  { name: 'score', type: 'float' },
  { name: 'active', type: 'bool' },
  { name: 'joined', type: 'datetime' },
  { name: 'tags', type: 'multiple' },
  { name: 'team', type: 'link', link: { table: 'teams' } },
  { name: 'settings', type: 'json' },
  { name: 'embedding', type: 'vector', vector: { dimension: 2 } },
  { name: 'constructor', type: 'string' },
  {
    name: 'address',
    type: 'object',
    columns: [
      { name: 'city', type: 'string' },
      { name: 'notes', type: 'json' },
      { name: 'landlord', type: 'link', link: { table: 'people' } },
    ],
  },
]
const TEAMS: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'level', type: 'int' },
  { name: 'parent', type: 'link', link: { table: 'teams' } },
  { name: 'lead', type: 'link', link: { table: 'people' } },
  { name: 'rules', type: 'json' },
]

const TEAM_ROWS = {
  root: { name: 'Root', level: 1, lead: 'ada', rules: { open: true } },
  core: { name: 'Core', level: 2, parent: 'root', lead: 'bob' },
  web: { name: 'Web', level: 3, parent: 'core' },
}

const PEOPLE_ROWS: Readonly<Record<string, object>> = {
  ada: {
    name: 'Ada',
    email: 'ada@example.com',
    bio: 'First of all: 100% \\ _',
    age: 36,
    score: 1.5,
    active: true,
    joined: '2026-01-31T09:30:00.000Z',
    tags: ['red', 'green'],
    team: 'core',
    settings: { theme: 'dark', size: 10, flags: { beta: true }, list: [1, 2] },
    embedding: [1, 2],
    constructor: 'maths',
    address: { city: 'London', notes: { floor: 3 }, landlord: 'bob' },
  },
  bob: {
    name: 'Bob',
    email: 'bob@example.com',
    bio: 'Ärger im Büro',
    age: 41,
    score: -2.25,
    active: false,
    joined: '2026-02-01T00:00:00.000Z',
    tags: ['red'],
    team: 'web',
    settings: { theme: 'light', size: '10', flags: { beta: false }, none: null },
    address: { city: 'Berlin' },
  },
  cyd: {
    name: 'cyd',
    age: 36,
    score: 0,
    active: true,
    joined: '2026-02-01T00:00:00.001Z',
    tags: [],
    team: 'gone',
    settings: [1, 2, 3],
    address: {},
  },
  dee: { name: 'Dee*', age: -1, tags: ['blue', 'green', 'Red'], team: 'root', settings: '"text"' },
  eve: {},
}

const write = async (call: BranchCall, table: string, rows: Readonly<Record<string, object>>) => {
  for (const [id, body] of Object.entries(rows)) {
    expectOk(await call('PUT', `/tables/${table}/data/${id}`, { body }))
  }
}

beforeAll(async () => {
  service = await createTestService()
  main = await createTables(service, 'shop', { people: PEOPLE, teams: TEAMS })
  const { ada = {}, bob = {}, cyd = {}, ...later } = PEOPLE_ROWS
  await write(main, 'people', { ada: { name: 'before' }, bob, cyd, extra: { name: 'deleted' } })
  await write(main, 'teams', { ...TEAM_ROWS, web: { name: 'before' } })
  expectOk(
    await service.call('PUT', `${service.workspace}/db/shop:fork`, { body: { from: 'main' } }),
  )
  fork = branchCall(service, 'shop', { branch: 'fork' })
  for (const call of [main, fork]) {
    await write(call, 'people', { ada, ...later })
    await write(call, 'teams', { web: TEAM_ROWS.web })
    expectOk(await call('DELETE', '/tables/people/data/extra'))
  }
})
afterAll(() => service.close())

const query = (call: BranchCall, body?: unknown, table = 'people') =>
  call('POST', `/tables/${table}/query`, body === undefined ? {} : { body })

const idsOf = (answer: Answer): string[] => {
  expectOk(answer)
  return answer.body.records.map((record: { id: string }) => record.id)
}

const ALL = ['ada', 'bob', 'cyd', 'dee', 'eve']

/** Filters, each with its subject and the ids of the records it matches. */
const FILTERS: readonly (readonly [about: string, filter: object, ids: readonly string[]])[] = [
  ['nothing', {}, ALL],
  ['equality', { name: 'Ada' }, ['ada']],
  ['several keys', { age: 36, active: true, name: 'cyd' }, ['cyd']],
  ['$is', { name: { $is: 'Bob' } }, ['bob']],
  ['$is on every type', { email: 'ada@example.com', score: 1.5, active: true }, ['ada']],
  ['$is with a time in another offset', { joined: '2026-02-01T01:00:00+01:00' }, ['bob']],
  ['$is null', { name: null }, ['eve']],
  ['$is null on a list', { tags: { $is: null } }, ['eve']],
  ['$is null on a vector', { embedding: null }, ['bob', 'cyd', 'dee', 'eve']],
  ['$is null on an object', { address: null }, ['dee', 'eve']],
  ['$isNot', { name: { $isNot: 'Bob' } }, ['ada', 'cyd', 'dee']],
  ['$isNot null', { joined: { $isNot: null } }, ['ada', 'bob', 'cyd']],
  ['$isNot of several', { name: { $isNot: ['Bob', 'Ada'] } }, ['cyd', 'dee']],
  ['$gt on int', { age: { $gt: 36 } }, ['bob']],
  ['$ge on int', { age: { $ge: 36 } }, ['ada', 'bob', 'cyd']],
  ['$lt on int', { age: { $lt: 36 } }, ['dee']],
  ['$le on int', { age: { $le: 36 } }, ['ada', 'cyd', 'dee']],
  ['a range', { age: { $lt: 41, $ge: 0 } }, ['ada', 'cyd']],
  ['a fraction on int', { age: { $gt: 35.5, $lt: 36.5 } }, ['ada', 'cyd']],
  ['one of several numbers', { age: [41, -1, 1.5] }, ['bob', 'dee']],
  ['one of several floats', { score: { $any: [0, 1.5] } }, ['ada', 'cyd']],
  ['one of several times', { joined: ['2026-01-31T09:30:00Z'] }, ['ada']],
  ['ranges of floats', { score: { $lt: 0 } }, ['bob']],
  ['ranges of texts are by code point', { name: { $ge: 'Bob', $lt: 'a' } }, ['bob', 'dee']],
  ['ranges of times', { joined: { $gt: '2026-02-01T00:00:00Z' } }, ['cyd']],
  ['$contains', { bio: { $contains: '100% \\ _' } }, ['ada']],
  ['$contains minds the case', { bio: { $contains: 'first' } }, []],
  ['$iContains', { bio: { $iContains: 'FIRST' } }, ['ada']],
  ['$iContains beyond ASCII', { bio: { $iContains: 'ärger IM BÜRO' } }, ['bob']],
  ['$startsWith', { name: { $startsWith: 'B' } }, ['bob']],
  ['$startsWith takes all as it is', { name: { $startsWith: '%' } }, []],
  ['$endsWith', { name: { $endsWith: '*' } }, ['dee']],
  ['both ends', { email: { $startsWith: 'ada', $endsWith: '.com' } }, ['ada']],
  ['$pattern', { name: { $pattern: '?*d*' } }, ['ada', 'cyd']],
  ['$pattern escaped', { name: { $pattern: 'Dee\\*' } }, ['dee']],
  ['$pattern with signs of SQL', { bio: { $pattern: '*100%*_' } }, ['ada']],
  ['$iPattern', { name: { $iPattern: 'C?D' } }, ['cyd']],
  ['$iPattern beyond ASCII', { bio: { $iPattern: 'äRGER*' } }, ['bob']],
  ['$exists', { $exists: 'email' }, ['ada', 'bob']],
  ['$notExists', { $notExists: 'email' }, ['cyd', 'dee', 'eve']],
  ['$existsNot', { $existsNot: 'tags' }, ['eve']],
  ['$exists of a link', { $exists: 'team' }, ['ada', 'bob', 'cyd', 'dee']],
  ['$exists through a link', { $exists: 'team.name' }, ['ada', 'bob', 'dee']],
  ['$exists in an object', { $exists: 'address.city' }, ['ada', 'bob']],
  ['$exists in JSON', { $exists: 'settings->flags->beta' }, ['ada', 'bob']],
  ['$exists of a null in JSON', { $exists: 'settings->none' }, []],
  ['$any of values', { name: { $any: ['Ada', 'Bob'] } }, ['ada', 'bob']],
  ['$any of predicates', { age: { $any: [{ $gt: 40 }, { $lt: 0 }] } }, ['bob', 'dee']],
  ['a bare list', { name: ['Ada', { $startsWith: 'c' }] }, ['ada', 'cyd']],
  ['an empty list', { name: [] }, []],
  ['$all of predicates', { name: { $all: [{ $contains: 'b' }, { $contains: 'B' }] } }, ['bob']],
  ['$none of predicates', { name: { $none: ['Ada', 'Bob'] } }, ['cyd', 'dee']],
  ['$not of a predicate', { name: { $not: { $contains: 'd' } } }, ['bob', 'dee']],
  ['$not of a value', { active: { $not: true } }, ['bob']],
  ['$any on top', { $any: { name: 'Ada', age: 41 } }, ['ada', 'bob']],
  ['$any of a list', { $any: [{ name: 'Ada', age: 41 }, { name: 'Bob' }] }, ['bob']],
  ['$any of nothing', { $any: [] }, []],
  ['$all on top', { $all: { name: 'Ada', age: 36 } }, ['ada']],
  ['$all of a list', { $all: [{ age: 36 }, { $exists: 'email' }] }, ['ada']],
  ['$not of both', { $not: { age: 36, active: true } }, ['bob', 'dee']],
  ['$none of both', { $none: { age: 36, active: true } }, ['bob']],
  ['$not $any', { $not: { $any: [{ name: 'Ada' }, { name: 'Bob' }] } }, ['cyd', 'dee']],
  ['$not twice', { $not: { $not: { name: 'Ada' } } }, ['ada']],
  ['$includes', { tags: { $includes: 'red' } }, ['ada', 'bob']],
  ['$includesAny', { tags: { $includesAny: ['blue', 'green'] } }, ['ada', 'dee']],
  ['$includes of predicates', { tags: { $includes: { $startsWith: 'b' } } }, ['dee']],
  ['$includes of mixed', { tags: { $includes: [{ $iContains: 'RED' }] } }, ['ada', 'bob', 'dee']],
  ['$includesAll', { tags: { $includesAll: ['red', 'green'] } }, ['ada', 'bob', 'cyd']],
  ['$includesNone', { tags: { $includesNone: 'red' } }, ['cyd', 'dee']],
  ['not $includes', { tags: { $not: { $includes: 'red' } } }, ['cyd', 'dee']],
  ['not $includesNone', { $not: { tags: { $includesNone: 'red' } } }, ['ada', 'bob']],
  ['a list by a value', { tags: 'red' }, ['ada', 'bob']],
  ['a list by values', { tags: ['blue', 'red'] }, ['ada', 'bob', 'dee']],
  ['a list by another value', { tags: { $isNot: 'red' } }, ['cyd', 'dee']],
  ['a link by its id', { team: 'gone' }, ['cyd']],
  ['a link by ids', { team: ['core', 'web'] }, ['ada', 'bob']],
  ['the id of a link', { 'team.id': 'core' }, ['ada']],
  ['through a link', { 'team.name': 'Web' }, ['bob']],
  ['through a link, as an object', { team: { name: 'Web', level: { $gt: 2 } } }, ['bob']],
  ['any behind a link', { team: { $any: [{ name: 'Web' }, { level: 1 }] } }, ['bob', 'dee']],
  [
    'any behind a link, as an object',
    { team: { $any: { name: 'Web', level: 1 } } },
    ['bob', 'dee'],
  ],
  ['all behind a link', { team: { $all: [{ name: 'Web' }, { level: 1 }] } }, []],
  ['not behind a link', { team: { $not: { name: 'Web' } } }, ['ada', 'dee']],
  ['none behind a link', { team: { $none: [{ name: 'Web' }, { level: 1 }] } }, ['ada']],
  ['nested behind a link', { team: { $not: { $any: [{ level: 1 }, { name: 'Web' }] } } }, ['ada']],
  ['a link and behind it', { team: { $any: ['core', 'web'], level: { $gt: 2 } } }, ['bob']],
  ['a link or behind it', { $any: [{ team: 'core' }, { team: { level: 3 } }] }, ['ada', 'bob']],
  ['what exists behind a link', { team: { $exists: 'rules' } }, ['dee']],
  ['what exists not behind a link', { team: { $notExists: 'rules', level: 3 } }, ['bob']],
  [
    'any in an object',
    { address: { $any: [{ city: 'London' }, { city: 'Berlin' }] } },
    ['ada', 'bob'],
  ],
  ['through two links', { 'team.parent.name': 'Root' }, ['ada']],
  ['through three links', { team: { parent: { 'parent.level': 1 } } }, ['bob']],
  ['around in a circle', { 'team.lead.team.name': 'Web' }, ['ada']],
  ['not through a link', { $not: { 'team.name': 'Web' } }, ['ada', 'dee']],
  ['no link', { team: null }, ['eve']],
  ['JSON behind a link', { 'team.rules->open': true }, ['dee']],
  ['a document behind a link', { 'team.rules': '{"open":true}' }, ['dee']],
  ['a link in an object', { 'address.landlord.name': 'Bob' }, ['ada']],
  ['in an object', { 'address.city': 'London' }, ['ada']],
  ['in an object, as an object', { address: { city: { $contains: 'er' } } }, ['bob']],
  ['JSON in an object', { 'address.notes': { $is: { floor: 3 } } }, ['ada']],
  ['JSON text', { 'settings->theme': 'dark' }, ['ada']],
  ['JSON text by a pattern', { 'settings->theme': { $pattern: '?ight' } }, ['bob']],
  ['JSON number', { 'settings->size': 10 }, ['ada']],
  ['JSON number as text', { 'settings->size': '10' }, ['bob']],
  ['JSON range', { 'settings->size': { $gt: 9.5, $lt: 1e3 } }, ['ada']],
  ['JSON boolean', { 'settings->flags->beta': false }, ['bob']],
  ['JSON negated', { 'settings->theme': { $isNot: 'dark' } }, ['bob']],
  ['JSON not', { $not: { 'settings->theme': 'dark' } }, ['bob']],
  ['JSON missing', { 'settings->theme': null }, ['cyd', 'dee', 'eve']],
  ['JSON list element', { 'settings->1': 2 }, ['cyd']],
  ['a list in JSON', { 'settings->list': '[1,2]' }, ['ada']],
  ['an object in JSON', { 'settings->flags': { $is: '{ "beta":true }' } }, ['ada']],
  ['not an object in JSON', { 'settings->flags': { $isNot: '{"beta": true}' } }, ['bob']],
  ['text that only looks like JSON', { 'settings->list': { $isNot: '[1,' } }, []],
  ['in the text of a list', { 'settings->list': { $contains: '2' } }, ['ada']],
  ['in the text of an object', { 'settings->flags': { $pattern: '*false*' } }, ['bob']],
  ['a document, whatever its order', { settings: '[1, 2,3]' }, ['cyd']],
  ['a document of text', { settings: '"text"' }, ['dee']],
  ['not a document', { settings: { $isNot: '[1,2,3]' } }, ['ada', 'bob', 'dee']],
  ['metadata', { 'service.version': 0, name: 'Bob' }, ['bob']],
  ['metadata by the name of Xata clients', { 'xata.version': { $ge: 0 }, age: 41 }, ['bob']],
  ['metadata as an object', { service: { createdAt: { $gt: '2020-01-01T00:00:00Z' } } }, ALL],
  ['metadata of a link', { 'team.xata.updatedAt': { $lt: '2020-01-01T00:00:00Z' } }, []],
  ['ids', { id: { $any: ['eve', 'bob', 'nobody'] } }, ['bob', 'eve']],
  ['ranges of ids', { id: { $ge: 'cyd', $lt: 'eve' } }, ['cyd', 'dee']],
  ['a column that every object has', { constructor: 'maths' }, ['ada']],
]

describe.each([
  ['a plain branch', () => main],
  ['a branch with changes of its own', () => fork],
])('a filter on %s', (_about, call) => {
  it.each(FILTERS)('finds by %s', async (_name, filter, ids) => {
    expect(idsOf(await query(call(), { filter }))).toEqual(ids)
  })

  it('finds all without a body', async () => {
    expect(idsOf(await query(call()))).toEqual(ALL)
    expect(idsOf(await query(call(), {}))).toEqual(ALL)
  })
})

const notFound = (path: string) => `table [people]: column [${path}]: column not found`
const cannot = (column: string, operator: string, type: string) =>
  `filter: column [${column}]: operator [${operator}] cannot be used with type [${type}]`

const REFUSALS: readonly (readonly [body: object, message: string])[] = [
  [{ filter: { nope: 1 } }, notFound('nope')],
  [{ filter: { 'name.nope': 1 } }, notFound('name.nope')],
  [{ filter: { 'team.nope': 1 } }, notFound('team.nope')],
  [{ filter: { address: { nope: 1 } } }, notFound('address.nope')],
  [{ filter: { 'xata.constructor': 1 } }, notFound('xata.constructor')],
  [{ filter: { $exists: 'nope' } }, notFound('nope')],
  [{ filter: { $exists: ['name'] } }, 'filter: operator [$exists]: expected the name of a column'],
  [{ filter: { 'name->a': 1 } }, 'column [name->a]: only a json column has paths inside'],
  [
    { filter: { 'settings->a\u0000': 1 } },
    'column [settings->a\u0000]: the path has a key that a document cannot contain',
  ],
  [{ filter: [] }, 'filter: expected an object'],
  [{ filter: 'name' }, 'filter: expected an object'],
  [{ filter: { $else: 1 } }, 'filter: operator [$else] is not known'],
  [{ filter: { name: { $else: 1 } } }, 'filter: column [name]: operator [$else] is not known'],
  [{ filter: { name: { $not: { nope: 1 } } } }, notFound('name.nope')],
  [{ filter: { team: { $any: ['core', { level: 1 }] } } }, 'filter: expected an object'],
  [{ filter: { team: { $exists: 'nope' } } }, notFound('team.nope')],
  [
    { filter: { name: { $constructor: 1 } } },
    'filter: column [name]: operator [$constructor] is not known',
  ],
  [{ filter: { name: {} } }, 'filter: column [name]: expected an operator'],
  [{ filter: { name: 1 } }, 'filter: column [name]: expected a string'],
  [
    { filter: { name: 'a\u0000' } },
    'filter: column [name]: contains a NUL character, which cannot be stored',
  ],
  [{ filter: { age: '36' } }, 'filter: column [age]: expected a number'],
  [{ filter: { age: [1, '36'] } }, 'filter: column [age]: expected a number'],
  [{ filter: { score: true } }, 'filter: column [score]: expected a number'],
  [{ filter: { active: 1 } }, 'filter: column [active]: expected a boolean'],
  [{ filter: { joined: 5 } }, 'filter: column [joined]: expected a time'],
  [
    { filter: { joined: '2026-01-31' } },
    'filter: column [joined]: is not a date and time with an offset, such as 2026-01-31T09:30:00.000Z',
  ],
  [{ filter: { tags: 1 } }, 'filter: column [tags]: expected a string'],
  [
    { filter: { name: { $includes: 'a' } } },
    'filter: column [name]: $includes needs a column of type [multiple]',
  ],
  [
    { filter: { name: { $gt: null } } },
    'filter: column [name]: operator [$gt]: cannot compare with null',
  ],
  [
    { filter: { name: { $is: { a: 1 } } } },
    'filter: column [name]: operator [$is]: expected a value',
  ],
  [{ filter: { age: { $contains: 'a' } } }, cannot('age', '$contains', 'int')],
  [{ filter: { active: { $gt: true } } }, cannot('active', '$gt', 'bool')],
  [{ filter: { joined: { $startsWith: '2026' } } }, cannot('joined', '$startsWith', 'datetime')],
  [{ filter: { embedding: 1 } }, cannot('embedding', '$is', 'other')],
  [{ filter: { settings: { $gt: '1' } } }, cannot('settings', '$gt', 'json')],
  [{ filter: { settings: 'no JSON' } }, 'filter: column [settings]: expected JSON text'],
  [{ sort: { nope: 'asc' } }, notFound('nope')],
  [{ sort: { name: 'up' } }, 'sort: column [name]: must be [asc] or [desc]'],
  [{ sort: { settings: 'asc' } }, 'sort: column [settings]: cannot be sorted by'],
  [{ sort: 'settings->theme' }, 'sort: column [settings->theme]: cannot be sorted by'],
  [{ sort: ['tags'] }, 'sort: column [tags]: cannot be sorted by'],
  [{ sort: 5 }, 'sort: expected an object or a list'],
  [{ sort: Array(17).fill('name') }, 'sort: takes at most 16 columns'],
  [{ columns: ['nope'] }, notFound('nope')],
  [{ columns: ['team.nope'] }, notFound('team.nope')],
  [{ page: { size: 1001 } }, 'page size exceeds max limit of 1000'],
  [{ page: { offset: 49_001 } }, 'page offset must not exceed 49000'],
  [{ page: { after: 'nonsense' } }, 'page: invalid cursor'],
  [{ page: { start: 'end' } }, 'page: invalid cursor'],
  [{ page: { start: 'a', end: 'b' } }, 'page: [start] and [end] stand alone'],
  [{ page: { after: 'a', start: 'b' } }, 'page: [start] and [end] stand alone'],
]

describe('a query that is refused', () => {
  it.each(REFUSALS)('names what is wrong with %j', async (body, message) => {
    const answer = await query(main, body)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      message,
      code: 'invalid_request',
    })
    expect(answer.status).toBe(400)
  })

  it.each([
    [{ page: { size: 0 } }, 'size'],
    [{ page: { offset: -1 } }, 'offset'],
    [{ page: { size: 1.5 } }, 'size'],
    [{ page: { next: 'a' } }, 'next'],
    [{ where: {} }, 'where'],
    [{ consistency: 'none' }, 'consistency'],
  ])('is malformed: %j', async (body, name) => {
    const answer = await query(main, body)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(name)
  })

  it('is too deep or too large', async () => {
    let filter: object = { name: 'Ada' }
    for (let depth = 0; depth < 60; depth++) filter = { $not: filter }
    expect((await query(main, { filter })).body.message).toMatch(/nested more than 50 levels/)
    const many = { filter: { name: Array(20_001).fill('x') } }
    expect((await query(main, many)).body.message).toMatch(/more than 20000 conditions/)
    const patterns = { name: Array(19_000).fill({ $endsWith: 'x' }) }
    expect((await query(fork, { filter: patterns })).body.message).toMatch(
      /more than \d+ comparisons/,
    )
  })

  it('is of a table or a branch that is not there', async () => {
    expect((await query(main, {}, 'nope')).status).toBe(404)
    expect((await query(branchCall(service, 'shop', { branch: 'nope' }), {})).status).toBe(404)
  })
})

describe('the order', () => {
  it.each([
    ['by a name', 'age', ['dee', 'ada', 'cyd', 'bob', 'eve']],
    ['by an object', { age: 'desc' }, ['bob', 'ada', 'cyd', 'dee', 'eve']],
    [
      'by a list of objects',
      [{ age: 'asc' }, { name: 'desc' }],
      ['dee', 'cyd', 'ada', 'bob', 'eve'],
    ],
    ['by a list of names', ['age', 'name'], ['dee', 'ada', 'cyd', 'bob', 'eve']],
    ['by code point', { name: 'asc' }, ['ada', 'bob', 'dee', 'cyd', 'eve']],
    ['by float', { score: 'asc' }, ['bob', 'cyd', 'ada', 'dee', 'eve']],
    ['by bool', { active: 'desc' }, ['ada', 'cyd', 'bob', 'dee', 'eve']],
    ['by time', { joined: 'desc' }, ['cyd', 'bob', 'ada', 'dee', 'eve']],
    ['by link', { team: 'asc' }, ['ada', 'cyd', 'dee', 'bob', 'eve']],
    ['through a link', { 'team.level': 'desc' }, ['bob', 'ada', 'dee', 'cyd', 'eve']],
    ['by id', { id: 'desc' }, [...ALL].reverse()],
    ['by nothing', [], ALL],
  ])('is %s, nulls last', async (_name, sort, ids) => {
    for (const call of [main, fork]) expect(idsOf(await query(call, { sort }))).toEqual(ids)
  })

  it('is by metadata', async () => {
    const answer = await query(main, { sort: [{ 'xata.createdAt': 'asc' }, 'service.version'] })
    expect(idsOf(answer)).toHaveLength(5)
  })

  it('is by chance, and the same one from page to page', async () => {
    const orders = new Set<string>()
    for (let round = 0; round < 8; round++) {
      for (const call of [main, fork]) {
        const ids = await walk(call, { sort: { '*': 'random' } }, 2)
        expect([...ids].sort()).toEqual(ALL)
        orders.add(ids.join())
      }
    }
    expect(orders.size).toBeGreaterThan(1)
  })

  it('is by chance among equals', async () => {
    const sort = [{ age: 'asc' }, { '*': 'random' }]
    const seen = new Set<string>()
    for (let round = 0; round < 30; round++) {
      const ids = await walk(fork, { sort }, 1)
      expect([ids[0], ids[3], ids[4]]).toEqual(['dee', 'bob', 'eve'])
      seen.add(ids.slice(1, 3).join())
    }
    expect([...seen].sort()).toEqual(['ada,cyd', 'cyd,ada'])
  })
})

/** Reads all ids of a query, page by page. */
async function walk(call: BranchCall, body: object, size: number): Promise<string[]> {
  const ids: string[] = []
  let answer = await query(call, { ...body, page: { size } })
  for (;;) {
    ids.push(...idsOf(answer))
    if (!answer.body.meta.page.more) return ids
    answer = await query(call, { page: { after: answer.body.meta.page.cursor } })
  }
}

describe('the columns', () => {
  it('are all, with links as ids, or those asked for, always with id and metadata', async () => {
    const filter = { id: 'ada' }
    const metadata = {
      version: expect.any(Number),
      createdAt: expect.any(String),
      updatedAt: expect.any(String),
    }
    const all = await query(fork, { filter })
    expect(all.body.records).toEqual([
      {
        ...PEOPLE_ROWS.ada,
        id: 'ada',
        team: { id: 'core' },
        address: { city: 'London', notes: { floor: 3 }, landlord: { id: 'bob' } },
        service: metadata,
      },
    ])
    const some = await query(fork, { filter, columns: ['name', 'team.name', 'team.parent.*'] })
    expect(some.body.records).toEqual([
      {
        id: 'ada',
        name: 'Ada',
        team: {
          id: 'core',
          name: 'Core',
          parent: {
            id: 'root',
            name: 'Root',
            level: 1,
            lead: { id: 'ada' },
            rules: { open: true },
            service: metadata,
          },
          service: metadata,
        },
        service: metadata,
      },
    ])
    const forXata = await fork('POST', '/tables/people/query', {
      body: { filter, columns: ['settings', 'team.rules'] },
      headers: XATA_CLIENT,
    })
    expect(forXata.body.records[0]).toEqual({
      id: 'ada',
      settings: expect.stringContaining('"theme": "dark"'),
      team: { id: 'core', xata: metadata },
      xata: metadata,
    })
  })

  it('are named by objects too, as clients write them', async () => {
    const filter = { id: 'ada' }
    const columns = [{ name: 'settings' }, { name: 'team', columns: ['name', 'rules'] }]
    const named = await query(main, { filter, columns })
    const plain = await query(main, { filter, columns: ['settings', 'team.name', 'team.rules'] })
    expect(expectOk(named).body.records).toEqual(plain.body.records)
    const whole = await query(main, { filter, columns: [{ name: 'team', columns: [] }] })
    expect(whole.body.records).toEqual(
      (await query(main, { filter, columns: ['team'] })).body.records,
    )
    for (const columns of ['name', [1]]) {
      const refused = await query(main, { filter, columns: [{ name: 'team', columns }] })
      expect(refused.status).toBe(400)
    }
  })

  it('leave out links to records that are gone', async () => {
    const answer = await query(main, { filter: { id: 'cyd' }, columns: ['name', 'team.*'] })
    expect(Object.keys(answer.body.records[0])).toEqual(['id', 'name', 'service'])
  })
})

describe('pages', () => {
  let pages: BranchCall
  let inherited: BranchCall
  const COUNT = 25
  const id = (index: number) => `r${String(index).padStart(2, '0')}`
  const from = (start: number, end: number) =>
    Array.from({ length: end - start }, (_, index) => id(start + index))

  beforeAll(async () => {
    pages = await createTables(service, 'pages', {
      rows: [
        { name: 'group', type: 'int' },
        { name: 'time', type: 'datetime' },
        { name: 'ratio', type: 'float' },
        { name: 'flag', type: 'bool' },
        { name: 'label', type: 'string' },
      ],
    })
    const row = (index: number) => ({
      id: id(index),
      ...(index % 5 === 4 ? {} : { group: index % 3 }),
      ...(index % 4 === 3 ? {} : { time: `2026-01-01T00:00:00.${100 + (index % 7)}Z` }),
      ...(index % 6 === 5 ? {} : { ratio: (index % 4) / 3 }),
      ...(index % 3 === 2 ? {} : { flag: index % 2 === 0 }),
      ...(index % 8 === 7 ? {} : { label: `l"\\${index % 5}` }),
    })
    const all = Array.from({ length: COUNT }, (_, index) => row(index))
    expectOk(
      await pages('POST', '/tables/rows/bulk', { body: { records: all.slice(0, COUNT - 5) } }),
    )
    const path = `${service.workspace}/db/pages:inherited`
    expectOk(await service.call('PUT', path, { body: { from: 'main' } }))
    inherited = branchCall(service, 'pages', { branch: 'inherited' })
    for (const call of [pages, inherited]) {
      expectOk(await call('POST', '/tables/rows/bulk', { body: { records: all.slice(COUNT - 5) } }))
      // Write the record again, so that the fork has it in its own heap.
      expectOk(await call('PUT', `/tables/rows/data/${id(3)}`, { body: row(3) }))
    }
  })

  const page = async (call: BranchCall, body: object) => {
    const answer = await query(call, body, 'rows')
    const { cursor, more, size } = expectOk(answer).body.meta.page
    return { ids: idsOf(answer), cursor: cursor as string, more, size }
  }

  it('have 20 records, or as many as asked for, from an offset', async () => {
    expect(await page(pages, {})).toMatchObject({ ids: from(0, 20), more: true, size: 20 })
    const offset = { page: { size: 5, offset: 20 } }
    expect(await page(inherited, offset)).toMatchObject({ ids: from(20, 25), more: false, size: 5 })
    const last = { page: { size: 4, offset: 20 } }
    expect(await page(inherited, last)).toMatchObject({ ids: from(20, 24), more: true })
    expect(await page(pages, { page: { size: 1000, offset: 49_000 } })).toMatchObject({ ids: [] })
    expect(await page(pages, { page: { size: 1 } })).toMatchObject({ ids: from(0, 1), more: true })
  })

  const SORTS = [
    [],
    { group: 'asc' },
    { group: 'desc' },
    [{ time: 'desc' }, { label: 'asc' }],
    [{ ratio: 'asc' }, { flag: 'desc' }, { group: 'asc' }],
    [{ label: 'desc' }, { id: 'desc' }],
    [{ 'xata.createdAt': 'desc' }],
    [{ flag: 'asc' }, { '*': 'random' }],
  ]

  it.each(SORTS.map((sort) => [JSON.stringify(sort), sort] as const))(
    'lead on and back again, sorted by %s',
    async (_text, sort) => {
      for (const call of [pages, inherited]) {
        const first = await page(call, { sort, page: { size: 4 } })
        const forward = [first]
        for (let at = first; at.more; at = forward.at(-1) ?? at) {
          forward.push(await page(call, { page: { after: at.cursor } }))
        }
        const order = forward.flatMap(({ ids }) => ids)
        expect(new Set(order).size).toBe(COUNT)
        expect(forward.map(({ ids }) => ids.length)).toEqual([4, 4, 4, 4, 4, 4, 1])
        const whole = await page(call, { page: { start: first.cursor, size: 1000 } })
        expect(whole).toMatchObject({ ids: order, more: false, size: 1000 })

        const last = forward.at(-1) ?? first
        const backward: string[] = []
        for (let at = last; ; ) {
          const previous = await page(call, { page: { before: at.cursor } })
          backward.unshift(...previous.ids)
          if (!previous.more) break
          at = previous
        }
        expect(backward).toEqual(order.slice(0, 24))

        const start = await page(call, { page: { start: last.cursor } })
        expect(start).toMatchObject({ ids: order.slice(0, 4), more: true, size: 4 })
        const end = await page(call, { page: { end: first.cursor } })
        expect(end).toMatchObject({ ids: order.slice(-4), more: true, size: 4 })
        const three = await page(call, { page: { end: first.cursor, size: 3, offset: 2 } })
        expect(three.ids).toEqual(order.slice(-5, -2))

        const between = { after: first.cursor, before: last.cursor, size: 100 }
        expect(await page(call, { page: between })).toMatchObject({
          ids: order.slice(4, 24),
          more: false,
        })
        const turned = { after: last.cursor, before: first.cursor }
        expect(await page(call, { page: turned })).toMatchObject({ ids: [], more: false })
        const skipped = { after: first.cursor, offset: 3, size: 2 }
        expect((await page(call, { page: skipped })).ids).toEqual(order.slice(7, 9))
      }
    },
  )

  it('end with the literal end', async () => {
    const sort = { group: 'desc' }
    const order = (await page(inherited, { sort, page: { size: 100 } })).ids
    const last = await page(inherited, { sort, page: { before: 'end', size: 3 } })
    expect(last).toMatchObject({ ids: order.slice(-3), more: true, size: 3 })
    const previous = await page(inherited, { page: { before: last.cursor } })
    expect(previous.ids).toEqual(order.slice(-6, -3))
    const rest = await page(inherited, { page: { after: previous.cursor, before: 'end' } })
    expect(rest).toMatchObject({ ids: order.slice(-3), more: false })
    const tail = await page(inherited, { sort, page: { after: 'end', size: 2 } })
    expect(tail).toMatchObject({ ids: [], more: false, size: 2 })
    const before = await page(inherited, { page: { before: tail.cursor } })
    expect(before.ids).toEqual(order.slice(-2))
  })

  it('start without a cursor when it is null, as in the first round of a loop', async () => {
    const none = { after: null, before: null, start: null, end: null }
    const first = await page(pages, { filter: null, sort: null, page: { size: 2, ...none } })
    expect(first.ids).toEqual((await page(pages, { page: { size: 2 } })).ids)
    const cursor = { ...none, after: first.cursor }
    const next = await page(pages, { filter: null, sort: null, page: cursor })
    expect(next.ids).toEqual((await page(pages, { page: { after: first.cursor } })).ids)
  })

  it('may be of other columns and another size than their cursor', async () => {
    const body = { filter: { group: 1 }, columns: ['group'], page: { size: 2 } }
    const first = await query(pages, body, 'rows')
    const { cursor } = first.body.meta.page
    expect(Object.keys(first.body.records[0])).toEqual(['id', 'group', 'service'])
    const second = await query(pages, { page: { after: cursor } }, 'rows')
    expect(Object.keys(second.body.records[0])).toEqual(['id', 'group', 'service'])
    const other = { columns: ['label'], page: { after: cursor, size: 3 } }
    const third = await query(pages, other, 'rows')
    expect(Object.keys(third.body.records[0])).toEqual(['id', 'label', 'service'])
    expect(third.body.meta.page.size).toBe(3)
    expect(idsOf(third).slice(0, 2)).toEqual(idsOf(second))
  })

  it('keep a filter of many ids', async () => {
    const ids = Array.from({ length: 1500 }, (_, index) => `a-rather-long-record-id-${index}`)
    const filter = { id: { $any: [...ids, ...from(0, 25)] } }
    const first = await page(inherited, { filter, page: { size: 10 } })
    const second = await page(inherited, { page: { after: first.cursor } })
    expect([...first.ids, ...second.ids]).toEqual(from(0, 20))
  })

  it('have a cursor to tail from when they are empty', async () => {
    const filter = { label: 'tail' }
    const empty = await page(inherited, { filter })
    expect(empty).toMatchObject({ ids: [], more: false })
    const add = async (name: string) =>
      expectOk(await inherited('PUT', `/tables/rows/data/${name}`, { body: { label: 'tail' } }))
    await add('t1')
    const first = await page(inherited, { page: { after: empty.cursor } })
    expect(first.ids).toEqual(['t1'])
    const none = await page(inherited, { page: { after: first.cursor } })
    expect(none).toMatchObject({ ids: [], more: false })
    await add('t2')
    const second = await page(inherited, { page: { after: none.cursor } })
    expect(second.ids).toEqual(['t2'])
    // The page before an empty page has all records up to it.
    expect((await page(inherited, { page: { before: none.cursor } })).ids).toEqual(['t1'])
    const beyond = await page(inherited, { filter, page: { offset: 10 } })
    expect(beyond.ids).toEqual([])
    await add('t3')
    expect((await page(inherited, { page: { after: beyond.cursor } })).ids).toEqual(['t3'])
    expect((await page(inherited, { page: { before: beyond.cursor } })).ids).toEqual(['t1', 't2'])
    const start = await page(inherited, { page: { before: first.cursor } })
    expect(start).toMatchObject({ ids: [], more: false })
    const again = await page(inherited, { page: { after: start.cursor } })
    expect(again.ids).toEqual(['t1', 't2', 't3'])
    const end = await page(inherited, { filter, page: { after: 'end' } })
    await add('t4')
    expect((await page(inherited, { page: { after: end.cursor } })).ids).toEqual(['t4'])
    for (const name of ['t1', 't2', 't3', 't4']) {
      expectOk(await inherited('DELETE', `/tables/rows/data/${name}`))
    }
  })

  it('refuse a filter or sort besides a cursor, and cursors of different queries', async () => {
    const { cursor } = await page(pages, { sort: 'group', page: { size: 2 } })
    const other = await page(pages, { sort: 'label', page: { size: 2 } })
    for (const more of [{ filter: {} }, { sort: 'group' }]) {
      const answer = await query(pages, { ...more, page: { after: cursor } }, 'rows')
      expect(answer.status).toBe(400)
      expect(answer.body.message).toMatch(/^page: a cursor brings its own filter and sort/)
    }
    const body = { page: { after: cursor, before: other.cursor } }
    expect((await query(pages, body, 'rows')).body.message).toBe(
      'page: [after] and [before] are of different queries',
    )
  })
})
