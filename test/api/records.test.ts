import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createKey } from '../support/people.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import {
  type BranchCall,
  createTables,
  GENERATED_ID,
  TIME,
  XATA_CLIENT,
} from '../support/tables.js'
import { takenFields } from '../support/taken.js'

let service: TestService
let call: BranchCall

const USERS: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'email', type: 'email', unique: true },
  { name: 'age', type: 'int' },
  { name: 'score', type: 'float' },
  { name: 'active', type: 'bool' },
  { name: 'bio', type: 'text' },
  { name: 'joined', type: 'datetime' },
  { name: 'team', type: 'link', link: { table: 'teams' } },
  {
    name: 'address',
    type: 'object',
    columns: [
      { name: 'city', type: 'string' },
      {
        name: 'geo',
        type: 'object',
        columns: [
          { name: 'lat', type: 'float' },
          { name: 'lng', type: 'float' },
        ],
      },
      { name: 'landlord', type: 'link', link: { table: 'users' } },
    ],
  },
  { name: 'tags', type: 'multiple' },
  { name: 'embedding', type: 'vector', vector: { dimension: 3 } },
  { name: 'settings', type: 'json' },
]

const ALL_VALUES = {
  name: 'Ada',
  email: 'ada@example.com',
  age: 36,
  score: 1.5,
  active: false,
  bio: '',
  joined: '2026-01-31T09:30:00.000Z',
  address: { city: 'London', geo: { lat: 51.5, lng: -0.25 } },
  tags: ['a', 'b'],
  embedding: [1, 0.5, -2],
  settings: { theme: 'dark', sizes: [1, 2.5, null], nested: { on: true } },
}

beforeAll(async () => {
  service = await createTestService()
  call = await createTables(service, 'shop', {
    users: USERS,
    teams: [
      { name: 'name', type: 'string' },
      { name: 'lead', type: 'link', link: { table: 'users' } },
      { name: 'parent', type: 'link', link: { table: 'teams' } },
    ],
    defaults: [
      { name: 'text', type: 'string', defaultValue: 'none' },
      { name: 'rank', type: 'int', notNull: true, defaultValue: '7' },
      { name: 'ratio', type: 'float', defaultValue: '0.25' },
      { name: 'active', type: 'bool', defaultValue: 'true' },
      { name: 'made', type: 'datetime', defaultValue: 'now' },
      { name: 'since', type: 'datetime', defaultValue: '2020-02-29T23:59:59+01:00' },
      { name: 'document', type: 'json', defaultValue: '{"a":[1]}' },
      { name: 'note', type: 'text', notNull: true, defaultValue: '' },
      { name: 'needed', type: 'string', notNull: true },
    ],
    counters: [
      { name: 'whole', type: 'int' },
      { name: 'real', type: 'float' },
      { name: 'label', type: 'string' },
      { name: 'small', type: 'int', bits: 16 },
      { name: 'price', type: 'decimal', decimal: { precision: 4, scale: 2 } },
      { name: 'tiny', type: 'decimal', decimal: { precision: 2, scale: 2 } },
    ],
    uniques: [
      { name: 'word', type: 'string', unique: true },
      { name: 'number', type: 'int', unique: true },
      { name: 'moment', type: 'datetime', unique: true },
    ],
    bare: [],
    files: [
      { name: 'name', type: 'string' },
      { name: 'photo', type: 'file' },
      { name: 'gallery', type: 'file[]' },
    ],
  })
})
afterAll(() => service.close())

const path = (table: string, id?: string, query = '') =>
  `/tables/${table}/data${id === undefined ? '' : `/${encodeURIComponent(id)}`}${query}`
const insert = (table: string, body: unknown, query = '') =>
  call('POST', path(table, undefined, query), { body })
const read = (table: string, id: string, query = '') => call('GET', path(table, id, query))
const put = (table: string, id: string, body: unknown, query = '') =>
  call('PUT', path(table, id, query), { body })
const patch = (table: string, id: string, body: unknown, query = '') =>
  call('PATCH', path(table, id, query), { body })
const upsert = (table: string, id: string, body: unknown, query = '') =>
  call('POST', path(table, id, query), { body })
const remove = (table: string, id: string, query = '') => call('DELETE', path(table, id, query))

const created = async (table: string, body: unknown): Promise<string> => {
  const answer = await insert(table, body)
  expect(answer.status).toBe(201)
  return answer.body.id
}
const faultFields = (message: string) => {
  const [, column] = /column \[(.*?)\]: /s.exec(message) ?? []
  return { table: expect.any(String), ...(column && { column }) }
}
const expectRefusal = (answer: Answer, status: number, code: string, message: string) => {
  expect(answer.status).toBe(status)
  const { record, ...body } = answer.body
  expect(code === 'invalid_record' || record === undefined).toBe(true)
  expect(body).toEqual({
    id: answer.headers['x-request-id'],
    message,
    code,
    ...(code === 'invalid_record' ? faultFields(message) : {}),
    ...(code === 'version_conflict' ? { status } : {}),
    ...(code.endsWith('_violation') ? takenFields(message) : {}),
  })
}

describe('POST data', () => {
  it('answers with a generated id and the metadata alone', async () => {
    const answer = await insert('users', ALL_VALUES)
    expect(answer.status).toBe(201)
    expect(answer.body).toEqual({
      id: expect.stringMatching(GENERATED_ID),
      service: {
        version: 0,
        createdAt: expect.stringMatching(TIME),
        updatedAt: answer.body.service.createdAt,
      },
    })
    const { id, service: metadata } = answer.body
    expect((await read('users', id)).body).toEqual({ id, ...ALL_VALUES, service: metadata })
  })

  it('answers with the columns that were asked for', async () => {
    const { body } = await insert('users', { name: 'A', age: 1 }, '?columns=name')
    expect(Object.keys(body).sort()).toEqual(['id', 'name', 'service'])
  })

  it.each([
    ['no body', undefined],
    ['an empty body', {}],
  ])('takes %s as a record without values', async (_name, body) => {
    const answer = await insert('users', body)
    expect(answer.status).toBe(201)
    const { id } = answer.body
    expect((await read('users', id)).body).toEqual({ id, service: answer.body.service })
  })

  it('makes ids that sort in the order in which they were made', async () => {
    const ids: string[] = []
    for (let count = 0; count < 20; count++) ids.push(await created('bare', {}))
    expect(ids).toEqual([...ids].sort())
  })

  it('uses an id that is given, and refuses it a second time', async () => {
    expect((await insert('bare', { id: 'mine' })).body.id).toBe('mine')
    expectRefusal(
      await insert('bare', { id: 'mine' }),
      400,
      'unique_violation',
      'invalid record: column [id]: is not unique',
    )
  })

  it('ignores the metadata keys of both forms, whatever they hold', async () => {
    const body = { name: 'x', xata: { version: 9 }, service: 'anything' }
    const answer = await insert('users', body, '?columns=*')
    expect(answer.status).toBe(201)
    expect(answer.body).toMatchObject({ name: 'x', service: { version: 0 } })
    expect(answer.body).not.toHaveProperty('xata')
  })

  it('leaves null columns out, and accepts explicit nulls', async () => {
    const id = await created('users', { name: null, address: null, tags: null, team: null, age: 1 })
    expect((await read('users', id)).body).toEqual({ id, age: 1, service: expect.anything() })
  })

  it('tells an empty object, an empty list and an empty text from none', async () => {
    const values = { address: { geo: {} }, tags: [], name: '', settings: {} }
    const id = await created('users', values)
    expect((await read('users', id)).body).toMatchObject(values)
    const other = await created('users', { address: {} })
    expect((await read('users', other)).body.address).toEqual({})
  })

  it('fills defaults where nothing is given, also that of a not-null column', async () => {
    const before = Date.now()
    const id = await created('defaults', { needed: 'x' })
    const { body } = await read('defaults', id)
    expect(body).toMatchObject({
      text: 'none',
      rank: 7,
      ratio: 0.25,
      active: true,
      since: '2020-02-29T22:59:59.000Z',
      document: { a: [1] },
      note: '',
    })
    expect(Date.parse(body.made)).toBeGreaterThanOrEqual(before - 1)
    expect(Date.parse(body.made)).toBeLessThanOrEqual(Date.now())
  })

  it('keeps an explicit null instead of the default, except in a not-null column', async () => {
    const id = await created('defaults', { needed: 'x', text: null, made: null })
    const { body } = await read('defaults', id)
    expect(body).not.toHaveProperty('text')
    expect(body).not.toHaveProperty('made')
  })

  it.each<[string, string, unknown, string]>([
    ['an unknown column', 'users', { nope: 1 }, 'column [nope]: column not found'],
    [
      'an unknown nested column',
      'users',
      { address: { zip: 1 } },
      'column [address.zip]: column not found',
    ],
    ['a column in other case', 'users', { Name: 'x' }, 'column [Name]: column not found'],
    ['a wrong type', 'users', { age: '36' }, 'column [age]: expected a whole number, got a string'],
    [
      'a fraction in an int',
      'users',
      { age: 0.5 },
      'column [age]: expected a whole number, got a fraction',
    ],
    [
      'arithmetic in a new record',
      'users',
      { age: { $increment: 1 } },
      'column [age]: expected a whole number, got an object',
    ],
    ['a missing value', 'defaults', {}, 'column [needed]: a value is required'],
    ['null in a not-null column', 'defaults', { needed: null }, 'column [needed]: cannot be null'],
    [
      'null in a not-null column with a default',
      'defaults',
      { needed: 'x', rank: null },
      'column [rank]: cannot be null',
    ],
    [
      'several faults',
      'users',
      { nope: 1, age: 'x' },
      'column [nope]: column not found; column [age]: expected a whole number, got a string',
    ],
    [
      'an id of the wrong type',
      'bare',
      { id: 5 },
      'column [id]: expected a record id, got a number',
    ],
    ['a null id', 'bare', { id: null }, 'column [id]: expected a record id, got null'],
    [
      'an empty id',
      'bare',
      { id: '' },
      'column [id]: is empty; a record id has at least one character',
    ],
    [
      'an id with a space',
      'bare',
      { id: 'a b' },
      'column [id]: is not a record id: only letters, digits and _ - ~ : ` { | } are allowed',
    ],
    [
      'an id that is too long',
      'bare',
      { id: 'x'.repeat(256) },
      'column [id]: is longer than 255 characters',
    ],
  ])('refuses %s with 400', async (_name, table, body, message) => {
    const { code = 'invalid_record' } = takenFields(message) as { code?: string }
    expectRefusal(await insert(table, body), 400, code, `invalid record: ${message}`)
  })

  it.each([
    ['a list', '[]'],
    ['a string', '"x"'],
    ['a number', '5'],
    ['broken JSON', '{"a":'],
  ])('refuses %s as a record with 400', async (_name, body) => {
    const answer = await insert('users', body)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toMatch(/^body: /)
  })

  it('answers 404 for an unknown table, branch and database', async () => {
    expectRefusal(await insert('nope', {}), 404, 'table_not_found', 'table [nope] not found')
    const at = (where: string) =>
      service.call('POST', `${service.workspace}/db/${where}/tables/users/data`, { body: {} })
    expect((await at('shop:nope')).body.code).toBe('branch_not_found')
    expect((await at('nope:main')).body.code).toBe('database_not_found')
  })

  it('refuses a value that is taken in a unique column, and takes any number of nulls', async () => {
    await created('uniques', { word: 'once', number: 1, moment: '2026-01-01T00:00:00Z' })
    const refused = (column: string) => `invalid record: column [${column}]: is not unique`
    for (const [body, column] of [
      [{ word: 'once' }, 'word'],
      [{ number: 1 }, 'number'],
      [{ moment: '2026-01-01T01:00:00+01:00' }, 'moment'],
    ] as const) {
      expectRefusal(await insert('uniques', body), 400, 'unique_violation', refused(column))
    }
    await created('uniques', { word: 'Once' })
    await created('uniques', {})
    await created('uniques', { word: null })
  })
})

describe('ids', () => {
  it.each([
    ['a'],
    ['0'],
    ['_'],
    ['-'],
    ['~'],
    [':'],
    ['`'],
    ['{|}'],
    ['null'],
    ['__proto__'],
    ['x'.repeat(255)],
    ['rec_~:`{|}-_A9'],
  ])('can be %s', async (id) => {
    expect((await put('bare', id, {})).status).toBe(201)
    expect((await read('bare', id)).body.id).toBe(id)
    expect((await patch('bare', id, {})).body).toMatchObject({ id, service: { version: 1 } })
    expect((await remove('bare', id)).status).toBe(204)
    expect((await read('bare', id)).status).toBe(404)
  })

  it.each([
    ['a b'],
    ['a/b'],
    ['a.b'],
    ['é'],
    ['a\0'],
    ['a"b'],
    ["a'b"],
    ['a\\b'],
    ['x'.repeat(256)],
  ])('cannot be %j', async (id) => {
    for (const method of ['GET', 'PUT', 'PATCH', 'POST', 'DELETE']) {
      const body = method === 'GET' || method === 'DELETE' ? undefined : {}
      expect((await call(method, path('bare', id), { body })).status).toBe(400)
    }
  })

  it.each(['GET', 'PUT', 'PATCH', 'POST', 'DELETE'])(
    'answer %s with 404 when they are empty',
    async (method) => {
      const body = method === 'GET' || method === 'DELETE' ? undefined : {}
      expect((await call(method, `${path('bare')}/`, { body })).status).toBe(404)
    },
  )
})

describe('hostile values', () => {
  const texts = [
    "Robert'); drop table users; --",
    '$1 $$ \\ \\\\ " \\" {} {a,"b"} NULL null \\N \\.',
    '\t\n\r\b\f\v\u001f\u007f',
    '\u2028\u2029\ufeff\u200d👩‍👩‍👧‍👦é\u0301𝔘',
    ' leading and trailing ',
    '\\.',
    '}',
    '%s%n{{x}}',
  ]

  it('are kept as they are in every column that can hold them', async () => {
    for (const text of texts) {
      const values = {
        name: text,
        bio: text,
        tags: [text, '', 'NULL', text],
        settings: { [text]: [text] },
        address: { city: text },
      }
      for (const write of [
        () => insert('users', values),
        () => put('users', 'hostile', values),
        () => patch('users', 'hostile', values),
      ]) {
        const { status, body } = await write()
        expect(status).toBeLessThan(300)
        expect((await read('users', body.id)).body).toMatchObject(values)
      }
    }
  })

  it.each([
    ['NUL', 'a\0b', 'contains a NUL character, which cannot be stored'],
    [
      'half of a surrogate pair',
      'a\ud800',
      'contains half of a surrogate pair, which cannot be stored',
    ],
  ])('that hold %s are refused', async (_name, text, message) => {
    for (const column of ['name', 'bio', 'settings']) {
      const body = { [column]: column === 'settings' ? { deep: [text] } : text }
      const answer = await insert('users', JSON.stringify(body))
      expectRefusal(answer, 400, 'invalid_record', `invalid record: column [${column}]: ${message}`)
    }
  })

  it('cannot reach prototypes', async () => {
    for (const key of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
      const answer = await insert('users', `{${JSON.stringify(key)}: {"name": "x"}}`)
      expect(answer.status).toBe(400)
      expect(answer.body.message).toContain(`column [${key}]: column not found`)
    }
  })

  it('cannot be found under names that every object has', async () => {
    const columns = ['__proto__', 'constructor', 'toString'].map((name) => ({
      name,
      type: 'string',
    }))
    await call('PUT', '/tables/prototypes')
    for (const column of columns) {
      expect((await call('POST', '/tables/prototypes/columns', { body: column })).status).toBe(200)
    }
    const text = '{"__proto__":"a","constructor":"b","toString":"c"}'
    const id = await created('prototypes', text)
    const response = await service.app.inject({
      url: `${service.workspace}/db/shop:main${path('prototypes', id)}`,
      headers: { authorization: `Bearer ${service.key}` },
    })
    expect(response.body).toContain(text.slice(1, -1))
    expect((await read('prototypes', await created('prototypes', {}))).body).toEqual({
      id: expect.any(String),
      service: expect.anything(),
    })
  })

  it('keep numbers to the last digit, or are refused', async () => {
    const numbers = [0, -0, 5e-324, 1.7976931348623157e308, 0.1, 1 / 3, -2.5e-10, 2 ** 53 - 1]
    for (const score of numbers) {
      const text = Object.is(score, -0) ? '-0' : JSON.stringify(score)
      const id = await created('users', `{"score": ${text}}`)
      expect(Object.is((await read('users', id)).body.score, score)).toBe(true)
    }
    expect((await insert('users', '{"score": 1e400}')).status).toBe(400)
    expect((await insert('users', '{"age": 9007199254740993}')).status).toBe(400)
    const id = await created('users', { age: -(2 ** 53 - 1) })
    expect((await read('users', id)).body.age).toBe(-(2 ** 53 - 1))
  })
})

describe('GET data', () => {
  it('answers 404 for a record that is not there', async () => {
    const answer = await read('users', 'missing')
    expectRefusal(answer, 404, 'record_not_found', 'table [users]: record [missing] not found')
  })

  it('answers 404 for an unknown table', async () => {
    expectRefusal(await read('nope', 'x'), 404, 'table_not_found', 'table [nope] not found')
  })

  describe('with columns', () => {
    let ada: string

    beforeAll(async () => {
      await put('teams', 'root', { name: 'Root' })
      await put('teams', 'core', { name: 'Core', parent: 'root', lead: 'grace' })
      await put('users', 'grace', { name: 'Grace', age: 40, team: 'core' })
      ada = 'projected'
      await put('users', ada, {
        name: 'Ada',
        age: 36,
        team: 'core',
        address: { city: 'London', geo: { lat: 1, lng: 2 }, landlord: 'grace' },
        settings: { a: 1 },
      })
    })

    const service0 = { version: 0, createdAt: expect.any(String), updatedAt: expect.any(String) }
    const core = { id: 'core', name: 'Core', service: service0 }
    const grace = { id: 'grace', name: 'Grace', age: 40, team: { id: 'core' }, service: service0 }
    const geo = { lat: 1, lng: 2 }

    it.each<[string, Record<string, unknown>]>([
      ['name', { name: 'Ada' }],
      ['name,age', { name: 'Ada', age: 36 }],
      ['name&columns=age', { name: 'Ada', age: 36 }],
      [' name , age ', { name: 'Ada', age: 36 }],
      ['name,name', { name: 'Ada' }],
      ['id', {}],
      ['service.version', {}],
      ['xata.createdAt', {}],
      ['service', {}],
      ['email', {}],
      ['address', { address: { city: 'London', geo, landlord: { id: 'grace' } } }],
      ['address.city', { address: { city: 'London' } }],
      ['address.geo', { address: { geo } }],
      ['address.geo.lat', { address: { geo: { lat: 1 } } }],
      ['address.geo.lat,address.city', { address: { city: 'London', geo: { lat: 1 } } }],
      ['address.geo.*', { address: { geo } }],
      ['address.*', { address: { city: 'London', geo, landlord: { id: 'grace' } } }],
      ['address.landlord', { address: { landlord: grace } }],
      [
        'address.landlord.name',
        { address: { landlord: { id: 'grace', name: 'Grace', service: service0 } } },
      ],
      [
        'address.city,address.landlord.age',
        { address: { city: 'London', landlord: { id: 'grace', age: 40, service: service0 } } },
      ],
      ['team', { team: { ...core, parent: { id: 'root' }, lead: { id: 'grace' } } }],
      ['team.*', { team: { ...core, parent: { id: 'root' }, lead: { id: 'grace' } } }],
      ['team.name', { team: core }],
      ['team.id', { team: { id: 'core', service: service0 } }],
      ['team.service.version', { team: { id: 'core', service: service0 } }],
      [
        'team.parent.name',
        {
          team: {
            id: 'core',
            service: service0,
            parent: { id: 'root', name: 'Root', service: service0 },
          },
        },
      ],
      [
        'team.name,team.parent',
        { team: { ...core, parent: { id: 'root', name: 'Root', service: service0 } } },
      ],
      [
        'team.lead.team.parent.name',
        {
          team: {
            id: 'core',
            service: service0,
            lead: {
              id: 'grace',
              service: service0,
              team: {
                id: 'core',
                service: service0,
                parent: { id: 'root', name: 'Root', service: service0 },
              },
            },
          },
        },
      ],
      ['name,team.name', { name: 'Ada', team: core }],
    ])('%s gives exactly that', async (columns, expected) => {
      const { status, body } = await read('users', ada, `?columns=${columns}`)
      expect(status).toBe(200)
      expect(body).toEqual({ id: ada, service: service0, ...expected })
    })

    it('* gives every own column and links as no more than their id', async () => {
      const everything = (await read('users', ada)).body
      expect(everything.team).toEqual({ id: 'core' })
      expect((await read('users', ada, '?columns=*')).body).toEqual(everything)
      const { body } = await read('users', ada, '?columns=*,team.name')
      expect(body).toEqual({ ...everything, team: core })
    })

    it('leaves out a link that leads nowhere, when it is to be expanded', async () => {
      await put('users', 'dangling', { name: 'x', team: 'nobody' })
      expect((await read('users', 'dangling')).body.team).toEqual({ id: 'nobody' })
      for (const columns of ['team', 'team.name', 'name,team.parent.name']) {
        const { body } = await read('users', 'dangling', `?columns=${columns}`)
        expect(body).not.toHaveProperty('team')
      }
    })

    it('leaves out what hangs on a link that is null', async () => {
      await put('users', 'teamless', { name: 'x' })
      const { body } = await read('users', 'teamless', '?columns=name,team.parent.name')
      expect(body).toEqual({ id: 'teamless', name: 'x', service: service0 })
    })

    it.each([
      ['nope'],
      ['name.nope'],
      ['team.nope'],
      ['team.parent.nope'],
      ['address.nope'],
      ['address.geo.lat.x'],
      ['address.landlord.nope'],
      ['service.nope'],
      ['xata.nope'],
      ['settings.a'],
      ['name.*'],
      ['*.name'],
      ['**'],
      ['__proto__'],
    ])('refuses %s with 400', async (columns) => {
      expectRefusal(
        await read('users', ada, `?columns=${columns}`),
        400,
        'invalid_request',
        `table [users]: column [${columns}]: column not found`,
      )
    })

    it('refuses a path that leads through more links than anyone can mean', async () => {
      const columns = `${'team.lead.'.repeat(20)}name`
      const answer = await read('users', ada, `?columns=${columns}`)
      expect(answer.status).toBe(400)
      expect(answer.body.message).toContain('cannot be expanded')
    })

    it('refuses unknown columns of a write before it has any effect', async () => {
      for (const [method, id, body] of [
        ['POST', undefined, { name: 'unseen' }],
        ['PUT', 'unseen', { name: 'unseen' }],
        ['POST', 'unseen', { name: 'unseen' }],
        ['PATCH', ada, { name: 'unseen' }],
        ['DELETE', ada, undefined],
      ] as const) {
        const answer = await call(method, path('users', id, '?columns=nope'), { body })
        expect(answer.status).toBe(400)
      }
      expect((await read('users', 'unseen')).status).toBe(404)
      expect((await read('users', ada)).body.name).toBe('Ada')
    })
  })
})

describe('PUT data', () => {
  it('creates with 201, then replaces the whole record with 200', async () => {
    const first = await put('users', 'put', { name: 'A', age: 1 })
    expect(first.status).toBe(201)
    expect(first.body).toEqual({ id: 'put', service: expect.objectContaining({ version: 0 }) })
    const second = await put('users', 'put', { name: 'B' }, '?columns=*')
    expect(second.status).toBe(200)
    expect(second.body).toEqual({
      id: 'put',
      name: 'B',
      service: {
        version: 1,
        createdAt: first.body.service.createdAt,
        updatedAt: expect.stringMatching(TIME),
      },
    })
    expect(Date.parse(second.body.service.updatedAt)).toBeGreaterThanOrEqual(
      Date.parse(first.body.service.updatedAt),
    )
    expect((await read('users', 'put')).body).toEqual(second.body)
  })

  it('sets unlisted columns to their default or null', async () => {
    await put('defaults', 'put', { needed: 'a', text: 'given', rank: 1, active: false })
    const { body } = await put('defaults', 'put', { needed: 'b' }, '?columns=text,rank,active')
    expect(body).toMatchObject({ text: 'none', rank: 7, active: true })
  })

  it('with createOnly refuses an id that exists with 422 and leaves the record alone', async () => {
    expect((await put('users', 'only', { name: 'A' }, '?createOnly=true')).status).toBe(201)
    expectRefusal(
      await put('users', 'only', { name: 'B' }, '?createOnly=true'),
      422,
      'already_exists',
      'table [users]: record [only] already exists',
    )
    expect((await read('users', 'only')).body).toMatchObject({ name: 'A', service: { version: 0 } })
    expect((await put('users', 'only', { name: 'B' }, '?createOnly=false')).status).toBe(200)
    expect((await put('users', 'only', { name: 'C' }, '?createOnly=True')).status).toBe(422)
    expect((await put('users', 'only', { name: 'C' }, '?createOnly=False')).status).toBe(200)
  })

  it('with ifVersion replaces only the version that is meant', async () => {
    await put('users', 'versioned', { name: 'A' })
    for (const version of [1, 5, 2_147_483_648, Number.MAX_SAFE_INTEGER]) {
      const answer = await put('users', 'versioned', { name: 'B' }, `?ifVersion=${version}`)
      expectRefusal(answer, 422, 'version_conflict', 'version condition not met')
    }
    expect((await read('users', 'versioned')).body).toMatchObject({
      name: 'A',
      service: { version: 0 },
    })
    expect(
      (await put('users', 'versioned', { name: 'B' }, '?ifVersion=0')).body.service.version,
    ).toBe(1)
  })

  it('with ifVersion still creates a record that is not there', async () => {
    const answer = await put('users', 'versioned-new', { name: 'A' }, '?ifVersion=3')
    expect(answer).toMatchObject({ status: 201, body: { service: { version: 0 } } })
  })

  it('starts over after a delete, also with its version', async () => {
    await put('users', 'again', { name: 'A' })
    await patch('users', 'again', { name: 'B' })
    await remove('users', 'again')
    const answer = await put('users', 'again', {})
    expect(answer).toMatchObject({ status: 201, body: { service: { version: 0 } } })
    expect((await read('users', 'again')).body).not.toHaveProperty('name')
  })

  it('refuses a unique value of another record, and takes its own again', async () => {
    await put('users', 'unique-a', { email: 'a@unique.test' })
    expect((await put('users', 'unique-a', { email: 'a@unique.test' })).status).toBe(200)
    expectRefusal(
      await put('users', 'unique-b', { email: 'a@unique.test' }),
      400,
      'unique_violation',
      'invalid record: column [email]: is not unique',
    )
    expect((await read('users', 'unique-b')).status).toBe(404)
    await remove('users', 'unique-a')
    expect((await put('users', 'unique-b', { email: 'a@unique.test' })).status).toBe(201)
  })

  it('refuses bad values and leaves the record alone', async () => {
    await put('users', 'bad', { name: 'A' })
    expect((await put('users', 'bad', { age: 'x' })).status).toBe(400)
    expect((await put('users', 'bad', { nope: 1 })).status).toBe(400)
    expect((await read('users', 'bad')).body).toMatchObject({ name: 'A', service: { version: 0 } })
  })

  it.each([
    'createOnly=maybe',
    'ifVersion=-1',
    'ifVersion=x',
    'ifVersion=1.5',
    'ifVersion=',
    'ifVersion=1e300',
    'ifVersion=9007199254740992',
  ])('refuses ?%s with 400', async (query) => {
    const answer = await put('users', 'query', {}, `?${query}`)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(`query: parameter [${query.split('=')[0]}]`)
    expect((await read('users', 'query')).status).toBe(404)
  })

  it('answers 404 for an unknown table', async () => {
    expect((await put('nope', 'x', {})).status).toBe(404)
  })
})

describe('PATCH data', () => {
  it('changes the given fields alone', async () => {
    await put('users', 'patch', { name: 'A', age: 1, address: { city: 'X', geo: { lat: 1 } } })
    const { body: before } = await read('users', 'patch')
    const answer = await patch('users', 'patch', { name: 'B' })
    expect(answer.status).toBe(200)
    expect(answer.body).toEqual({
      id: 'patch',
      service: { ...before.service, version: 1, updatedAt: expect.stringMatching(TIME) },
    })
    expect((await read('users', 'patch')).body).toEqual({
      ...before,
      name: 'B',
      service: answer.body.service,
    })
  })

  it('clears a column with null and replaces an object as a whole', async () => {
    await put('users', 'clear', { name: 'A', age: 1, address: { city: 'X', geo: { lat: 1 } } })
    const { body } = await patch(
      'users',
      'clear',
      { age: null, address: { city: 'Y' } },
      '?columns=*',
    )
    expect(body).toEqual({
      id: 'clear',
      name: 'A',
      address: { city: 'Y' },
      service: expect.anything(),
    })
    const cleared = await patch('users', 'clear', { address: null }, '?columns=*')
    expect(cleared.body).not.toHaveProperty('address')
  })

  it('does not fill defaults again', async () => {
    await put('defaults', 'patch', { needed: 'a', text: null })
    const { body } = await patch('defaults', 'patch', { needed: 'b' }, '?columns=*')
    expect(body).not.toHaveProperty('text')
    expect(body.needed).toBe('b')
  })

  it('refuses null in a not-null column', async () => {
    await put('defaults', 'null', { needed: 'a' })
    for (const column of ['needed', 'rank']) {
      expectRefusal(
        await patch('defaults', 'null', { [column]: null }),
        400,
        'not_null_violation',
        `invalid record: column [${column}]: cannot be null`,
      )
    }
    expect((await read('defaults', 'null')).body).toMatchObject({ needed: 'a', rank: 7 })
  })

  it('counts a change of nothing as an update too', async () => {
    await put('users', 'nothing', {})
    expect((await patch('users', 'nothing', {})).body.service.version).toBe(1)
  })

  it('answers 404 for a record that is not there, with or without a version', async () => {
    for (const query of ['', '?ifVersion=0', '?columns=*']) {
      expectRefusal(
        await patch('users', 'missing', { name: 'x' }, query),
        404,
        'record_not_found',
        'table [users]: record [missing] not found',
      )
    }
    expect((await patch('nope', 'x', {})).status).toBe(404)
    expect((await read('users', 'missing')).status).toBe(404)
  })

  it('with ifVersion changes only the version that is meant', async () => {
    await put('users', 'patch-version', { name: 'A' })
    for (const version of [1, 2_147_483_648]) {
      const answer = await patch('users', 'patch-version', { name: 'B' }, `?ifVersion=${version}`)
      expectRefusal(answer, 422, 'version_conflict', 'version condition not met')
    }
    expect((await patch('users', 'patch-version', { name: 'B' }, '?ifVersion=0')).status).toBe(200)
    expect((await read('users', 'patch-version')).body).toMatchObject({
      name: 'B',
      service: { version: 1 },
    })
  })

  it('refuses a unique value of another record', async () => {
    await put('users', 'patch-a', { email: 'a@patch.test' })
    await put('users', 'patch-b', { email: 'b@patch.test' })
    expectRefusal(
      await patch('users', 'patch-b', { email: 'a@patch.test' }),
      400,
      'unique_violation',
      'invalid record: column [email]: is not unique',
    )
    expect((await read('users', 'patch-b')).body.email).toBe('b@patch.test')
  })

  it.each([
    ['no body', undefined],
    ['null', 'null'],
    ['a list', []],
  ])('refuses %s with 400', async (_name, body) => {
    await put('users', 'patch-body', {})
    expect((await patch('users', 'patch-body', body)).status).toBe(400)
  })
})

describe('arithmetic', () => {
  const MAX = Number.MAX_SAFE_INTEGER

  it.each<[string, number, object, number]>([
    ['whole', 5, { $increment: 2 }, 7],
    ['whole', 5, { $increment: -7 }, -2],
    ['whole', 5, { $decrement: 7 }, -2],
    ['whole', 5, { $multiply: 3 }, 15],
    ['whole', 10, { $multiply: 0.1 }, 1],
    ['whole', 6, { $divide: 3 }, 2],
    ['whole', 6, { $divide: 0.3 }, 20],
    ['whole', 0, { $divide: 7 }, 0],
    ['whole', MAX - 1, { $increment: 1 }, MAX],
    ['whole', -MAX, { $multiply: -1 }, MAX],
    ['whole', MAX, { $divide: 1 }, MAX],
    ['real', 1.5, { $increment: 0.25 }, 1.75],
    ['real', 1.5, { $decrement: 2 }, -0.5],
    ['real', 0.1, { $increment: 0.2 }, 0.1 + 0.2],
    ['real', 3, { $divide: 2 }, 1.5],
    ['real', 1e308, { $divide: 1e308 }, 1],
  ])('on %s: %d with %j gives %d', async (column, value, change, result) => {
    await put('counters', 'sum', { [column]: value, label: 'kept' })
    const { status, body } = await patch('counters', 'sum', { [column]: change }, '?columns=*')
    expect(status).toBe(200)
    expect(body).toMatchObject({
      [column]: result,
      label: 'kept',
      service: { version: expect.any(Number) },
    })
    expect((await read('counters', 'sum')).body).toEqual(body)
  })

  const NOT_EXACT =
    'column [whole]: the result of the arithmetic cannot be stored exactly; ' +
    `expected a whole number between ${-MAX} and ${MAX}`

  it.each<[string, number | null, object, string]>([
    ['whole', 5, { $divide: 2 }, NOT_EXACT],
    ['whole', 5, { $multiply: 0.1 }, NOT_EXACT],
    ['whole', MAX, { $increment: 1 }, NOT_EXACT],
    ['whole', -MAX, { $decrement: 1 }, NOT_EXACT],
    ['whole', MAX, { $multiply: MAX }, NOT_EXACT],
    ['whole', 1, { $divide: 5e-324 }, NOT_EXACT],
    [
      'whole',
      5,
      { $increment: 0.5 },
      'column [whole]: $increment: expected a whole number, got a fraction',
    ],
    ['whole', 5, { $divide: 0 }, 'column [whole]: cannot be divided by zero'],
    ['whole', 5, { $divide: -0 }, 'column [whole]: cannot be divided by zero'],
    [
      'whole',
      5,
      { $increment: '1' },
      'column [whole]: expected a number for $increment, got a string',
    ],
    [
      'whole',
      5,
      { $increment: null },
      'column [whole]: expected a number for $increment, got null',
    ],
    [
      'whole',
      5,
      { $increment: 1, $multiply: 2 },
      'column [whole]: expected a number or one of $increment, $decrement, $multiply and $divide',
    ],
    [
      'whole',
      5,
      { $power: 2 },
      'column [whole]: expected a number or one of $increment, $decrement, $multiply and $divide',
    ],
    [
      'whole',
      5,
      {},
      'column [whole]: expected a number or one of $increment, $decrement, $multiply and $divide',
    ],
    ['real', 1e308, { $multiply: 10 }, 'the result is out of range'],
    ['real', 5e-324, { $divide: 10 }, 'the result is out of range'],
    ['real', 1, { $divide: 0 }, 'column [real]: cannot be divided by zero'],
    ['label', 5, { $increment: 1 }, 'column [label]: expected a string, got an object'],
  ])('on %s refuses %d with %j', async (column, value, change, message) => {
    await put('counters', 'refused', column === 'label' ? { label: 'x' } : { [column]: value })
    const { body: before } = await read('counters', 'refused')
    const answer = await patch('counters', 'refused', { [column]: change })
    expectRefusal(answer, 400, 'invalid_record', `invalid record: ${message}`)
    expect((await read('counters', 'refused')).body).toEqual(before)
  })

  it('names the column, its limit and the record of a refused value', async () => {
    await put('counters', 'limited', { whole: 5, small: 32_767, price: '99.99', tiny: '0.5' })
    const exact = 'the result of the arithmetic cannot be stored exactly; expected'
    for (const [change, column, message] of [
      [{ small: { $increment: 1 } }, 'small', `${exact} a whole number between -32768 and 32767`],
      [
        { whole: { $multiply: 2 }, price: { $increment: 0.01 } },
        'price',
        `${exact} at most 2 digits before the decimal point`,
      ],
      [{ tiny: { $multiply: 2 } }, 'tiny', `${exact} no digits before the decimal point`],
      [{ small: 40_000 }, 'small', 'is not between -32768 and 32767'],
    ] as const) {
      const { status, body } = await patch('counters', 'limited', change)
      expect(status).toBe(400)
      expect(body).toMatchObject({
        ...{ code: 'invalid_record', table: 'counters', column, record: 'limited' },
        message: `invalid record: column [${column}]: ${message}`,
      })
    }
  })

  it.each(['whole', 'real'])('on %s refuses to reckon with nothing', async (column) => {
    await put('counters', `empty-${column}`, { label: 'x' })
    const answer = await patch('counters', `empty-${column}`, { [column]: { $increment: 1 } })
    const message = `column [${column}]: has no value to calculate with`
    expectRefusal(answer, 400, 'invalid_record', `invalid record: ${message}`)
    const update = {
      table: 'counters',
      id: `empty-${column}`,
      fields: { [column]: { $divide: 2 } },
    }
    const body = { operations: [{ update }] }
    expect(await call('POST', '/transaction', { body })).toMatchObject({
      status: 400,
      body: {
        errors: [{ message: `table [counters]: record [empty-${column}]: ${message}` }],
      },
    })
    expect((await read('counters', `empty-${column}`)).body.service.version).toBe(0)
  })

  it('works on several columns together with plain changes and a version', async () => {
    await put('counters', 'both', { whole: 1, real: 1, label: 'a' })
    const change = { whole: { $increment: 1 }, label: 'b', real: { $divide: 4 } }
    expect((await patch('counters', 'both', change, '?ifVersion=4')).status).toBe(422)
    const { body } = await patch('counters', 'both', change, '?ifVersion=0&columns=*')
    expect(body).toMatchObject({ whole: 2, real: 0.25, label: 'b', service: { version: 1 } })
  })

  it('works in an upsert of a record that exists, and cannot make one', async () => {
    await put('counters', 'up', { whole: 1 })
    expect((await upsert('counters', 'up', { whole: { $increment: 1 } })).status).toBe(200)
    expect((await read('counters', 'up')).body.whole).toBe(2)
    const answer = await upsert('counters', 'up-new', { whole: { $increment: 1 } })
    expect(answer.status).toBe(400)
    expect((await read('counters', 'up-new')).status).toBe(404)
  })
})

describe('POST data with an id', () => {
  it('creates with 201 and defaults, then changes the given fields with 200', async () => {
    const first = await upsert('defaults', 'up', { needed: 'a' }, '?columns=*')
    expect(first.status).toBe(201)
    expect(first.body).toMatchObject({ needed: 'a', text: 'none', service: { version: 0 } })
    const second = await upsert('defaults', 'up', { text: 'given' }, '?columns=*')
    expect(second.status).toBe(200)
    expect(second.body).toMatchObject({
      needed: 'a',
      text: 'given',
      service: { version: 1, createdAt: first.body.service.createdAt },
    })
  })

  it('refuses to create a record that lacks a value, though it could update one', async () => {
    expectRefusal(
      await upsert('defaults', 'up-lacking', { text: 'x' }),
      400,
      'not_null_violation',
      'invalid record: column [needed]: a value is required',
    )
    expect((await read('defaults', 'up-lacking')).status).toBe(404)
  })

  it('with ifVersion updates that version or creates', async () => {
    expect((await upsert('users', 'up-version', { name: 'A' }, '?ifVersion=9')).status).toBe(201)
    expectRefusal(
      await upsert('users', 'up-version', { name: 'B' }, '?ifVersion=9'),
      422,
      'version_conflict',
      'version condition not met',
    )
    expect((await upsert('users', 'up-version', { name: 'B' }, '?ifVersion=0')).status).toBe(200)
    expect((await read('users', 'up-version')).body).toMatchObject({
      name: 'B',
      service: { version: 1 },
    })
  })

  it('refuses a unique value of another record, when it creates and when it updates', async () => {
    await put('users', 'up-a', { email: 'a@up.test' })
    const message = 'invalid record: column [email]: is not unique'
    const body = { email: 'a@up.test' }
    expectRefusal(await upsert('users', 'up-b', body), 400, 'unique_violation', message)
    expect((await read('users', 'up-b')).status).toBe(404)
    await put('users', 'up-b', { name: 'B' })
    expectRefusal(await upsert('users', 'up-b', body), 400, 'unique_violation', message)
  })

  it('answers 404 for an unknown table and 400 for a bad value', async () => {
    expect((await upsert('nope', 'x', {})).status).toBe(404)
    expect((await upsert('users', 'x', { nope: 1 })).body.message).toBe(
      'invalid record: column [nope]: column not found',
    )
  })
})

describe('DELETE data', () => {
  it('answers 204 with nothing, and 404 the second time', async () => {
    await put('users', 'gone', { name: 'A' })
    const answer = await remove('users', 'gone')
    expect(answer).toMatchObject({ status: 204, body: '' })
    expectRefusal(
      await remove('users', 'gone'),
      404,
      'record_not_found',
      'table [users]: record [gone] not found',
    )
    expect((await remove('nope', 'x')).status).toBe(404)
  })

  it('answers with the deleted record when columns are asked for', async () => {
    await put('teams', 'kept', { name: 'Kept' })
    await put('users', 'gone', { name: 'A', age: 1, team: 'kept' })
    const answer = await remove('users', 'gone', '?columns=name,team.name')
    expect(answer.status).toBe(200)
    expect(answer.body).toMatchObject({ id: 'gone', name: 'A', team: { name: 'Kept' } })
    expect(answer.body).not.toHaveProperty('age')
    expect((await read('users', 'gone')).status).toBe(404)
    expect((await remove('users', 'gone', '?columns=name')).status).toBe(404)
  })

  it('needs no body, whatever content type is announced', async () => {
    await put('users', 'gone', {})
    const headers = { 'content-type': 'application/json' }
    expect((await call('DELETE', path('users', 'gone'), { headers })).status).toBe(204)
  })
})

describe('a Xata client', () => {
  const ask = (
    method: string,
    url: string,
    body?: unknown,
    headers: Record<string, string> = XATA_CLIENT,
  ) => call(method, url, { body, headers })

  it.each([[XATA_CLIENT], [{ 'X-Xata-Client-ID': 'x' }]])(
    'is recognised by the header %j',
    async (headers) => {
      const { body } = await ask('POST', path('users'), {}, headers as Record<string, string>)
      expect(Object.keys(body).sort()).toEqual(['id', 'xata'])
    },
  )

  it.each([['a b'], ['a/b'], ['a@b.co'], ['é'], ['x'.repeat(256)]])(
    'finds no record under %j, which is no id',
    async (id) => {
      for (const method of ['GET', 'PATCH', 'DELETE']) {
        const answer = await ask(method, path('bare', id), method === 'PATCH' ? {} : undefined)
        expect(answer).toMatchObject({
          status: 404,
          body: { code: 'record_not_found', message: `record [${id}] not found` },
        })
      }
      expect((await ask('PUT', path('bare', id), {})).status).toBe(400)
      expect((await ask('POST', path('bare', id), {})).status).toBe(400)
    },
  )

  it('calls the metadata xata everywhere', async () => {
    await put('teams', 'xata-user', { name: 'T' })
    const first = await ask('PUT', path('users', 'xata-user', '?columns=*'), { team: 'xata-user' })
    expect(first.body).toEqual({
      id: 'xata-user',
      team: { id: 'xata-user' },
      xata: {
        version: 0,
        createdAt: expect.stringMatching(TIME),
        updatedAt: expect.stringMatching(TIME),
      },
    })
    const { body } = await ask('GET', path('users', 'xata-user', '?columns=team.name,xata.version'))
    expect(body).toMatchObject({ team: { name: 'T', xata: { version: 0 } }, xata: { version: 0 } })
    expect(JSON.stringify(body)).not.toContain('service')
    expect((await ask('PATCH', path('users', 'xata-user'), {})).body).toHaveProperty(
      'xata.version',
      1,
    )
    expect((await ask('DELETE', path('users', 'xata-user', '?columns=*'))).body).toHaveProperty(
      'xata',
    )
  })

  it('writes and reads json columns as text, and sees what the plain form wrote', async () => {
    await ask('PUT', path('users', 'json'), { settings: '{"b": [1, 2],  "a": null}' })
    const asText = (await ask('GET', path('users', 'json'))).body.settings
    expect(JSON.parse(asText)).toEqual({ a: null, b: [1, 2] })
    expect((await read('users', 'json')).body.settings).toEqual({ a: null, b: [1, 2] })
    await put('users', 'json', { settings: [true] })
    expect((await ask('GET', path('users', 'json', '?columns=settings'))).body.settings).toBe(
      '[true]',
    )
  })

  it('refuses json text that is none, in both forms', async () => {
    for (const headers of [XATA_CLIENT, {}]) {
      const answer = await ask('PUT', path('users', 'no-json'), { settings: '{a' }, headers)
      expect(answer.body.message).toBe(
        'invalid record: column [settings]: is not JSON: a string is read as JSON text',
      )
    }
    expect((await read('users', 'no-json')).status).toBe(404)
  })
})

describe('keys', () => {
  it('that can only read may read records and nothing else', async () => {
    const key = await createKey(service, 'reader', { fields: { scope: { access: 'read' } } })
    await put('users', 'scoped', { name: 'A' })
    expect((await call('GET', path('users', 'scoped'), { key })).status).toBe(200)
    for (const [method, id] of [
      ['POST', undefined],
      ['PUT', 'scoped'],
      ['PATCH', 'scoped'],
      ['POST', 'scoped'],
      ['DELETE', 'scoped'],
    ] as const) {
      const body = method === 'DELETE' ? undefined : { name: 'B' }
      const answer = await call(method, path('users', id), { key, body })
      expect(answer.body.code).toBe('key_scope')
    }
    expect((await read('users', 'scoped')).body.name).toBe('A')
  })

  it('that do not reach the branch find nothing there', async () => {
    const scope = { branches: ['feature-*'] }
    const key = await createKey(service, 'elsewhere', { fields: { scope } })
    await put('users', 'hidden', {})
    expect((await call('GET', path('users', 'hidden'), { key })).body.code).toBe('branch_not_found')
  })

  it('that are missing or unknown are refused before anything else is said', async () => {
    const refusals = [
      [null, 'header [authorization]: is missing; send [Authorization: Bearer <API key>]'],
      ['off_unknown', 'Invalid API key'],
    ] as const
    for (const [key, message] of refusals) {
      for (const table of ['users', 'nope']) {
        const answer = await call('GET', path(table, 'x'), { key })
        expect(answer).toMatchObject({ status: 401, body: { message } })
      }
      const broken = await call('POST', path('users'), { key, body: '{' })
      expect(broken.status).toBe(401)
    }
  })
})
