import type pg from 'pg'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../test/support/database.js'
import { Database } from './database.js'
import { runPipeline } from './pipeline.js'
import { ProtocolError } from './protocol-errors.js'
import { join, sql } from './sql.js'
import {
  compileStatement,
  DESCRIBED_PARAMETERS_MAX,
  PARAMETERS_MAX,
  type Statement,
  slot,
} from './statement.js'

let own: TestDatabase
let database: Database

beforeAll(async () => {
  own = await createTestDatabase()
  database = new Database({ poolMax: 2, statementTimeoutMs: 0, onIdleError: () => undefined })
  database.connect({ url: own.url })
})
afterAll(async () => {
  await database.close()
  await own.close()
})

function listing(count: number): Statement {
  const values = Array.from({ length: count }, () => sql`(${slot(0)}::integer)`)
  return compileStatement(sql`select count(*) from (values ${join(values, ', ')}) v`)
}

const works = async () => {
  expect(await database.query(sql`select 1 as one`)).toEqual([{ one: 1 }])
}

it('A statement with too many parameters is refused, and the connection goes on', async () => {
  const client = await database.pool.connect()
  try {
    const call = { statement: listing(70_000), values: ['1'] }
    await expect(runPipeline(client, [call])).rejects.toMatchObject({ code: 'query_too_costly' })
    await expect(runPipeline(client, [{ ...call, describes: true }])).rejects.toMatchObject({
      code: 'query_too_costly',
    })
    expect(
      await runPipeline(client, [{ statement: compileStatement(sql`select 1`), values: [] }]),
    ).toEqual([[['1']]])
  } finally {
    client.release()
  }
  const many = join(
    Array.from({ length: PARAMETERS_MAX + 1 }, () => sql`${1}::integer`),
    ', ',
  )
  await expect(database.query(sql`select array[${many}]`)).rejects.toMatchObject({
    code: 'query_too_costly',
  })
  const long = await database.openLong()
  try {
    await expect(long.query(sql`select array[${many}]`)).rejects.toMatchObject({
      code: 'query_too_costly',
    })
  } finally {
    await long.end()
  }
  await works()
})

it('A statement is described with as many parameters as the driver can read', async () => {
  const client = await database.pool.connect()
  try {
    const describe = (count: number) =>
      runPipeline(client, [{ statement: listing(count), values: [], describes: true }])
    expect(await describe(DESCRIBED_PARAMETERS_MAX)).toEqual([[['count', '20']]])
    await expect(describe(DESCRIBED_PARAMETERS_MAX + 1)).rejects.toMatchObject({
      code: 'query_too_costly',
    })
  } finally {
    client.release()
  }
})

/** Describes a statement without any check, so that the driver cannot read the answer. */
class UncheckedDescribe {
  readonly failed: Promise<Error>
  #fail: (error: Error) => void = () => undefined

  constructor(readonly text: string) {
    this.failed = new Promise((resolve) => {
      this.#fail = resolve
    })
  }

  submit(connection: {
    parse(message: object): void
    describe(message: object): void
    sync(): void
  }): void {
    connection.parse({ name: '', text: this.text, types: [] })
    connection.describe({ type: 'S', name: '' })
    connection.sync()
  }

  handleError(error: Error): void {
    this.#fail(error)
  }
}

it('A message that the driver cannot read breaks its connection and nothing else', async () => {
  const query = new UncheckedDescribe(listing(DESCRIBED_PARAMETERS_MAX + 1).text)
  const client = await database.pool.connect()
  client.query(query as unknown as pg.Submittable)
  const error = await query.failed
  client.release(error)
  expect(error).toBeInstanceOf(ProtocolError)
  await works()
})
