import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { Pool } from 'undici'
import { CONNECTIONS, createEnvironment, type Environment, headers } from './environment.js'
import { inTurns, type Request, requestRate, timeMs } from './measure.js'
import { createDatabase, rateDetail, rowId } from './people.js'
import { type Figure, figure } from './report.js'

/*
 * Measures writers of a branch beside requests that need the branch for themselves. A refused write ends the
 * measurement with an error.
 */

const ROWS = 10_000
const FORKING_CLIENTS = 2
/** More than a stream may have that is held in memory. */
const STREAM_START_BYTES = 2 * 1024 * 1024
/** The time in which the server processes the beginning. */
const STREAM_START_MS = 1000
const STREAM_PAUSE_MS = 20
const MERGED_ROWS = 100_000
/** Clients that update while rows are merged. Few, because waiting for a free processor would count too. */
const WAITING_CLIENTS = 2
const ALONE_MS = 3000

export async function benchBusy({ quick }: { quick: boolean }): Promise<Figure[]> {
  const environment = await createEnvironment()
  // Other work does not take connections from the writers.
  const aside = new Pool(environment.url, { connections: FORKING_CLIENTS, pipelining: 1 })
  const options = { rounds: quick ? 5 : 9, durationMs: quick ? 1000 : 2000 }
  try {
    const forkers = await measureBeside(environment, {
      ...options,
      name: 'forked',
      start: async (isOver) => {
        const clients = Array.from({ length: FORKING_CLIENTS }, (_, client) => client)
        const working = Promise.all(clients.map((client) => keepForking(aside, { client, isOver })))
        return () => working
      },
    })
    const stream = await measureBeside(environment, {
      ...options,
      name: 'streamed',
      start: (isOver) => startStream(aside, isOver),
    })
    const merge = await measureMerge(environment, aside, { rows: quick ? 20_000 : MERGED_ROWS })
    return [
      figure('longest update beside a large merge', {
        value: merge.longestMs,
        unit: 'ms',
        atMost: 250,
        detail: `${Math.round(merge.longestMs)} ms; ${merge.rows} merged rows in ${Math.round(merge.mergeMs)} ms, ${merge.updates} updates meanwhile, longest update before the merge ${Math.round(merge.aloneMs)} ms`,
      }),
      figure('updates beside two clients that keep forking', {
        ratio: forkers.ours / forkers.baseline,
        atLeast: 0.5,
        detail: rateDetail(forkers, 'alone'),
      }),
      figure('updates beside a slow stream', {
        ratio: stream.ours / stream.baseline,
        atLeast: 0.8,
        detail: rateDetail(stream, 'alone'),
      }),
    ]
  } finally {
    await aside.close()
    await environment.close()
  }
}

/** Measures updates of a branch, alone and while other work is done. */
async function measureBeside(
  environment: Environment,
  options: {
    name: string
    rounds: number
    durationMs: number
    /** Starts work that lasts until `isOver`. Resolves to a function that waits for its end. */
    start(isOver: () => boolean): Promise<() => Promise<unknown>>
  },
): Promise<{ ours: number; baseline: number }> {
  const { name, rounds, durationMs, start } = options
  await createDatabase(environment, { name, tables: ['people'], rows: ROWS })
  // The first fork changes how rows are written, which is not measured here.
  await environment.call('PUT', `/db/${name}:first`)
  const next = updateOf(name)
  const rate = (forMs = durationMs) =>
    requestRate(environment.http, { connections: CONNECTIONS, durationMs: forMs, next })
  await rate(durationMs / 2)
  return inTurns(rounds, {
    baseline: () => rate(),
    async ours() {
      let isOver = false
      const end = await start(() => isOver)
      try {
        return await rate()
      } finally {
        isOver = true
        await end()
      }
    },
  })
}

function updateOf(database: string): () => Request {
  const json = headers('')
  let count = 0
  return () => ({
    method: 'PATCH',
    path: `/db/${database}:main/tables/people/data/${rowId(1 + (count++ % ROWS))}`,
    headers: json,
    body: JSON.stringify({ age: count % 90 }),
  })
}

/**
 * Measures the longest of the updates that a few clients make while many rows are merged into the branch, and before
 * that.
 */
async function measureMerge(
  environment: Environment,
  aside: Pool,
  { rows }: { rows: number },
): Promise<{ rows: number; longestMs: number; aloneMs: number; mergeMs: number; updates: number }> {
  await createDatabase(environment, { name: 'merged', tables: ['people'], rows: ROWS })
  await environment.call('PUT', '/db/merged:dev')
  const lines = Array.from({ length: rows }, (_, index) => `{"name":"new ${index}","age":1}\n`)
  await succeed(aside, '/db/merged:dev/tables/people/bulk', lines.join(''), 'application/x-ndjson')
  const next = updateOf('merged')
  const longestUntil = async (isOver: () => boolean): Promise<{ ms: number; count: number }> => {
    let [ms, count] = [0, 0]
    const worker = async () => {
      while (!isOver()) {
        const { body = null, ...request } = next()
        const tookMs = await timeMs(async () => {
          const response = await environment.http.request({ ...request, body })
          const text = await response.body.text()
          if (response.statusCode >= 300) throw new Error(text)
        })
        ms = Math.max(ms, tookMs)
        count++
      }
    }
    await Promise.all(Array.from({ length: WAITING_CLIENTS }, worker))
    return { ms, count }
  }
  const endsAt = performance.now() + ALONE_MS
  const alone = await longestUntil(() => performance.now() > endsAt)
  let isOver = false
  const meanwhile = longestUntil(() => isOver)
  const mergeMs = await timeMs(() => succeed(aside, '/db/merged:dev/merge', '{}')).finally(() => {
    isOver = true
  })
  const beside = await meanwhile
  return { rows, longestMs: beside.ms, aloneMs: alone.ms, mergeMs, updates: beside.count }
}

async function succeed(
  http: Pool,
  path: string,
  body: string,
  type = 'application/json',
): Promise<void> {
  const response = await http.request({
    method: 'POST',
    path,
    headers: { ...headers(), 'content-type': type },
    body,
    headersTimeout: 0,
    bodyTimeout: 0,
  })
  const text = await response.body.text()
  if (response.statusCode >= 300) throw new Error(text)
}

let forkCount = 0

async function keepForking(
  http: Pool,
  { client, isOver }: { client: number; isOver(): boolean },
): Promise<void> {
  while (!isOver()) {
    const path = `/db/forked:fork${client}-${forkCount++}`
    const { statusCode, body } = await http.request({ method: 'PUT', path, headers: headers() })
    const text = await body.text()
    if (statusCode !== 201) throw new Error(text)
  }
}

/** Sends a stream that comes in drops, after a beginning that the server has read. */
async function startStream(http: Pool, isOver: () => boolean): Promise<() => Promise<void>> {
  const line = `${JSON.stringify({ name: 'x'.repeat(1000) })}\n`
  const body = new PassThrough({ highWaterMark: line.length })
  const answer = http.request({
    method: 'POST',
    path: '/db/streamed:main/tables/people/bulk',
    headers: { ...headers(), 'content-type': 'application/x-ndjson' },
    body,
  })
  for (let bytes = 0; bytes < STREAM_START_BYTES; bytes += line.length) {
    if (!body.write(line)) await once(body, 'drain')
  }
  await delay(STREAM_START_MS)
  const sending = (async () => {
    while (!isOver()) {
      body.write(line)
      await delay(STREAM_PAUSE_MS)
    }
    body.end()
  })()
  return async () => {
    await sending
    const { statusCode, body: text } = await answer
    const message = await text.text()
    if (statusCode !== 200) throw new Error(message)
  }
}
