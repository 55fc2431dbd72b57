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
/** A fork of `main` with search indexes and no rows of its own. */
let indexed: BranchCall

const MOVIES: readonly Column[] = [
  { name: 'title', type: 'string' },
  { name: 'plot', type: 'text' },
  { name: 'genres', type: 'multiple' },
  { name: 'year', type: 'int' },
  { name: 'stars', type: 'float' },
  { name: 'released', type: 'datetime' },
  { name: 'isClassic', type: 'bool' },
  { name: 'facts', type: 'json' },
  { name: 'director', type: 'link', link: { table: 'people' } },
  { name: 'embedding', type: 'vector', vector: { dimension: 3 } },
  {
    name: 'studio',
    type: 'object',
    columns: [
      { name: 'name', type: 'string' },
      { name: 'city', type: 'string' },
    ],
  },
]
const PEOPLE: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'email', type: 'email' },
  { name: 'bio', type: 'text' },
]

const MOVIE_ROWS: Readonly<Record<string, object>> = {
  matrix: {
    title: 'The Matrix',
    plot: 'A hacker learns that the world is a simulation, and starts running.',
    genres: ['science fiction', 'action'],
    year: 1999,
    stars: 8.7,
    released: '1999-03-31T00:00:00.000Z',
    isClassic: true,
    facts: { camera: 'bullet time', sequels: 3 },
    director: 'lana',
    embedding: [1, 0, 0],
    studio: { name: 'Warner', city: 'Burbank' },
  },
  speed: {
    title: 'Speed',
    plot: 'A bus must not slow down. Tom & <Jerry> are not in it.',
    genres: ['action'],
    year: 1994,
    stars: 7.3,
    released: '1994-06-10T00:00:00.000Z',
    isClassic: false,
    embedding: [0, 1, 0],
    studio: { name: 'Fox', city: 'Los Angeles' },
  },
  wick: {
    title: 'John Wick',
    plot: 'A retired killer runs after those who took his dog, a matrix of revenge.',
    genres: ['action', 'crime'],
    year: 2014,
    stars: 7.4,
    released: '2014-10-24T00:00:00.000Z',
    embedding: [0, 0.5, 0.5],
  },
  paris: {
    title: 'Paris, Texas',
    plot: 'A man walks out of the desert. Ärger in Zürich, 東京物語 und Carrie-Anne.',
    year: 1984,
    director: 'wim',
    embedding: [-1, 0, 0],
  },
}
const PEOPLE_ROWS: Readonly<Record<string, object>> = {
  lana: { name: 'Lana Wachowski', email: 'lana@example.com', bio: 'Directed The Matrix.' },
  wim: { name: 'Wim Wenders', email: 'wim@example.com', bio: 'Directed Paris, Texas.' },
  keanu: { name: 'Keanu Reeves', email: 'keanu@example.org', bio: 'Plays Neo.' },
}

beforeAll(async () => {
  service = await createTestService()
  main = await createTables(service, 'films', { movies: MOVIES, people: PEOPLE, empty: PEOPLE })
  const rows = { movies: MOVIE_ROWS, people: PEOPLE_ROWS }
  for (const [table, records] of Object.entries(rows)) {
    const entries = Object.entries(records).map(([id, record]) => ({ id, ...record }))
    expectOk(await main('POST', `/tables/${table}/bulk`, { body: { records: entries } }))
  }
  expectOk(
    await service.call('PUT', `${service.workspace}/db/films:base`, { body: { from: 'main' } }),
  )
  // The parent of `fork` differs from `main`: one record is changed, one is new, one is deleted.
  const base = branchCall(service, 'films', { branch: 'base' })
  expectOk(
    await base('PATCH', '/tables/movies/data/speed', { body: { title: 'Other', plot: 'x' } }),
  )
  expectOk(await base('DELETE', '/tables/people/data/keanu'))
  expectOk(await base('PUT', '/tables/movies/data/extra', { body: { title: 'Matrix again' } }))
  expectOk(
    await service.call('PUT', `${service.workspace}/db/films:fork`, { body: { from: 'base' } }),
  )
  fork = branchCall(service, 'films', { branch: 'fork' })
  expectOk(await fork('PUT', '/tables/movies/data/speed', { body: MOVIE_ROWS.speed }))
  expectOk(await fork('PUT', '/tables/people/data/keanu', { body: PEOPLE_ROWS.keanu }))
  expectOk(await fork('DELETE', '/tables/movies/data/extra'))
  expectOk(
    await service.call('PUT', `${service.workspace}/db/films:indexed`, { body: { from: 'main' } }),
  )
  indexed = branchCall(service, 'films', { branch: 'indexed' })
  for (const table of ['movies', 'people']) {
    expectOk(await indexed('PUT', `/tables/${table}/searchIndex`))
  }
  // Later changes of the parent are not visible in `fork`.
  expectOk(await base('PATCH', '/tables/movies/data/wick', { body: { title: 'Neanderthal' } }))
})

afterAll(() => service.close())

const ids = (answer: Answer): string[] =>
  expectOk(answer).body.records.map(({ id }: { id: string }) => id)

const searchMovies = (body: object, call = main) => call('POST', '/tables/movies/search', { body })

describe.each([
  ['a branch without a parent', () => main],
  ['a fork of a fork', () => fork],
  ['a branch with search indexes', () => indexed],
])('on %s', (_name, branch) => {
  it.each<[string, object, string[]]>([
    ['finds whole words, whatever their case', { query: 'MATRIX' }, ['matrix', 'wick']],
    ['finds records with any of the words', { query: 'speed desert' }, ['speed', 'paris']],
    ['finds nothing else', { query: 'nowhere' }, []],
    ['does not find parts of words', { query: 'matr' }, []],
    ['overlooks one typing error', { query: 'matrux' }, ['matrix', 'wick']],
    ['overlooks none when told so', { query: 'matrux', fuzziness: 0 }, []],
    ['does not overlook two', { query: 'metrux' }, []],
    ['overlooks two when told so', { query: 'metrux', fuzziness: 2 }, ['matrix', 'wick']],
    ['finds other forms of a word', { query: 'runs', fuzziness: 0 }, ['wick', 'matrix']],
    ['finds beginnings when told so', { query: 'matr', prefix: 'phrase' }, ['matrix', 'wick']],
    ['finds elements of lists', { query: 'crime' }, ['wick']],
    ['finds values inside JSON', { query: 'bullet' }, ['matrix']],
    ['finds columns of objects', { query: 'burbank' }, ['matrix']],
    ['finds numbers', { query: '1994' }, ['speed']],
    ['finds numbers only as they are', { query: '8.7' }, ['matrix']],
    ['finds letters beyond ASCII', { query: 'ÄRGER', fuzziness: 0 }, ['paris']],
    ['finds scripts without spaces', { query: '東京', fuzziness: 0 }, ['paris']],
    ['takes together what is written together', { query: 'carrie-anne' }, ['paris']],
    ['finds it with another sign between', { query: 'carrie.anne' }, ['paris']],
    ['looks in a column', { query: 'matrix', target: ['title'] }, ['matrix']],
    ['looks in a column of an object', { query: 'fox', target: ['studio.name'] }, ['speed']],
    ['looks in an object', { query: 'fox', target: ['studio'] }, ['speed']],
    ['looks in no other column', { query: 'fox', target: ['studio.city', 'title'] }, []],
    ['keeps to a filter', { query: 'matrix', filter: { year: { $gt: 2000 } } }, ['wick']],
    [
      'keeps to a filter by link',
      { query: 'the', filter: { 'director.name': 'Wim Wenders' } },
      ['paris'],
    ],
    ['finds everything without a query', {}, ['matrix', 'paris', 'speed', 'wick']],
    ['finds nothing for signs alone', { query: '?! -' }, []],
    ['finds nothing for a space', { query: ' ' }, []],
  ])('%s', async (_what, body, expected) => {
    const answer = await searchMovies(body, branch())
    expect(ids(answer)).toEqual(expected)
    expect(answer.body.totalCount).toBe(expected.length)
    expect(answer.body).not.toHaveProperty('warning')
  })

  it('answers with whole records, and says where they are and how well they fit', async () => {
    const { body } = expectOk(await searchMovies({ query: 'bullet' }, branch()))
    const { service: metadata, ...record } = body.records[0]
    const { director, ...columns } = MOVIE_ROWS.matrix as { director: string }
    expect(record).toEqual({ id: 'matrix', ...columns, director: { id: director } })
    expect(metadata).toEqual({
      version: 0,
      createdAt: expect.any(String),
      updatedAt: expect.any(String),
      table: 'movies',
      score: expect.any(Number),
      highlight: {
        facts: ['{&quot;camera&quot;: &quot;<em>bullet</em> time&quot;, &quot;sequels&quot;: 3}'],
      },
    })
  })

  it('searches all tables of a branch', async () => {
    const answer = await branch()('POST', '/search', { body: { query: 'matrix' } })
    expect(ids(answer)).toEqual(['lana', 'matrix', 'wick'])
  })
})

describe('the order', () => {
  it('has rare words before common ones, and more words before fewer', async () => {
    expect(ids(await searchMovies({ query: 'action simulation' }))[0]).toBe('matrix')
    expect(ids(await searchMovies({ query: 'action crime' }))[0]).toBe('wick')
  })

  it('has the word itself before others that are like it', async () => {
    const answer = await searchMovies({ query: 'runs' })
    expect(ids(answer)).toEqual(['wick', 'matrix'])
  })

  it('follows the weights of columns', async () => {
    const target = (title: number, plot: number) => [
      { column: 'title', weight: title },
      { column: 'plot', weight: plot },
    ]
    const query = 'matrix'
    expect(ids(await searchMovies({ query, target: target(10, 1) }))).toEqual(['matrix', 'wick'])
    expect(ids(await searchMovies({ query, target: target(1, 10) }))).toEqual(['wick', 'matrix'])
  })

  it('keeps the weight of a column beside all others', async () => {
    const scores = async (target: unknown[]) =>
      (await searchMovies({ query: 'speed', target })).body.records[0].service.score
    const [plain, weighted] = [
      await scores(['*']),
      await scores([{ column: 'title', weight: 5 }, '*']),
    ]
    expect(weighted).toBeCloseTo(plain * 5)
    expect(await scores(['*', { column: 'title', weight: 5 }])).toBeCloseTo(weighted)
  })

  it('puts the whole phrase first when the last word is a beginning', async () => {
    const call = await createTables(service, 'phrases', {
      places: [{ name: 'name', type: 'string' }],
    })
    const names = ['yorkshire', 'new', 'york new', 'new york', 'old', 'renew yo']
    const records = names.map((name) => ({ id: name.replace(' ', '-'), name }))
    expectOk(await call('POST', '/tables/places/bulk', { body: { records } }))
    const body = { query: 'new yor', prefix: 'phrase', fuzziness: 0 }
    const found = ids(await call('POST', '/tables/places/search', { body }))
    expect(found[0]).toBe('new-york')
    expect(found.sort()).toEqual(['new', 'new-york', 'york-new', 'yorkshire'])
  })

  it('scores the only record as expected', async () => {
    const call = await createTables(service, 'single', { notes: [{ name: 'text', type: 'text' }] })
    expectOk(await call('PUT', '/tables/notes/data/a', { body: { text: 'one' } }))
    const { body } = await call('POST', '/tables/notes/search', { body: { query: 'one' } })
    expect(body.records[0].service.score).toBeCloseTo(Math.log(4 / 3))
  })
})

describe('boosters', () => {
  const scores = async (...boosters: object[]): Promise<Record<string, number>> => {
    const { body } = expectOk(await searchMovies({ boosters }))
    return Object.fromEntries(
      body.records.map((record: { id: string; service: { score: number } }) => [
        record.id,
        Number((record.service.score - 1).toFixed(6)),
      ]),
    )
  }
  const numeric = (column: string, factor: number, modifier?: string) => ({
    numericBooster: { column, factor, modifier },
  })

  it.each<[string, object, Record<string, number>]>([
    ['a value', { valueBooster: { column: 'title', value: 'Speed', factor: 3 } }, { speed: 3 }],
    ['a truth', { valueBooster: { column: 'isClassic', value: true, factor: 2 } }, { matrix: 2 }],
    ['a number', { valueBooster: { column: 'year', value: 2014, factor: 2 } }, { wick: 2 }],
    [
      'an element of a list',
      { valueBooster: { column: 'genres', value: 'crime', factor: 2 } },
      { wick: 2 },
    ],
    [
      'a column of an object',
      { valueBooster: { column: 'studio.city', value: 'Burbank', factor: 2 } },
      { matrix: 2 },
    ],
    ['times a factor', numeric('stars', 2), { matrix: 17.4, speed: 14.6, wick: 14.8 }],
    [
      'the logarithm',
      numeric('year', 1, 'log'),
      { matrix: 3.300813, speed: 3.299725, wick: 3.304059, paris: 3.297542 },
    ],
    [
      'the natural logarithm and one',
      numeric('stars', 10, 'ln1p'),
      { matrix: 4.477337, speed: 4.304065, wick: 4.317488 },
    ],
    ['the square', numeric('stars', 1, 'square'), { matrix: 75.69, speed: 53.29, wick: 54.76 }],
    [
      'the root',
      numeric('stars', 10, 'sqrt'),
      { matrix: 9.327379, speed: 8.544004, wick: 8.602325 },
    ],
    [
      'the reciprocal',
      numeric('stars', 1, 'reciprocal'),
      { matrix: 0.114943, speed: 0.136986, wick: 0.135135 },
    ],
    ['nothing where there is no logarithm', numeric('stars', -1, 'ln'), {}],
    ['nothing where there is no root', numeric('stars', -1, 'sqrt'), {}],
    [
      'the distance from a time',
      {
        dateBooster: {
          column: 'released',
          origin: '1999-03-31T00:00:00Z',
          scale: '1755d',
          decay: 0.5,
          factor: 8,
        },
      },
      { matrix: 8, speed: 4, wick: 8 * 0.5 ** (5686 / 1755) },
    ],
    [
      'the distance from now, however far',
      { dateBooster: { column: 'released', scale: '1ms', decay: 0.5 } },
      {},
    ],
    [
      'only what meets a filter',
      {
        numericBooster: { column: 'stars', factor: 1, ifMatchesFilter: { year: { $lt: 1999 } } },
      },
      { speed: 7.3 },
    ],
  ])('add %s', async (_what, booster, expected) => {
    const added = await scores(booster)
    for (const [id, value] of Object.entries(added)) {
      expect(value, id).toBeCloseTo(expected[id] ?? 0, 5)
    }
    expect(Object.keys(added)).toHaveLength(4)
  })

  it('add to the metadata a record has', async () => {
    const boosters = [
      { dateBooster: { column: 'xata.createdAt', scale: '365d', decay: 0.5, factor: 10 } },
    ]
    const { body } = expectOk(await searchMovies({ boosters }))
    for (const record of body.records) expect(record.service.score).toBeGreaterThan(10)
  })

  it('add up, and change the order', async () => {
    const boosters = [
      { valueBooster: { column: 'title', value: 'John Wick', factor: 50 } },
      numeric('stars', 1),
    ]
    const answer = await searchMovies({ query: 'matrix', boosters })
    expect(ids(answer)).toEqual(['wick', 'matrix'])
    expect(answer.body.records[0].service.score).toBeGreaterThan(57)
  })

  it('refuse a number that is too large', async () => {
    const answer = await searchMovies({ boosters: [numeric('year', 1e308)] })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toBe('the result is out of range')
  })
})

describe('highlights', () => {
  const highlight = async (body: object) =>
    expectOk(await searchMovies(body)).body.records.map(
      ({ service: metadata }: { service: { highlight?: object } }) => metadata.highlight,
    )

  it('mark what was found, as it is written there', async () => {
    expect(
      await highlight({ query: 'ACTOIN sepeed', fuzziness: 2, filter: { id: 'speed' } }),
    ).toEqual([{ title: ['<em>Speed</em>'], genres: ['<em>action</em>'] }])
  })

  it('show only the elements of a list that have a word', async () => {
    expect(await highlight({ query: 'fiction', target: ['genres'] })).toEqual([
      { genres: ['science <em>fiction</em>'] },
    ])
  })

  it('have columns of objects inside of these', async () => {
    expect(await highlight({ query: 'angeles' })).toEqual([
      { studio: { city: ['Los <em>Angeles</em>'] } },
    ])
  })

  it('are text for HTML, unless told otherwise', async () => {
    expect(await highlight({ query: 'jerry' })).toEqual([
      { plot: ['A bus must not slow down. Tom &amp; &lt;<em>Jerry</em>&gt; are not in it.'] },
    ])
    expect(await highlight({ query: 'jerry', highlight: { encodeHTML: false } })).toEqual([
      { plot: ['A bus must not slow down. Tom & <<em>Jerry</em>> are not in it.'] },
    ])
    // Highlighting escapes HTML; entity names such as `amp` are not part of the text.
    expect(await highlight({ query: 'amp', fuzziness: 0 })).toEqual([])
  })

  it('are left out when told so', async () => {
    expect(await highlight({ query: 'jerry', highlight: { enabled: false } })).toEqual([undefined])
  })

  it('mark words side by side, numbers, beginnings, and parts of scripts without spaces', async () => {
    expect(await highlight({ query: 'john wick', target: ['title'] })).toEqual([
      { title: ['<em>John</em> <em>Wick</em>'] },
    ])
    expect(await highlight({ query: '1994' })).toEqual([{ year: ['<em>1994</em>'] }])
    expect(await highlight({ query: 'simul', prefix: 'phrase', target: ['plot'] })).toEqual([
      { plot: ['A hacker learns that the world is a <em>simulation</em>, and starts running.'] },
    ])
    expect(await highlight({ query: '京物', target: ['plot'] })).toEqual([
      {
        plot: [
          'A man walks out of the desert. Ärger in Zürich, 東<em>京物</em>語 und Carrie-Anne.',
        ],
      },
    ])
  })

  it('show what is around the words of a long text', async () => {
    const call = await createTables(service, 'long', { notes: [{ name: 'text', type: 'text' }] })
    const filler = 'lorem ipsum dolor sit amet '
    const text = `${filler.repeat(40)}here is the needle in it ${filler.repeat(40)}`
    expectOk(await call('PUT', '/tables/notes/data/a', { body: { text } }))
    const { body } = await call('POST', '/tables/notes/search', { body: { query: 'needle' } })
    const [fragment, ...more] = body.records[0].service.highlight.text
    expect(more).toEqual([])
    expect(fragment).toContain('here is the <em>needle</em> in it lorem')
    expect(fragment.length).toBeLessThan(260)
    expect(text.replaceAll('  ', ' ')).toContain(fragment.replace('<em>', '').replace('</em>', ''))
  })

  it('show a long text at no more than five places', async () => {
    const call = branchCall(service, 'long')
    const text = Array.from({ length: 20 }, () => `needle ${'hay '.repeat(100)}`).join('')
    expectOk(await call('PUT', '/tables/notes/data/b', { body: { text } }))
    const { body } = await call('POST', '/tables/notes/search', {
      body: { query: 'needle', filter: { id: 'b' } },
    })
    expect(body.records[0].service.highlight.text).toHaveLength(5)
  })
})

describe('pages', () => {
  const IDS = Array.from({ length: 230 }, (_, index) => `n${String(index).padStart(4, '0')}`)
  let call: BranchCall

  beforeAll(async () => {
    call = await createTables(service, 'pages', { notes: [{ name: 'text', type: 'string' }] })
    const records = IDS.map((id) => ({ id, text: 'the same' }))
    expectOk(await call('POST', '/tables/notes/bulk', { body: { records } }))
  })

  it.each<[string, object | undefined, string[]]>([
    ['25 by default', undefined, IDS.slice(0, 25)],
    ['as many as asked for', { size: 200 }, IDS.slice(0, 200)],
    ['from an offset', { size: 3, offset: 228 }, IDS.slice(228)],
    ['nothing after the last', { offset: 800 }, []],
  ])('hold %s, and the count is that of all', async (_what, page, expected) => {
    const answer = await call('POST', '/tables/notes/search', { body: { query: 'same', page } })
    expect(ids(answer)).toEqual(expected)
    expect(answer.body.totalCount).toBe(230)
  })

  it.each([
    [{ size: 201 }, 'body: field [page.size]: must be <= 200'],
    [{ size: 0 }, 'body: field [page.size]: must be >= 1'],
    [{ offset: 801 }, 'body: field [page.offset]: must be <= 800'],
    [{ offset: -1 }, 'body: field [page.offset]: must be >= 0'],
    [{ after: 'x' }, 'body: field [page.after]: is not known'],
  ])('are not as in %j', async (page, message) => {
    const answer = await call('POST', '/tables/notes/search', { body: { query: 'same', page } })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toBe(message)
  })
})

describe('tables of a branch', () => {
  const searchBranch = (body: object) => main('POST', '/search', { body })

  it('are searched as listed, each in its own way', async () => {
    expect(ids(await searchBranch({ query: 'texas', tables: ['people'] }))).toEqual(['wim'])
    const tables = [
      { table: 'people', target: ['bio'], filter: { name: { $startsWith: 'L' } } },
      {
        table: 'movies',
        target: ['title'],
        boosters: [{ numericBooster: { column: 'stars', factor: 1 } }],
      },
    ]
    const answer = await searchBranch({ query: 'matrix texas', tables })
    expect(ids(answer)).toEqual(['matrix', 'paris', 'lana'])
    expect(answer.body.totalCount).toBe(3)
    const names = answer.body.records.map(
      ({ service: { table } }: { service: { table: string } }) => table,
    )
    expect(names).toEqual(['movies', 'movies', 'people'])
  })

  it('may have nothing but numbers', async () => {
    const columns: Column[] = [{ name: 'count', type: 'int' }]
    const numbers = await createTables(service, 'numbers', { counts: columns })
    expectOk(await numbers('PUT', '/tables/counts/data/one', { body: { count: 7 } }))
    const search = async (query: string) => {
      return expectOk(await numbers('POST', '/search', { body: { query } })).body.totalCount
    }
    expect(await search('seven')).toBe(0)
    expect(await search('seven 7')).toBe(1)
  })

  it('are all of them when none is listed', async () => {
    expect(ids(await searchBranch({ query: 'texas', tables: [] })).sort()).toEqual(['paris', 'wim'])
  })

  it.each<[string, object, string]>([
    ['no query', {}, 'body: field [query]: is required'],
    ['an unknown table', { query: 'x', tables: ['nope'] }, 'tables: table [nope] not found'],
    [
      'a table twice',
      { query: 'x', tables: ['people', { table: 'people' }] },
      'tables: table [people] is named twice',
    ],
    [
      'an unknown key of a table',
      { query: 'x', tables: [{ table: 'people', sort: 'name' }] },
      'body: field [tables.0.sort]: is not known',
    ],
    [
      'an unknown column of a table',
      { query: 'x', tables: [{ table: 'people', target: ['nope'] }] },
      'target: table [people]: column [nope]: column not found',
    ],
    ['a filter for all', { query: 'x', filter: {} }, 'body: field [filter]: is not known'],
  ])('cannot be searched with %s', async (_what, body, message) => {
    const answer = await searchBranch(body)
    expect(answer.status).toBe(400)
    expect(answer.body).toMatchObject({ message, code: 'invalid_request' })
  })
})

describe('a search is refused', () => {
  it.each<[string, object, string]>([
    ['without a character to look for', { query: '' }, 'body: field [query]: must not be empty'],
    [
      'for too long a query',
      { query: 'x'.repeat(2049) },
      'body: field [query]: must have at most 2048 characters',
    ],
    ['for a query of another type', { query: 1 }, 'body: field [query]: must be of type string'],
    [
      'for half of a character',
      { query: '\ud800' },
      'body: field [query]: must not contain a NUL character or half of a surrogate pair',
    ],
    ['with a key that is not known', { sort: 'x' }, 'body: field [sort]: is not known'],
    ['with a fuzziness of three', { fuzziness: 3 }, 'body: field [fuzziness]: must be <= 2'],
    [
      'with half a fuzziness',
      { fuzziness: 0.5 },
      'body: field [fuzziness]: must be of type integer',
    ],
    [
      'with another prefix',
      { prefix: 'word' },
      'body: field [prefix]: must be one of [phrase, disabled]',
    ],
    [
      'with an unknown part of highlight',
      { highlight: { tag: 'b' } },
      'body: field [highlight.tag]: is not known',
    ],
    [
      'in a column that is not there',
      { target: ['nope'] },
      'target: table [movies]: column [nope]: column not found',
    ],
    [
      'in a column of a linked record',
      { target: ['director.name'] },
      'target: table [movies]: column [director.name]: column not found',
    ],
    [
      'in a vector',
      { target: ['embedding'] },
      'target: table [movies]: column [embedding]: cannot be searched, it is of type [vector]',
    ],
    [
      'with a weight of zero',
      { target: [{ column: 'title', weight: 0 }] },
      'body: field [target.0.weight]: must be >= 1',
    ],
    [
      'with a weight of eleven',
      { target: [{ column: 'title', weight: 11 }] },
      'body: field [target.0.weight]: must be <= 10',
    ],
    [
      'with a target without a column',
      { target: [{ weight: 1 }] },
      'body: field [target.0.column]: is required',
    ],
    [
      'with a filter on a column that is not there',
      { filter: { nope: 1 } },
      'table [movies]: column [nope]: column not found',
    ],
    [
      'with two boosters in one',
      {
        boosters: [
          {
            valueBooster: { column: 'title', value: 'x', factor: 1 },
            numericBooster: { column: 'year', factor: 1 },
          },
        ],
      },
      'body: field [boosters.0]: must have exactly one of its fields',
    ],
    [
      'with a booster of nothing',
      { boosters: [{}] },
      'body: field [boosters.0]: must name at least one field',
    ],
    [
      'with a booster without a factor',
      { boosters: [{ numericBooster: { column: 'year' } }] },
      'body: field [boosters.0.numericBooster.factor]: is required',
    ],
    [
      'with a booster of a column that is not there',
      { boosters: [{ numericBooster: { column: 'nope', factor: 1 } }] },
      'table [movies]: column [nope]: column not found',
    ],
    [
      'with a numeric booster of a text',
      { boosters: [{ numericBooster: { column: 'title', factor: 1 } }] },
      'boosters: column [title]: cannot be of type [text]',
    ],
    [
      'with a date booster of a number',
      { boosters: [{ dateBooster: { column: 'year', scale: '1d', decay: 0.5 } }] },
      'boosters: column [year]: cannot be of type [int]',
    ],
    [
      'with a value of another type',
      { boosters: [{ valueBooster: { column: 'year', value: '1999', factor: 1 } }] },
      'boosters: column [year]: [value] must be of type number',
    ],
    [
      'with a scale without a unit',
      { boosters: [{ dateBooster: { column: 'released', scale: '5', decay: 0.5 } }] },
      'boosters: column [released]: [scale] must be a number above 0 with d, h, m, s or ms, such as 5d',
    ],
    [
      'with a scale of zero',
      { boosters: [{ dateBooster: { column: 'released', scale: '0d', decay: 0.5 } }] },
      'boosters: column [released]: [scale] must be a number above 0 with d, h, m, s or ms, such as 5d',
    ],
    [
      'with a decay of one',
      { boosters: [{ dateBooster: { column: 'released', scale: '5d', decay: 1 } }] },
      'boosters: column [released]: [decay] must be between 0 and 1',
    ],
    [
      'with an unknown modifier',
      { boosters: [{ numericBooster: { column: 'year', factor: 1, modifier: 'cube' } }] },
      'body: field [boosters.0.numericBooster.modifier]: must be one of [none, log, log1p, ln, ln1p, square, sqrt, reciprocal]',
    ],
    [
      'with a condition on a column that is not there',
      {
        boosters: [{ numericBooster: { column: 'year', factor: 1, ifMatchesFilter: { nope: 1 } } }],
      },
      'table [movies]: column [nope]: column not found',
    ],
  ])('%s', async (_what, body, message) => {
    const answer = await searchMovies(body)
    expect(answer.status).toBe(400)
    expect(answer.body).toMatchObject({ message, code: 'invalid_request' })
  })

  it('in a table or a branch that is not there', async () => {
    const body = { query: 'x' }
    expect(await main('POST', '/tables/nope/search', { body })).toMatchObject({
      status: 404,
      body: { code: 'table_not_found', message: 'table [nope] not found' },
    })
    const nowhere = branchCall(service, 'films', { branch: 'nope' })
    for (const path of ['/search', '/tables/movies/search', '/tables/movies/vectorSearch']) {
      expect((await nowhere('POST', path, { body })).status, path).toBe(404)
    }
  })
})

describe('queries of all kinds', () => {
  it('are taken as words, whatever signs are in them', async () => {
    const queries = [
      'a(b',
      '[',
      '\\',
      '^$.*+?|{}()',
      "'; drop table x; --",
      '%_',
      '\u0001 \u0002',
      '🎉',
    ]
    for (const query of queries) {
      expect((await searchMovies({ query })).status, query).toBe(200)
    }
  })

  it('that are long say what is not looked for', async () => {
    const words = Array.from({ length: 40 }, (_, index) => `word${index}`)
    const { body } = expectOk(await searchMovies({ query: words.join(' '), fuzziness: 2 }))
    expect(body.warning).toBe(
      'query: only the first 32 words are searched for; query: is long; typing errors in some of its words are not tolerated',
    )
    const long = expectOk(await searchMovies({ query: `${'x'.repeat(2040)} matrix`, fuzziness: 2 }))
    expect(ids(long)).toEqual(['matrix', 'wick'])
  })
})

describe('who may search', () => {
  it('is everyone who may read, in the names that their client knows', async () => {
    const { body } = await service.call('POST', '/user/keys/reader', {
      body: { scope: { access: 'read' } },
    })
    const answer = await main('POST', '/search', {
      body: { query: 'bullet' },
      key: body.key,
      headers: XATA_CLIENT,
    })
    const [record] = expectOk(answer).body.records
    expect(record.xata).toMatchObject({ table: 'movies', version: 0 })
    expect(record).not.toHaveProperty('service')
    expect(JSON.parse(record.facts)).toEqual({ camera: 'bullet time', sequels: 3 })
    const vectors = await main('POST', '/tables/movies/vectorSearch', {
      body: { queryVector: [1, 0, 0], column: 'embedding', size: 1 },
      key: body.key,
      headers: XATA_CLIENT,
    })
    expect(expectOk(vectors).body.records[0].xata).toMatchObject({ table: 'movies', score: 2 })
  })

  it('is nobody whose key does not reach the database', async () => {
    const { body } = await service.call('POST', '/user/keys/elsewhere', {
      body: { scope: { databases: ['other'] } },
    })
    const answer = await main('POST', '/search', { body: { query: 'x' }, key: body.key })
    expect([403, 404]).toContain(answer.status)
  })
})

describe('columns that came later', () => {
  it('are searched by their names of today, with what older rows are filled with', async () => {
    const call = await createTables(service, 'renamed', {
      notes: [{ name: 'text', type: 'string' }],
    })
    expectOk(await call('PUT', '/tables/notes/data/old', { body: { text: 'oldest' } }))
    expectOk(
      await service.call('PUT', `${service.workspace}/db/renamed:fork`, { body: { from: 'main' } }),
    )
    const forked = branchCall(service, 'renamed', { branch: 'fork' })
    const operations = [
      { renameColumn: { table: 'notes', oldName: 'text', newName: 'title' } },
      {
        addColumn: {
          table: 'notes',
          column: { name: 'state', type: 'string', notNull: true, defaultValue: 'draft' },
        },
      },
      { renameTable: { oldName: 'notes', newName: 'papers' } },
    ]
    expectOk(await forked('POST', '/schema/update', { body: { operations } }))
    expectOk(await forked('PUT', '/tables/papers/data/new', { body: { title: 'newest' } }))
    const search = (query: string, target: string[]) =>
      forked('POST', '/tables/papers/search', { body: { query, target } })
    expect(ids(await search('oldest', ['title']))).toEqual(['old'])
    const { body } = await search('draft', ['state'])
    expect(body.totalCount).toBe(2)
    expect(body.records[0].service).toMatchObject({
      table: 'papers',
      highlight: { state: ['<em>draft</em>'] },
    })
    expect((await search('oldest', ['text'])).status).toBe(400)
    expect(ids(await call('POST', '/search', { body: { query: 'draft' } }))).toEqual([])
  })
})
