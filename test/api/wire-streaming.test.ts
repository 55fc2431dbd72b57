import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import {
  bind,
  errorCode,
  execute,
  message,
  openWire,
  parse,
  query,
  type RawClient,
  type Received,
  sync,
  type WireService,
} from '../support/wire-clients.js'

/* Results of any size reach a client of PostgreSQL, because the service does not keep their rows. */

const BYTES_MAX = 256 * 1024
const ROW_BYTES = 1000
/** Rows that take several times what the service may keep. */
const ROW_COUNT = 2000
const MANY = `select n, lpad('', ${ROW_BYTES}, 'x') as text from generate_series(1, ${ROW_COUNT}) n`

let service: TestService
let wire: WireService
let client: pg.Client

beforeAll(async () => {
  service = await createTestService({ limits: { answerBytesMax: BYTES_MAX } })
  await TestBranches.create(service, 'shop', {
    notes: [
      { name: 'text', type: 'text' },
      { name: 'mark', type: 'string' },
    ],
  })
  wire = await openWire(service)
  client = await wire.connect('shop:main')
  for (let first = 1; first < ROW_COUNT; first += 100) {
    await client.query(
      `insert into notes (id, text) select 'n' || n, lpad('', ${ROW_BYTES}, 'x') from generate_series(${first}, ${first + 99}) n`,
    )
  }
})
afterAll(async () => {
  await wire?.close()
  await service?.close()
})

const kinds = (messages: readonly Received[]) => messages.map(({ type }) => type).join('')
const rowCount = (messages: readonly Received[]) =>
  messages.filter(({ type }) => type === 'D').length
const tagOf = (messages: readonly Received[]) =>
  messages.find(({ type }) => type === 'C')?.body.toString()

describe('a result that is larger than what the service keeps', () => {
  it.each([
    ['of a query', MANY],
    ['of a table', 'select * from notes'],
  ])('arrives whole: %s', async (_, text) => {
    const { rows } = await client.query(text)
    expect(rows).toHaveLength(ROW_COUNT)
    // It is known now, and is run again.
    expect((await client.query(text)).rows).toEqual(rows)
  })

  it('arrives whole in a transaction, and with its columns', async () => {
    for (const begin of ['begin', 'begin read only']) {
      await client.query(begin)
      const { rows, fields } = await client.query('select id, text from notes')
      expect([rows.length, fields.map(({ name }) => name)]).toEqual([ROW_COUNT, ['id', 'text']])
      await client.query('commit')
    }
  })

  it('arrives whole from a statement that writes', async () => {
    const { rows } = await client.query(`update notes set mark = 'y' returning *`)
    expect(rows).toHaveLength(ROW_COUNT)
  })

  it('arrives whole by COPY', async () => {
    for (const [text, head] of [
      ['copy notes to stdout', 'n1\t'],
      [`copy (${MANY}) to stdout (format binary)`, 'PGCOPY\n'],
    ] as const) {
      const raw = await wire.openRaw()
      raw.send(query(text))
      const answers = await raw.until('Z')
      expect(errorCode(answers)).toBeUndefined()
      expect(tagOf(answers)).toBe(`COPY ${ROW_COUNT}\0`)
      const data = answers.filter(({ type }) => type === 'd').map(({ body }) => body.toString())
      expect(data.map((each) => each.includes(head)).indexOf(true)).toBe(0)
      expect(data.join('').split('xxx'.repeat(100)).length).toBeGreaterThan(ROW_COUNT)
      raw.close()
    }
  })

  it('arrives while the statement runs', async () => {
    const raw = await wire.openRaw()
    const fails = MANY.replace('select n,', `select 1 / (${ROW_COUNT} - n),`)
    raw.send(query('begin'))
    await raw.until('Z')
    raw.send(query(fails))
    const answers = await raw.until('Z')
    expect(errorCode(answers)).toBe('22012')
    expect(rowCount(answers)).toBeGreaterThan(ROW_COUNT / 2)
    raw.close()
  })
})

/** Executes a portal until it has no more rows. Returns the number of rows of each part. */
async function readParts(raw: RawClient, portal: string, rowsMax: number): Promise<number[]> {
  const parts: number[] = []
  for (;;) {
    raw.send(execute(rowsMax, portal), sync())
    const answers = await raw.until('Z')
    expect(errorCode(answers)).toBeUndefined()
    parts.push(rowCount(answers))
    if (!kinds(answers).includes('s')) return parts
  }
}

const close = (portal: string) => message('C', Buffer.from(`P${portal}\0`))

async function inTransaction(work: (raw: RawClient) => Promise<void>): Promise<void> {
  const raw = await wire.openRaw()
  raw.send(query('begin'))
  await raw.until('Z')
  await work(raw)
  raw.send(query('commit'))
  expect(tagOf(await raw.until('Z'))).toBe('COMMIT\0')
  raw.close()
}

describe('a portal that is read in parts in a transaction', () => {
  it('has more rows than the service keeps', async () => {
    await inTransaction(async (raw) => {
      raw.send(parse('select * from notes'), bind([], { portal: 'p' }), sync())
      await raw.until('Z')
      const parts = await readParts(raw, 'p', 300)
      expect(parts).toEqual([300, 300, 300, 300, 300, 300, 200])
      raw.send(execute(0, 'p'), sync())
      expect(tagOf(await raw.until('Z'))).toBe('SELECT 0\0')
    })
  })

  it('returns the rest, if it is asked for all', async () => {
    await inTransaction(async (raw) => {
      raw.send(
        parse('select id from notes where text like $1'),
        bind(['x%'], { portal: 'p' }),
        message('D', Buffer.from('Pp\0')),
        ...[execute(5, 'p'), execute(0, 'p'), sync()],
      )
      const answers = await raw.until('Z')
      expect(kinds(answers).replace(/D+/g, 'D')).toBe('12TDsDCZ')
      expect([rowCount(answers), tagOf(answers)]).toEqual([ROW_COUNT, `SELECT ${ROW_COUNT - 5}\0`])
    })
  })

  it('can be followed by any number of others', async () => {
    await inTransaction(async (raw) => {
      for (let round = 0; round < 30; round++) {
        const portal = round % 2 === 0 ? '' : 'p'
        raw.send(parse('select id from notes'), bind([], { portal }), execute(2, portal), sync())
        expect(kinds(await raw.until('Z'))).toBe('12DDsZ')
        if (portal !== '') {
          raw.send(close(portal), sync())
          await raw.until('Z')
        }
      }
    })
  })

  it('goes with the savepoint that it came after, and others can follow', async () => {
    await inTransaction(async (raw) => {
      const send = async (...messages: Buffer[]) => {
        raw.send(...messages, sync())
        return raw.until('Z')
      }
      const run = (text: string) => send(parse(text), bind([]), execute())
      const open = (portal: string) =>
        send(parse('select id from notes'), bind([], { portal }), execute(2, portal))
      await open('early')
      await run('savepoint s')
      await open('late')
      await run('rollback to s')
      expect(errorCode(await send(execute(2, 'late')))).toBe('34000')
      await run('rollback to s')
      expect(kinds(await send(execute(2, 'early')))).toBe('DDsZ')
      await send(close('late'))
      expect(kinds(await open('next'))).toBe('12DDsZ')
    })
  })
})

describe('a portal that is read in parts outside of a transaction', () => {
  it('has no more rows than the service keeps, and says where it can', async () => {
    const raw = await wire.openRaw()
    raw.send(parse(MANY), bind([]), execute(10), sync())
    const answers = await raw.until('Z')
    expect(errorCode(answers)).toBe('54000')
    expect(answers.find(({ type }) => type === 'E')?.body.toString()).toContain(
      'HIn a transaction, rows are read in the parts that are asked for.',
    )
    raw.close()
  })

  it('returns all rows if it is asked for fewer than none', async () => {
    const raw = await wire.openRaw()
    raw.send(parse('select generate_series(1, 3)'), bind([]), execute(-1), sync())
    expect(kinds(await raw.until('Z'))).toBe('12DDDCZ')
    raw.close()
  })
})
