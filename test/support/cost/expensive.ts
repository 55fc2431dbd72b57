import type { Random } from '../seeded-random.js'

/** A request that is cheap to send and may be expensive to answer. */
export interface ExpensiveRequest {
  /** Why it is expensive. */
  readonly kind: string
  readonly method: string
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer | undefined
  /** How the body is sent: with its length, in chunks, or announced and never completed. */
  readonly sending: 'whole' | 'chunked' | 'unsent'
}

export interface Target {
  readonly workspaceId: string
  /** An unrestricted key, and a read-only one. */
  readonly keys: readonly string[]
}

/** Depth up to which `JSON.stringify` works in this process. */
const DEPTH_MAX = 500

type Shape = (random: Random, size: number) => Partial<ExpensiveRequest> & { url: string }

const TABLE = '/db/shop:main/tables/users'
const post = (url: string, value: unknown) => ({
  method: 'POST',
  url,
  body: Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)),
})
const times = <Item>(count: number, item: (index: number) => Item): Item[] =>
  Array.from({ length: count }, (_, index) => item(index))

/** A query whose columns, rows or text double with every level. */
function doubling(random: Random, size: number): string {
  const steps = Math.min(4 + Math.floor(Math.log2(size + 2)), 40)
  const kind = random.below(4)
  if (kind === 0) {
    const parts = times(steps, (i) => `c${i + 1} as (select a.*, b.* from c${i} a, c${i} b)`)
    return `with c0 as (select 1 as x, 2 as y), ${parts.join(', ')} select count(*) from c${steps}`
  }
  if (kind === 1) {
    const parts = times(steps, (i) => `c${i + 1} as (select * from c${i} union all table c${i})`)
    return `with c0 as (select 1 as x), ${parts.join(', ')} select count(*) from c${steps}`
  }
  if (kind === 2) return `select ${'(select '.repeat(steps)}1${')'.repeat(steps)}`
  const parts = times(steps, (i) => `c${i + 1} as (select x || x as x from c${i})`)
  return `with c0 as (select 'x'::text as x), ${parts.join(', ')} select length(x) from c${steps}`
}

const SHAPES: Readonly<Record<string, Shape>> = {
  'deep arrays': (_random, size) =>
    post(`${TABLE}/query`, `${'['.repeat(size)}${']'.repeat(size)}`),
  'deep objects': (_random, size) =>
    post(`${TABLE}/query`, `${'{"a":'.repeat(size)}1${'}'.repeat(size)}`),
  'unclosed brackets': (random, size) =>
    post(`${TABLE}/query`, random.pick(['[', '{"a":', '[{},']).repeat(size)),
  'many small values': (random, size) =>
    post(
      random.pick([
        `${TABLE}/query`,
        '/nothing-here',
        `${TABLE}/bulk`,
        '/db/shop:main/transaction',
      ]),
      `{"records":[${random.pick(['{},', '0,', '"",', '[],', 'null,']).repeat(size)}{}]}`,
    ),
  'many keys': (random, size) =>
    post(
      random.pick([`${TABLE}/data`, `${TABLE}/query`, '/user']),
      `{${times(size, (i) => `"k${i}":${i}`).join(',')}}`,
    ),
  'a repeated key': (_random, size) =>
    post(`${TABLE}/query`, `{${'"filter":{},'.repeat(size)}"filter":{}}`),
  'a long text': (random, size) =>
    post(`${TABLE}/${random.pick(['data', 'query', 'search'])}`, {
      [random.pick(['name', 'query', 'email', 'columns'])]: random
        .pick(['x', '\\', '"', '\u0000', '🍎', '*', 'a '])
        .repeat(size * 8),
    }),
  'a long number': (_random, size) =>
    post(`${TABLE}/data`, `{"age":${'9'.repeat(size)},"height":1e${'9'.repeat(size % 1000)}}`),
  'many columns': (random, size) =>
    post(`${TABLE}/query`, {
      columns: times(size, () => random.pick(['team.name', '*', 'name', 'address.*', 'team.*'])),
    }),
  'many links': (random, size) =>
    post(`${TABLE}/query`, {
      columns: random.chance(0.5)
        ? [`${'team.'.repeat(size)}name`]
        : times(size, (i) => ({ name: '<-users.team', as: `a${i}`, columns: ['name'] })),
    }),
  'reverse links in each other': (_random, size) => {
    let link: unknown = 'name'
    for (let depth = 0; depth < Math.min(size, DEPTH_MAX); depth++) {
      link = { name: depth % 2 ? '<-users.team' : '<-teams.lead', columns: [link] }
    }
    return post('/db/shop:main/tables/teams/query', { columns: [link] })
  },
  'nested filters': (random, size) => {
    const operator = random.pick(['$not', '$all', '$any', '$none'])
    const deep = `${`{"${operator}":[`.repeat(size)}{"name":"x"}${']}'.repeat(size)}`
    return post(`${TABLE}/query`, `{"filter":${deep}}`)
  },
  'wide filters': (random, size) =>
    post(`${TABLE}/${random.pick(['query', 'summarize', 'aggregate', 'search'])}`, {
      filter: { $any: times(size, (i) => ({ name: { $iContains: `w${i}` } })) },
    }),
  'a long list of values': (random, size) =>
    post(`${TABLE}/query`, {
      filter: { [random.pick(['id', 'name', 'age', 'tags'])]: { $any: times(size, String) } },
    }),
  'a pattern': (random, size) =>
    post(`${TABLE}/query`, {
      filter: {
        bio: {
          [random.pick(['$pattern', '$iPattern', '$contains', '$startsWith'])]: random
            .pick(['*a', '?', '*', 'a*', '%_', '\\'])
            .repeat(size),
        },
      },
    }),
  'a long path into a document': (random, size) =>
    post(`${TABLE}/query`, {
      filter: { [`extra->${random.pick(['a', 'a->', '"', "'"]).repeat(size)}`]: 'x' },
    }),
  'a long cursor': (random, size) =>
    post(`${TABLE}/query`, {
      page: {
        [random.pick(['after', 'before', 'start'])]: random.pick(['A', '_', '=']).repeat(size * 8),
      },
    }),
  'many sorts': (random, size) =>
    post(`${TABLE}/query`, {
      sort: times(size, (i) => ({ [random.pick(['name', 'team.name', `x${i}`])]: 'asc' })),
    }),
  'many summaries': (_random, size) =>
    post(`${TABLE}/summarize`, {
      columns: ['name'],
      summaries: Object.fromEntries(times(size, (i) => [`s${i}`, { max: 'age' }])),
    }),
  'many aggregations': (random, size) => {
    const inner = (depth: number): unknown => ({
      topValues: {
        column: 'name',
        size: 1000,
        ...(depth > 0 ? { aggs: { a: inner(depth - 1) } } : {}),
      },
    })
    const aggs = random.chance(0.5)
      ? Object.fromEntries(times(size, (i) => [`a${i}`, { count: '*' }]))
      : { a: inner(Math.min(size, DEPTH_MAX)) }
    return post(`${TABLE}/aggregate`, { aggs })
  },
  'a long search': (random, size) =>
    post(random.pick([`${TABLE}/search`, '/db/shop:main/search']), {
      query: times(size, (i) => `w${i}`).join(' '),
      fuzziness: 2,
    }),
  'a long vector': (_random, size) =>
    post(`${TABLE}/vectorSearch`, { queryVector: times(size, () => 0.5), column: 'embedding' }),
  'SQL that doubles': (random, size) =>
    post('/db/shop:main/sql', { statement: doubling(random, size) }),
  'SQL of many parts': (random, size) => {
    const [start, part, end] = random.pick([
      ['select 1', ' + 1', ''],
      ['select ', '(', ''],
      ['select * from users where id in (', "'a',", "'b')"],
      ['select ', 'name,', 'name from users'],
      ['select * from users', ' union all select * from users', ''],
      ['select 1 from users', ' join users using (id)', ''],
      ['select * from users where true', ' and name is not null', ''],
      ['select ', 'not ', 'true'],
      ['select ', '-', '1'],
      ['select case', ' when true then 1', ' end'],
      ['with ', 'a as (select 1), ', 'b as (select 2) select 1'],
      ['select ', 'u.*, ', 'u.* from users u'],
      ["select '", '\\', "'"],
      ['select /*', '/*', '*/ 1'],
      ['values (1)', ', (1)', ''],
      ['insert into teams (name) values (1)', ", ('x')", ''],
      ['select ', 'coalesce(', '1'],
      ['select array[', '1,', '1]'],
    ] as const)
    return post('/db/shop:main/sql', { statement: `${start}${part.repeat(size)}${end}` })
  },
  'SQL that works long or makes much': (random, size) => {
    const n = size * 1000
    return post('/db/shop:main/sql', {
      statement: random.pick([
        `select count(*) from generate_series(1, ${n}) a, generate_series(1, ${n}) b`,
        `select array(select generate_series(1, ${n})) && array(select generate_series(${n}, ${2 * n}))`,
        `select strpos(repeat('a', ${n}), repeat('a', ${n >> 1}) || 'b')`,
        `select length(repeat(repeat('x', ${size}), ${size}))`,
        `select i from generate_series(1, ${n}) i`,
        `select array_agg(i) from generate_series(1, ${n}) i`,
        `select string_agg(i::text, ',') from generate_series(1, ${n}) i`,
        `select jsonb_agg(i) from generate_series(1, ${n}) i`,
        `select repeat('a', ${n}) ~ '(a*)*b'`,
        `select regexp_replace(repeat('a', ${n}), '(a+)+$', 'b')`,
        `select repeat('a', ${n}) like '${'%a'.repeat(Math.min(size, 5000))}b'`,
        `with recursive r(i) as (select 1 union all select i + 1 from r) select max(i) from r`,
        `select factorial(${Math.min(n, 100_000)})`,
        `select 9::numeric ^ ${Math.min(n, 100_000)}`,
        `select lpad('', ${n}, 'x')`,
        `select reverse(repeat('x', ${n}))`,
        `select to_tsvector(repeat('word ', ${n}))`,
      ]),
    })
  },
  'SQL with many parameters': (_random, size) =>
    post('/db/shop:main/sql', {
      statement: `select ${times(Math.min(size, 3000), (i) => `$${i + 1}`).join(',')}`,
      params: times(size, String),
    }),
  'a batch of SQL': (_random, size) =>
    post('/db/shop:main/sql/batch', {
      statements: times(size, () => ({ statement: 'select * from users' })),
    }),
  'a long transaction': (random, size) =>
    post('/db/shop:main/transaction', {
      operations: times(size, (i) =>
        random.chance(0.5)
          ? { get: { table: 'users', id: `x${i}`, columns: ['*', 'team.*'] } }
          : { insert: { table: 'teams', record: { name: `t${i}` }, createOnly: false } },
      ),
    }),
  'a large schema': (_random, size) =>
    post('/db/shop:main/schema/compare', {
      schema: {
        tables: times(Math.ceil(size / 10), (t) => ({
          name: `t${t}`,
          columns: times(10, (c) => ({ name: `c${c}`, type: 'string' })),
        })),
      },
    }),
  'columns in each other': (_random, size) => {
    let column: unknown = { name: 'c', type: 'string' }
    for (let depth = 0; depth < Math.min(size, DEPTH_MAX); depth++) {
      column = { name: 'c', type: 'object', columns: [column] }
    }
    return post(`${TABLE}/columns`, column)
  },
  'many lines': (random, size) => ({
    ...post(
      `${TABLE}/bulk?mode=${random.pick(['partial', 'atomic'])}`,
      random
        .pick(['{}\n', '\n', '\n{}\n', '{"a":1}\n', '[\n', '{"id":"a"}\n', '{"email":"a@b.c"}\n'])
        .repeat(size),
    ),
    headers: { 'content-type': 'application/x-ndjson' },
  }),
  'many query parameters': (random, size) => ({
    method: 'GET',
    url: `${TABLE}/data/ada?${times(Math.min(size, 2000), (i) => random.pick([`a${i}=1`, 'columns=a', '&'])).join('&')}`,
  }),
  'a long path': (random, size) => ({
    method: 'GET',
    url: `/${random.pick(['a/', '%2e/', '%00', ':', '../', '%41', '~', ';a=b']).repeat(Math.min(size, 2000))}`,
  }),
  'long headers': (random, size) => ({
    method: 'GET',
    url: '/user',
    headers: {
      [random.pick([
        'accept',
        'range',
        'if-none-match',
        'cookie',
        'x-forwarded-for',
        'traceparent',
      ])]: random
        .pick(['"a",', 'bytes=0-1,', 'a=b;', ', ', '1.2.3.4, '])
        .repeat(Math.min(size, 1200)),
    },
  }),
  'odd authorization': (random, size) => ({
    method: random.pick(['GET', 'POST']),
    url: random.pick(['/user', `${TABLE}/query`, '/file/abc']),
    headers: {
      authorization: random
        .pick(['Bearer ', 'Xxxxxx off_', ' ', 'Basic ', 'Bearer off_', 'bearer\toff_'])
        .concat('a'.repeat(Math.min(size, 10_000))),
    },
  }),
}

const KINDS = Object.keys(SHAPES)

/** Chooses the size of a part: small sizes are common, large ones rare. */
function sizeOf(random: Random, sizeMax: number): number {
  return Math.max(1, Math.floor(Math.exp(random.next() * Math.log(sizeMax))))
}

export function expensiveRequest(
  random: Random,
  target: Target,
  options: { sizeMax: number },
): ExpensiveRequest {
  const kind = random.pick(KINDS)
  const shape = SHAPES[kind]
  if (shape === undefined) throw new Error('there must be such a shape')
  const made = shape(random, sizeOf(random, options.sizeMax))
  const key = random.weighted<string | undefined>([
    [6, target.keys[0]],
    [6, target.keys[1]],
    [1, `off_${'a'.repeat(44)}`],
    [2, undefined],
  ])
  const url = made.url.startsWith('/db') ? `/${target.workspaceId}.local${made.url}` : made.url
  const isRead = made.body === undefined
  return {
    kind,
    method: isRead
      ? (made.method ?? 'GET')
      : random.weighted([
          [20, 'POST'],
          [1, 'GET'],
          [1, 'PUT'],
        ]),
    url,
    headers: {
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      ...(isRead ? {} : { 'content-type': 'application/json' }),
      ...made.headers,
    },
    body: made.body,
    sending: isRead
      ? 'whole'
      : random.weighted([
          [16, 'whole'],
          [3, 'chunked'],
          [1, 'unsent'],
        ]),
  }
}
