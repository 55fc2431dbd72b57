import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../test/support/database.js'
import {
  PREPARED_LENGTH_MAX,
  PREPARED_MAX,
  PREPARED_TEXT_LENGTH_MAX,
  RoomSpentError,
  runPipeline,
} from './pipeline.js'
import { join, raw, sql } from './sql.js'
import {
  type Call,
  compileStatement,
  PARAMETERS_MAX,
  type Parameter,
  slot,
  TEXT_LENGTH_MAX,
} from './statement.js'

let database: TestDatabase
let client: pg.PoolClient

beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.close())

beforeEach(async () => {
  client = await database.pool.connect()
  return () => client.release(true)
})

const call = (text: string, ...values: Parameter[]): Call => ({
  statement: compileStatement(raw(text)),
  values,
})
const ECHO = compileStatement(sql`select ${slot(0)}::text, ${slot(1)}::text, ${slot(0)}::text`)

const DIVIDING: Call = {
  statement: compileStatement(sql`select 1 / ${slot(0)}::integer`),
  values: ['0'],
}
const ECHO_CALL: Call = { statement: ECHO, values: ['a', 'b'] }

async function preparedCount(): Promise<number> {
  const { rows } = await client.query(
    'select count(*)::integer as count from pg_prepared_statements where not from_sql',
  )
  return rows[0].count
}

describe('runPipeline', () => {
  it('gives the rows of each call, in the order of the calls', async () => {
    const rows = await runPipeline(client, [
      call('select 1'),
      call('select n from generate_series(1, 3) as n'),
      call('select 1 where false'),
      call('create temporary table t (n integer)'),
      call('insert into t values (7) returning n, n + 1'),
      call(''),
      call("select null, 'é', true"),
    ])
    expect(rows).toEqual([
      [['1']],
      [['1'], ['2'], ['3']],
      [],
      [],
      [['7', '8']],
      [],
      [[null, 'é', 't']],
    ])
  })

  it('runs a call without a name, and describes one instead of running it', async () => {
    const before = await preparedCount()
    const text = 'select 1::bigint as n, null::text[] as "t t" from (select 1/0) never'
    const rows = await runPipeline(client, [
      { ...call(text), isUnnamed: true, describes: true },
      { ...call('select 2'), isUnnamed: true },
      { ...call('select'), isUnnamed: true, describes: true },
    ])
    expect(rows).toEqual([
      [
        ['n', '20'],
        ['t t', '1009'],
      ],
      [['2']],
      [],
    ])
    expect(await preparedCount()).toBe(before)
  })

  it('of no calls gives nothing', async () => {
    expect(await runPipeline(client, [])).toEqual([])
  })

  describe('with the input of a copy', () => {
    const copy = (input: string): Call => ({ ...call('copy words from stdin'), input })
    const words = call('select word from words order by word')

    beforeEach(async () => {
      await client.query('create temporary table words (word text primary key)')
    })

    it('copies it between the other calls', async () => {
      const rows = await runPipeline(client, [
        call("insert into words values ('a')"),
        copy('b\nc\n'),
        copy(''),
        call("delete from words where word = 'b'"),
        copy('é\\t😀\n'),
        words,
      ])
      expect(rows).toEqual([[], [], [], [], [], [['a'], ['c'], ['é\t😀']]])
    })

    it('copies more than the socket takes at once', async () => {
      const input = Array.from({ length: 50_000 }, (_, n) => `word number ${n}\n`).join('')
      const rows = await runPipeline(client, [copy(input), call('select count(*) from words')])
      expect(rows[1]).toEqual([['50000']])
    })

    it.each([
      ['it is refused', [copy('a\nb\n'), copy('c\na\n'), copy('d\n')]],
      ['a call before it fails', [copy('a\n'), call('select 1 / 0'), copy('b\nc\n')]],
      ['its table is not there', [copy('a\n'), { ...call('copy none from stdin'), input: 'b\n' }]],
    ])('does nothing when %s, and goes on afterwards', async (_name, calls) => {
      await expect(runPipeline(client, calls)).rejects.toThrow()
      expect(await runPipeline(client, [copy('z\n'), words])).toEqual([[], [['z']]])
    })
  })

  it('puts values where their slots are, as often as they stand there', async () => {
    const calls = [
      { statement: ECHO, values: ['a', null] },
      { statement: ECHO, values: ['b', "'; drop table x; --"] },
    ]
    expect(await runPipeline(client, calls)).toEqual([
      [['a', null, 'a']],
      [['b', "'; drop table x; --", 'b']],
    ])
  })

  it('gives the results of large batches and large values in one piece', async () => {
    const text = 'é'.repeat(500_000)
    const calls = Array.from({ length: 1000 }, (_, number) => ({
      statement: ECHO,
      values: [String(number), number === 500 ? text : null],
    }))
    const rows = await runPipeline(client, calls)
    expect(rows.map(([row]) => row?.[0])).toEqual(calls.map(({ values }) => values[0]))
    expect(rows[500]?.[0]?.[1]).toBe(text)
  })

  it('takes turns with ordinary queries', async () => {
    expect(await runPipeline(client, [call('select 1')])).toEqual([[['1']]])
    expect((await client.query('select 2 as two')).rows).toEqual([{ two: 2 }])
    expect(await runPipeline(client, [call('select 3')])).toEqual([[['3']]])
  })

  describe('with room for so many bytes', () => {
    /** A row of one text takes ten bytes more. */
    const row = (length: number) => call(`select repeat('x', ${length})`)
    const roomFor = (bytesMax: number) => {
      let bytes = 0
      const take = vi.fn((more: number) => {
        bytes += more
        return bytes <= bytesMax
      })
      return { take }
    }

    it('reads exactly as many, of all calls and batches together', async () => {
      const room = roomFor(100)
      expect(await runPipeline(client, [row(20), row(20)], room)).toEqual([
        [['x'.repeat(20)]],
        [['x'.repeat(20)]],
      ])
      expect(await runPipeline(client, [row(30)], room)).toEqual([[['x'.repeat(30)]]])
      expect(room.take.mock.calls).toEqual([[30], [30], [40]])
      await expect(runPipeline(client, [row(0)], room)).rejects.toThrow(RoomSpentError)
    })

    it('fails over that when all is over, and leaves the connection usable', async () => {
      for (const length of [91, 1_000_000]) {
        const room = roomFor(100)
        const calls = [call('select 1 where false'), row(length), row(length), ECHO_CALL]
        await expect(runPipeline(client, calls, room)).rejects.toThrow(RoomSpentError)
        expect(room.take).toHaveBeenCalledTimes(1)
        expect(await runPipeline(client, [ECHO_CALL])).toEqual([[['a', 'b', 'a']]])
      }
    })

    it('says so too when what is too much then fails', async () => {
      const failing = call('select repeat(n::text, 10), 1 / (n - 50) from generate_series(1, 99) n')
      await expect(runPipeline(client, [failing], roomFor(100))).rejects.toThrow(RoomSpentError)
      expect(await runPipeline(client, [ECHO_CALL])).toEqual([[['a', 'b', 'a']]])
    })
  })

  it('fails with the first error, skips what follows, and leaves the connection usable', async () => {
    await client.query('create temporary table log (n integer)')
    const failing = runPipeline(client, [
      call('insert into log values (1)'),
      call('select 1 / 0'),
      call('insert into log values (2)'),
      call('select * from nowhere'),
    ])
    await expect(failing).rejects.toMatchObject({ code: '22012' })
    // Without a transaction of its own the whole batch is one.
    expect(await runPipeline(client, [call('select n from log')])).toEqual([[]])
    await expect(
      runPipeline(client, [call('begin'), call('insert into log values (3)'), call('select nope')]),
    ).rejects.toMatchObject({ code: '42703' })
    await client.query('rollback')
    expect(await runPipeline(client, [call('select n from log')])).toEqual([[]])
  })

  it.each(['select * from later', 'selec', 'select 1 / (select count(*) from later)'])(
    'can use a statement later that failed before: %s',
    async (text) => {
      await client.query('drop table if exists later')
      for (let attempt = 0; attempt < 3; attempt++) {
        await expect(runPipeline(client, [call('select 1'), call(text)])).rejects.toThrow()
      }
      await client.query('create table later (n integer)')
      await client.query('insert into later values (1)')
      const again = runPipeline(client, [call('select 1'), call(text), call('select 2')])
      if (text === 'selec') await expect(again).rejects.toMatchObject({ code: '42601' })
      else expect(await again).toEqual([[['1']], [['1']], [['2']]])
    },
  )

  it('can use statements that stood behind a failed one', async () => {
    const failing = runPipeline(client, [
      call('select 1 / 0'),
      call('select 41'),
      call('select 42'),
    ])
    await expect(failing).rejects.toThrow()
    expect(await runPipeline(client, [call('select 42'), call('select 41')])).toEqual([
      [['42']],
      [['41']],
    ])
  })

  it('prepares a statement once and uses it again', async () => {
    for (let run = 0; run < 5; run++) {
      await runPipeline(client, [call('select 1'), call('select 1'), call('select 2')])
    }
    expect(await preparedCount()).toBe(2)
  })

  it('keeps no more statements than the limit says, and those used last', async () => {
    const numbers = Array.from({ length: PREPARED_MAX + 50 }, (_, number) => number)
    for (const number of numbers) {
      await runPipeline(client, [call('select -1'), call(`select ${number}`)])
    }
    expect(await preparedCount()).toBe(PREPARED_MAX)
    const { rows } = await client.query('select statement from pg_prepared_statements')
    const texts = rows.map((row) => row.statement)
    expect(texts).toContain('select -1')
    expect(texts).not.toContain('select 0')
    expect(await runPipeline(client, [call('select 0')])).toEqual([[['0']]])
  })

  it('keeps no more of them than their texts may have characters', async () => {
    const padding = ' '.repeat(PREPARED_TEXT_LENGTH_MAX - 20)
    const count = Math.ceil(PREPARED_LENGTH_MAX / padding.length) + 10
    for (let number = 0; number < count; number++) {
      await runPipeline(client, [call(`select ${number}${padding}`)])
    }
    const { rows } = await client.query(`
      select count(*)::integer as count, sum(length(statement))::integer as length
      from pg_prepared_statements where not from_sql`)
    expect(rows[0].length).toBeLessThanOrEqual(PREPARED_LENGTH_MAX)
    expect(rows[0].count).toBeGreaterThan(count / 2)
    expect(await runPipeline(client, [call(`select 0${padding}`)])).toEqual([[['0']]])
  })

  it('does not keep a long one prepared', async () => {
    const text = (length: number) => `select 1${' '.repeat(length - 8)}`
    await runPipeline(client, [call(text(PREPARED_TEXT_LENGTH_MAX + 1))])
    expect(await preparedCount()).toBe(0)
    await runPipeline(client, [call(text(PREPARED_TEXT_LENGTH_MAX))])
    expect(await preparedCount()).toBe(1)
  })

  it('refuses a statement with more parameters than PostgreSQL takes before it is sent', async () => {
    const list = (count: number): Call => ({
      statement: compileStatement(
        sql`select ${join(
          Array.from({ length: count }, () => sql`(${slot(0)}::text is null)::integer`),
          '+',
        )}`,
      ),
      values: [null],
    })
    const many = Array.from({ length: PARAMETERS_MAX }, (_, index) => `$${index + 1}::text`)
    const widest: Call = {
      statement: {
        text: `select cardinality(array[${many.join()}])`,
        slots: many.map(() => 'x'),
      },
      values: [],
    }
    expect(await runPipeline(client, [widest])).toEqual([[[String(PARAMETERS_MAX)]]])
    await expect(
      runPipeline(client, [call('select 1'), list(PARAMETERS_MAX + 1)]),
    ).rejects.toMatchObject({ code: 'query_too_costly' })
    expect(await runPipeline(client, [call('select 1')])).toEqual([[['1']]])
  })

  it('refuses a statement that is too long before it is sent', async () => {
    const long = call(`select 1${' '.repeat(TEXT_LENGTH_MAX)}`)
    await expect(runPipeline(client, [long])).rejects.toMatchObject({ code: 'query_too_costly' })
    expect(await runPipeline(client, [call('select 1')])).toEqual([[['1']]])
  })

  it('keeps no more of them either when one batch alone has more', async () => {
    const calls = Array.from({ length: PREPARED_MAX + 100 }, (_, number) =>
      call(`select ${number}`),
    )
    const rows = await runPipeline(client, calls)
    expect(rows.map(([row]) => row?.[0])).toEqual(calls.map((_, number) => String(number)))
    expect(await preparedCount()).toBe(PREPARED_MAX)
  })

  it('loses track of none when batches that make room fail', async () => {
    for (let round = 0; round < 5; round++) {
      const calls = Array.from({ length: PREPARED_MAX / 2 }, (_, number) =>
        call(`select ${number}, ${round}`),
      )
      await runPipeline(client, calls)
      const failing = runPipeline(client, [
        call('select 1 / 0'),
        ...calls.map((_, number) => call(`select ${number}, ${round}, 'skipped'`)),
      ])
      await expect(failing).rejects.toMatchObject({ code: '22012' })
    }
    await runPipeline(client, [call('select 0, 0, 0')])
    expect(await preparedCount()).toBeLessThanOrEqual(PREPARED_MAX)
  })

  it('sends no more for a statement that fails again and again', async () => {
    const { stream } = (client as unknown as { connection: { stream: { bytesWritten: number } } })
      .connection
    const sizes: number[] = []
    for (let count = 0; count < 20; count++) {
      const before = stream.bytesWritten
      const failing = runPipeline(client, [DIVIDING])
      await expect(failing).rejects.toThrow()
      sizes.push(stream.bytesWritten - before)
    }
    expect(new Set(sizes.slice(1)).size).toBe(1)
  })

  it('fails, and does not hang, when the connection breaks', async () => {
    const broken = await database.pool.connect()
    broken.on('error', () => undefined)
    const { rows } = await broken.query('select pg_backend_pid() as pid')
    const running = runPipeline(broken, [call('select pg_sleep(30)')])
    const failed = expect(running).rejects.toThrow()
    await client.query('select pg_terminate_backend($1::integer)', [rows[0].pid])
    await failed
    await expect(runPipeline(broken, [call('select 1')])).rejects.toThrow()
    broken.release(true)
  })
})
