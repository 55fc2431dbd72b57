import { rm } from 'node:fs/promises'
import path from 'node:path'
import {
  buildClient,
  parseProviderString,
  type SchemaInference,
  XataApiClient,
  type XataRecord,
} from '@xata.io/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import { endAll, type OffshootProcess, startOffshoot } from '../support/process.js'

/*
 * Runs searches of the published Xata Lite client, unchanged, against the service as its users run
 * it.
 */

const TABLES = [
  {
    name: 'actors',
    columns: [
      { name: 'name', type: 'string' },
      { name: 'city', type: 'string' },
      { name: 'born', type: 'datetime' },
      { name: 'films', type: 'int' },
      { name: 'embedding', type: 'vector', vector: { dimension: 3 } },
    ],
    revLinks: [{ table: 'movies', column: 'lead' }],
  },
  {
    name: 'movies',
    columns: [
      { name: 'title', type: 'string' },
      { name: 'plot', type: 'text' },
      { name: 'lead', type: 'link', link: { table: 'actors' } },
    ],
  },
] as const
type Inferred = SchemaInference<typeof TABLES>
type Schema = { actors: Inferred['actors'] & XataRecord; movies: Inferred['movies'] & XataRecord }

class XataClient extends buildClient()<Schema> {
  constructor(options: { databaseURL: string; apiKey: string; branch: string }) {
    super(options, TABLES)
  }
}

let folder: string
let service: OffshootProcess
let xata: XataClient

beforeAll(async () => {
  folder = await makeDataFolder('search')
  service = startOffshoot(path.join(folder, 'data'))
  const { address: given, workspaceId: workspace, key } = await service.ready()
  const apiKey = key ?? ''
  // The client treats addresses that contain `localhost` specially, and drops the workspace from
  // them.
  const address = given.replace('localhost', '127.0.0.1')
  const host = parseProviderString(`${address},${address}/{workspaceId}.{region}.xata.sh`)
  if (host === null) throw new Error('the provider must be understood')
  const api = new XataApiClient({ apiKey, host })
  const [region, dbName] = ['local', 'films']
  await api.databases.createDatabase({
    pathParams: { workspaceId: workspace, dbName },
    body: { region },
  })
  const pathParams = { workspace, region, dbBranchName: 'films:main' }
  const { edits } = await api.migrations.compareBranchWithUserSchema({
    pathParams,
    body: { schema: { tables: JSON.parse(JSON.stringify(TABLES)) } },
  })
  await api.migrations.applyBranchSchemaEdit({ pathParams, body: { edits } })
  const databaseURL = `${address}/${workspace}.${region}.xata.sh/db/films`
  xata = new XataClient({ databaseURL, apiKey, branch: 'main' })
  await xata.db.actors.create([
    {
      id: 'keanu',
      name: 'Keanu Reeves',
      city: 'New York City',
      born: new Date('1964-09-02T00:00:00Z'),
      films: 80,
      embedding: [1, 0, 0],
    },
    { id: 'carrie', name: 'Carrie-Anne Moss', city: 'Burnaby', films: 50, embedding: [0, 1, 0] },
    { id: 'laurence', name: 'Laurence Fishburne', city: 'New Orleans', films: 120 },
  ])
  await xata.db.movies.create([
    { id: 'matrix', title: 'The Matrix', plot: 'Keanu wakes up.', lead: 'keanu' },
    { id: 'memento', title: 'Memento', plot: 'A man forgets.', lead: 'carrie' },
  ])
})
afterAll(async () => {
  await service?.end('SIGTERM')
  await endAll([path.join(folder, 'data')])
  await rm(folder, { recursive: true, force: true })
})

const ids = (records: readonly { id: string }[]) => records.map(({ id }) => id)

describe('search.all', () => {
  it('finds records of all tables, with their table and what was found', async () => {
    const { totalCount, records } = await xata.search.all('keanu')
    expect(totalCount).toBe(2)
    const byTable = Object.fromEntries(records.map(({ table, record }) => [table, record]))
    expect(byTable.actors).toMatchObject({ id: 'keanu', city: 'New York City', films: 80 })
    expect(byTable.movies).toMatchObject({ id: 'matrix', lead: { id: 'keanu' } })
    const metadata = byTable.actors?.getMetadata()
    expect(metadata).toMatchObject({
      table: 'actors',
      version: 0,
      highlight: { name: ['<em>Keanu</em> Reeves'] },
    })
    expect(metadata?.score).toBeGreaterThan(0)
    expect(metadata?.createdAt).toBeInstanceOf(Date)
  })

  it('overlooks typing errors as told', async () => {
    const count = async (query: string, fuzziness?: number) =>
      (await xata.search.all(query, { tables: ['actors'], fuzziness: fuzziness as number }))
        .totalCount
    expect(await count('kaanu')).toBe(1)
    expect(await count('kenu')).toBe(1)
    expect(await count('kaanu', 0)).toBe(0)
    expect(await count('kaano', 1)).toBe(0)
    expect(await count('kaano', 2)).toBe(1)
  })

  it('takes tables with targets, filters and boosters, and pages', async () => {
    const { totalCount, records } = await xata.search.all<'actors' | 'movies'>('new', {
      tables: [
        {
          table: 'actors',
          target: [{ column: 'city', weight: 3 }, 'name'],
          filter: { films: { $gt: 70 } },
          boosters: [
            { numericBooster: { column: 'films', factor: 1, modifier: 'ln1p' } },
            {
              dateBooster: {
                column: 'born',
                origin: '1964-01-01T00:00:00Z',
                scale: '365d',
                decay: 0.5,
              },
            },
            { valueBooster: { column: 'name', value: 'Keanu Reeves', factor: 100 } },
          ],
        },
        'movies',
      ],
      fuzziness: 0,
      highlight: { enabled: false },
      page: { size: 1, offset: 1 },
    })
    expect(totalCount).toBe(2)
    expect(records.map(({ record }) => record.id)).toEqual(['laurence'])
    expect(records[0]?.record.getMetadata()).not.toHaveProperty('highlight')
  })

  it('refuses a table that is not there', async () => {
    const search = xata.search.all('x', { tables: ['nope' as 'actors'] })
    await expect(search).rejects.toMatchObject({
      status: 400,
      message: 'tables: table [nope] not found',
    })
  })
})

it('search.byTable groups what it finds', async () => {
  const { totalCount, records } = await xata.search.byTable('kean', { prefix: 'phrase' })
  expect(totalCount).toBe(2)
  expect(ids(records.actors ?? [])).toEqual(['keanu'])
  expect(ids(records.movies ?? [])).toEqual(['matrix'])
})

describe('search of a table', () => {
  it('finds records and their metadata', async () => {
    const { totalCount, records } = await xata.db.actors.search('new york', {
      target: ['city'],
      filter: { films: { $lt: 100 } },
      page: { size: 5 },
    })
    expect(totalCount).toBe(1)
    expect(records[0]).toMatchObject({ id: 'keanu', xata: { table: 'actors' } })
    expect(records[0]?.xata).toMatchObject({
      highlight: { city: ['<em>New</em> <em>York</em> City'] },
    })
  })

  it('finds the beginning of a phrase', async () => {
    const { records } = await xata.db.actors.search('carrie-an', { prefix: 'phrase' })
    expect(ids(records)).toEqual(['carrie'])
  })

  it('refuses a column that is not there, and an empty query', async () => {
    await expect(xata.db.actors.search('x', { target: ['nope' as 'name'] })).rejects.toMatchObject({
      status: 400,
    })
    await expect(xata.db.actors.search('')).rejects.toMatchObject({ status: 400 })
  })
})

describe('vectorSearch', () => {
  it.each(['cosineSimilarity', 'l1', 'l2', undefined])('finds the nearest by %s', async (name) => {
    const { totalCount, records } = await xata.db.actors.vectorSearch('embedding', [2, 0.5, 0], {
      similarityFunction: name as string,
      size: 5,
    })
    expect(totalCount).toBe(2)
    expect(ids(records)).toEqual(['keanu', 'carrie'])
    const [first = 0, second = 0] = records.map((record) => record.getMetadata().score)
    expect(first).toBeGreaterThan(second)
  })

  it('scores one plus the cosine, and keeps to a filter', async () => {
    const { records } = await xata.db.actors.vectorSearch('embedding', [0, 5, 0], {
      filter: { city: 'Burnaby' },
    })
    expect(records.map((record) => [record.id, record.getMetadata().score])).toEqual([
      ['carrie', 2],
    ])
  })

  it('refuses a vector of another length', async () => {
    await expect(xata.db.actors.vectorSearch('embedding', [1])).rejects.toMatchObject({
      status: 400,
      message: 'queryVector: column [embedding] has 3 numbers, got 1',
    })
  })
})
