import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

let service: TestService
const branches: BranchCall[] = []

const ROWS = [
  { id: 'a', name: 'r1', plan: 'free', index: 6, rating: 1, founded: '2022-01-01T09:00:00Z' },
  { id: 'b', name: 'r1', plan: 'free', index: 8, rating: 2.2, founded: '2022-01-01T23:30:00Z' },
  { id: 'c', name: 'r2', plan: 'paid', index: 3, rating: 3.1, founded: '2022-01-05T09:00:00Z' },
  { id: 'd', name: 'r2', plan: 'paid', index: 2, rating: 4, founded: '2022-01-05T18:00:00Z' },
  { id: 'e', name: 'r3', plan: 'free', index: 12, rating: 5.3, founded: '2022-01-10T09:00:00Z' },
  { id: 'f', team: 'one' },
]

beforeAll(async () => {
  service = await createTestService()
  const main = await createTables(service, 'aggs', {
    rows: [
      { name: 'name', type: 'string' },
      { name: 'plan', type: 'string' },
      { name: 'index', type: 'int' },
      { name: 'rating', type: 'float' },
      { name: 'founded', type: 'datetime' },
      { name: 'tags', type: 'multiple' },
      { name: 'team', type: 'link', link: { table: 'teams' } },
    ],
    teams: [{ name: 'level', type: 'int' }],
    empty: [{ name: 'value', type: 'int' }],
    times: [
      { name: 'day', type: 'date' },
      { name: 'hour', type: 'time' },
      { name: 'at', type: 'datetime' },
      { name: 'kind', type: 'string' },
    ],
  })
  const times = [
    { id: 'a', kind: 'x', day: '0001-01-01', hour: '09:30:00', at: '2022-01-01T09:00:00.123456Z' },
    { id: 'b', kind: 'x', day: '9999-12-31', hour: '23:59:59.999999', at: '2022-01-02T09:00:00Z' },
    { id: 'c', kind: 'y' },
  ]
  expectOk(await main('POST', '/tables/times/bulk', { body: { records: times } }))
  expectOk(await main('POST', '/tables/rows/bulk', { body: { records: ROWS.slice(0, 4) } }))
  expectOk(await main('PUT', '/tables/teams/data/one', { body: { level: 7 } }))
  const path = `${service.workspace}/db/aggs:fork`
  expectOk(await service.call('PUT', path, { body: { from: 'main' } }))
  const fork = branchCall(service, 'aggs', { branch: 'fork' })
  for (const call of [main, fork]) {
    expectOk(await call('POST', '/tables/rows/bulk', { body: { records: ROWS.slice(4) } }))
    const { id, ...body } = ROWS[0] ?? { id: '' }
    expectOk(await call('PUT', `/tables/rows/data/${id}`, { body }))
    branches.push(call)
  }
})
afterAll(() => service.close())

const aggregate = (call: BranchCall | undefined, body?: unknown, table = 'rows') => {
  if (call === undefined) throw new Error('there is no such branch')
  return call('POST', `/tables/${table}/aggregate`, body === undefined ? {} : { body })
}

const ofWeek = (more: object) => ({
  byWeek: { dateHistogram: { column: 'founded', calendarInterval: 'week', ...more } },
})

const CASES: readonly (readonly [about: string, aggs: object, result: object])[] = [
  [
    'counts',
    {
      total: { count: '*' },
      unique: { uniqueCount: { column: 'name', precisionThreshold: 10 } },
      free: { count: { filter: { plan: 'free' } } },
      ofTeam: { count: { filter: { 'team.level': { $gt: 5 } } } },
    },
    { total: 6, unique: 3, free: 3, ofTeam: 1 },
  ],
  [
    'numbers',
    {
      sum: { sum: { column: 'index' } },
      max: { max: { column: 'rating' } },
      min: { min: { column: 'index' } },
      mean: { average: { column: 'index' } },
      level: { sum: { column: 'team.level' } },
    },
    { sum: 31, max: 5.3, min: 2, mean: 6.2, level: 7 },
  ],
  [
    'percentiles',
    { p: { percentiles: { column: 'index', percentiles: [0, 25, 50, 99.5, 100] } } },
    // The values are 2, 3, 6, 8, 12; percentile p is interpolated at position 5p/100 - 0.5.
    { p: { values: { '0.0': 2, '25.0': 2.75, '50.0': 6, '99.5': 12, '100.0': 12 } } },
  ],
  [
    'weeks, which start on Monday',
    ofWeek({}),
    {
      byWeek: {
        values: [
          { $key: '2021-12-27T00:00:00.000Z', $count: 2 },
          { $key: '2022-01-03T00:00:00.000Z', $count: 2 },
          { $key: '2022-01-10T00:00:00.000Z', $count: 1 },
        ],
      },
    },
  ],
  [
    'buckets in buckets',
    ofWeek({
      aggs: {
        unique: { uniqueCount: { column: 'name' } },
        top: { topValues: { column: 'name', aggs: { best: { max: { column: 'rating' } } } } },
      },
    }),
    {
      byWeek: {
        values: [
          {
            $key: '2021-12-27T00:00:00.000Z',
            $count: 2,
            unique: 1,
            top: { values: [{ $key: 'r1', $count: 2, best: 2.2 }] },
          },
          {
            $key: '2022-01-03T00:00:00.000Z',
            $count: 2,
            unique: 1,
            top: { values: [{ $key: 'r2', $count: 2, best: 4 }] },
          },
          {
            $key: '2022-01-10T00:00:00.000Z',
            $count: 1,
            unique: 1,
            top: { values: [{ $key: 'r3', $count: 1, best: 5.3 }] },
          },
        ],
      },
    },
  ],
  [
    'what is beside a bucketing like what is in it',
    {
      plans: {
        topValues: { column: 'plan', size: 1 },
        aggs: { mean: { average: { column: 'rating' } }, n: { count: '*' } },
      },
    },
    { plans: { values: [{ $key: 'free', $count: 3, mean: (1 + 2.2 + 5.3) / 3, n: 3 }] } },
  ],
  [
    'days somewhere else',
    {
      days: {
        dateHistogram: { column: 'founded', calendarInterval: 'day', timezone: '+01:00' },
      },
    },
    {
      days: {
        values: [
          { $key: '2021-12-31T23:00:00.000Z', $count: 1 },
          { $key: '2022-01-01T23:00:00.000Z', $count: 1 },
          { $key: '2022-01-04T23:00:00.000Z', $count: 2 },
          { $key: '2022-01-09T23:00:00.000Z', $count: 1 },
        ],
      },
    },
  ],
  [
    'spans of a fixed length',
    { spans: { dateHistogram: { column: 'founded', interval: '5d' } } },
    {
      spans: {
        values: [
          // Intervals are aligned to 1970-01-01.
          { $key: '2021-12-29T00:00:00.000Z', $count: 2 },
          { $key: '2022-01-03T00:00:00.000Z', $count: 2 },
          { $key: '2022-01-08T00:00:00.000Z', $count: 1 },
        ],
      },
    },
  ],
  [
    'ranges of numbers',
    {
      byIndex: {
        numericHistogram: {
          column: 'index',
          interval: 5,
          aggs: {
            mean: { average: { column: 'rating' } },
            free: { count: { filter: { plan: 'free' } } },
          },
        },
      },
      shifted: { numericHistogram: { column: 'rating', interval: 2.5, offset: 1 } },
    },
    {
      byIndex: {
        values: [
          { $key: 0, $count: 2, mean: 3.55, free: 0 },
          { $key: 5, $count: 2, mean: 1.6, free: 2 },
          { $key: 10, $count: 1, mean: 5.3, free: 1 },
        ],
      },
      shifted: {
        values: [
          { $key: 1, $count: 3 },
          { $key: 3.5, $count: 2 },
        ],
      },
    },
  ],
  [
    'top values, the most frequent first',
    {
      names: { topValues: { column: 'name', size: 2 } },
      plans: {
        topValues: {
          column: 'plan',
          size: 1,
          aggs: {
            names: {
              topValues: {
                column: 'name',
                size: 1,
                aggs: { p: { percentiles: { column: 'index', percentiles: [50] } } },
              },
            },
          },
        },
      },
    },
    {
      names: {
        values: [
          { $key: 'r1', $count: 2 },
          { $key: 'r2', $count: 2 },
        ],
      },
      plans: {
        values: [
          {
            $key: 'free',
            $count: 3,
            names: { values: [{ $key: 'r1', $count: 2, p: { values: { '50.0': 7 } } }] },
          },
        ],
      },
    },
  ],
  ['nothing asked for', {}, {}],
]

describe('aggregate', () => {
  it.each(CASES)('gives %s', async (_about, aggs, result) => {
    for (const call of branches) {
      expect(expectOk(await aggregate(call, { aggs })).body).toEqual({ aggs: result })
    }
  })

  it('finds the first and the last value of an enum by the order of its list', async () => {
    const call = await createTables(service, 'enums', {
      shirts: [
        { name: 'size', type: 'enum', enum: { values: ['small', 'medium', 'large'] } },
        { name: 'color', type: 'string' },
      ],
    })
    const records = [
      { size: 'large', color: 'red' },
      { size: 'small', color: 'red' },
      { size: 'medium', color: 'blue' },
      { color: 'green' },
    ]
    expectOk(await call('POST', '/tables/shirts/bulk', { body: { records } }))
    const extremes = { least: { min: { column: 'size' } }, most: { max: { column: 'size' } } }
    const aggs = { ...extremes, colors: { topValues: { column: 'color', aggs: extremes } } }
    const { body } = expectOk(await aggregate(call, { aggs }, 'shirts'))
    expect(body.aggs).toMatchObject({ least: 'small', most: 'large' })
    expect(body.aggs.colors.values).toEqual([
      { $key: 'red', $count: 2, least: 'small', most: 'large' },
      { $key: 'blue', $count: 1, least: 'medium', most: 'medium' },
      { $key: 'green', $count: 1, least: null, most: null },
    ])
  })

  it('counts when nothing else is asked for', async () => {
    expect((await aggregate(branches[1])).body).toEqual({ aggs: { count: 6 } })
    expect((await aggregate(branches[1], {})).body).toEqual({ aggs: { count: 6 } })
    const filtered = await aggregate(branches[1], { filter: { plan: 'paid' } })
    expect(filtered.body).toEqual({ aggs: { count: 2 } })
  })

  it('gives null and no buckets of nothing', async () => {
    const aggs = {
      n: { count: '*' },
      s: { sum: { column: 'value' } },
      p: { percentiles: { column: 'value', percentiles: [50] } },
      t: { topValues: { column: 'value' } },
    }
    for (const body of [{ aggs }, { aggs, filter: { value: 1 } }]) {
      expect((await aggregate(branches[0], body, 'empty')).body).toEqual({
        aggs: { n: 0, s: null, p: { values: { '50.0': null } }, t: { values: [] } },
      })
    }
  })

  it('have the first and the last of dates and times, as summaries do', async () => {
    const columns = ['day', 'hour', 'at']
    const aggs = Object.fromEntries(
      columns.flatMap((column) => [
        [`${column}Min`, { min: { column } }],
        [`${column}Max`, { max: { column } }],
      ]),
    )
    for (const call of branches) {
      const summaries = Object.fromEntries(
        columns.flatMap((column) => [
          [`${column}Min`, { min: column }],
          [`${column}Max`, { max: column }],
        ]),
      )
      const found = expectOk(await aggregate(call, { aggs }, 'times')).body.aggs
      expect(found).toMatchObject({
        dayMin: '0001-01-01',
        dayMax: '9999-12-31',
        hourMin: '09:30:00',
        hourMax: '23:59:59.999999',
        atMax: '2022-01-02T09:00:00.000Z',
      })
      const summed = expectOk(
        await call('POST', '/tables/times/summarize', { body: { summaries } }),
      )
      expect(summed.body.summaries).toEqual([found])
      const within = {
        kinds: { topValues: { column: 'kind', aggs: { last: { max: { column: 'day' } } } } },
      }
      expect(expectOk(await aggregate(call, { aggs: within }, 'times')).body.aggs.kinds).toEqual({
        values: [
          { $key: 'x', $count: 2, last: '9999-12-31' },
          { $key: 'y', $count: 1, last: null },
        ],
      })
    }
  })

  it.each([
    [
      { a: { max: { column: 'name' } } },
      'aggs: [a]: [max]: column [name]: cannot be used with type [text]',
    ],
    [
      { a: { sum: { column: 'founded' } } },
      'aggs: [a]: [sum]: column [founded]: cannot be used with type [datetime]',
    ],
    [
      { a: { sum: { column: 'name' } } },
      'aggs: [a]: [sum]: column [name]: cannot be used with type [text]',
    ],
    [{ a: { sum: { column: 'nope' } } }, 'table [rows]: column [nope]: column not found'],
    [{ a: { sum: {} } }, 'aggs: [a]: [sum]: [column] must be the name of a column'],
    [
      { a: { sum: { column: 'index' }, aggs: { b: { count: '*' } } } },
      'aggs: [a]: expected one aggregation',
    ],
    [{ a: { count: '*', aggs: { b: { count: '*' } } } }, 'aggs: [a]: expected one aggregation'],
    [
      { a: { topValues: { column: 'plan', aggs: {} }, aggs: {} } },
      'aggs: [a]: [topValues]: [aggs] is given twice',
    ],
    [
      { a: { uniqueCount: { column: 'team' } } },
      'aggs: [a]: [uniqueCount]: column [team]: is a link',
    ],
    [
      { a: { topValues: { column: 'tags' } } },
      'aggs: [a]: [topValues]: column [tags]: cannot be used with type [list]',
    ],
    [
      { a: { percentiles: { column: 'index' } } },
      'aggs: [a]: [percentiles]: [percentiles] must be a list of numbers',
    ],
    [
      { a: { percentiles: { column: 'index', percentiles: [-1] } } },
      'aggs: [a]: [percentiles]: a percentile must be a number from 0 to 100',
    ],
    [
      { a: { topValues: { column: 'name', size: 1001 } } },
      'aggs: [a]: [topValues]: [size] must be a whole number from 1 to 1000',
    ],
    [
      { a: { dateHistogram: { column: 'founded' } } },
      'aggs: [a]: [dateHistogram]: expected either [interval] or [calendarInterval]',
    ],
    [
      { a: { dateHistogram: { column: 'founded', interval: '0d' } } },
      'aggs: [a]: [dateHistogram]: [interval] must be a number with d, h, m, s or ms, such as 5d',
    ],
    [
      { a: { dateHistogram: { column: 'founded', calendarInterval: "day'" } } },
      'aggs: [a]: [dateHistogram]: [calendarInterval] must be one of minute, hour, day, week, month, quarter, year',
    ],
    [
      { a: { dateHistogram: { column: 'founded', interval: '1d', timezone: 'Europe' } } },
      'aggs: [a]: [dateHistogram]: [timezone] must be an offset such as +01:00',
    ],
    [
      { a: { numericHistogram: { column: 'index', interval: 0 } } },
      'aggs: [a]: [numericHistogram]: [interval] must be a number above 0',
    ],
    [{ a: { count: 'name' } }, 'aggs: [a]: [count]: expected [*] or a filter'],
    [{ a: { median: { column: 'index' } } }, 'aggs: [a]: [median] is not an aggregation'],
    [{ a: { sum: { column: 'index', aggs: {} } } }, 'aggs: [a]: [sum]: [aggs] is not known'],
    [{ a: {} }, 'aggs: [a]: expected one aggregation'],
    [{ $a: { count: '*' } }, 'aggs: [$a]: is not a name'],
    [
      { a: { topValues: { column: 'name', aggs: { b: { sum: { column: 'name' } } } } } },
      'aggs: [a]: [b]: [sum]: column [name]: cannot be used with type [text]',
    ],
  ])('refuses %j', async (aggs, message) => {
    const answer = await aggregate(branches[0], { aggs })
    expect(answer).toMatchObject({ status: 400, body: { message, code: 'invalid_request' } })
  })

  it('refuses what is not there or malformed', async () => {
    expect((await aggregate(branches[0], {}, 'nope')).status).toBe(404)
    expect((await aggregate(branches[0], { aggregations: {} })).status).toBe(400)
    expect((await aggregate(branches[0], { filter: { nope: 1 } })).status).toBe(400)
  })
})
