import { execFile, spawn, spawnSync } from 'node:child_process'
import { mkdir, mkdtemp, open, readFile, realpath, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import {
  ColumnSchema,
  ConstraintSchema,
  type Schema,
  type Table,
  TableSchema,
} from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createAccount, createClient } from '../../packages/client/src/index.js'
import { type Banner, endAll, PROGRAM, request, startOffshoot } from '../support/process.js'

/* The command `offshoot` as people and scripts use it: without a terminal, against a real server. */

interface Outcome {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

const git = promisify(execFile)

/** `script` of util-linux runs a command in a pseudo terminal. Other systems have other options. */
const hasScript = (() => {
  const { stdout } = spawnSync('script', ['--version'], { encoding: 'utf8' })
  const isThere = stdout?.includes('util-linux') === true
  if (!isThere) console.warn('tests in a terminal are skipped: `script` of util-linux is missing')
  return isThere
})()

/**
 * Runs the command in a pseudo terminal. Each step waits for a text, then types. Returns the exit code and all
 * that the terminal showed.
 */
function inTerminal(
  cwd: string,
  env: NodeJS.ProcessEnv,
  args: readonly string[],
  steps: readonly (readonly [expected: string, typed: string | (() => Promise<string>)])[],
): Promise<{ code: number | null; text: string }> {
  const words = [process.execPath, PROGRAM, ...args].map((word) => `'${word}'`).join(' ')
  // A new pseudo terminal has no width, and the prompts would wrap after each character.
  const quoted = `stty cols 100 rows 40; exec ${words}`
  const child = spawn(
    'script',
    ['--quiet', '--return', '--flush', '--command', quoted, '/dev/null'],
    {
      cwd,
      env: { ...env, TERM: 'xterm', NO_COLOR: '1', SHELL: '/bin/sh' },
    },
  )
  const left = [...steps]
  let text = ''
  let seen = 0
  const proceed = () => {
    const [next] = left
    if (next === undefined) return
    const found = text.indexOf(next[0], seen)
    if (found === -1) return
    seen = found + next[0].length
    left.shift()
    const [, typed] = next
    const type = (keys: string) => {
      child.stdin.write(keys)
      proceed()
    }
    if (typeof typed === 'string') type(typed)
    else void typed().then(type)
  }
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
    proceed()
  })
  return new Promise((resolve) => {
    child.once('close', (code) => resolve({ code, text }))
  })
}

describe('the command line', () => {
  let folder: string
  let dataDir: string
  let banner: Banner
  let projects = 0

  beforeAll(async () => {
    folder = await realpath(await mkdtemp(path.join(tmpdir(), 'offshoot-cli-')))
    dataDir = path.join(folder, 'data')
    banner = await startOffshoot(dataDir).ready()
  })
  afterAll(async () => {
    await endAll([dataDir])
    await rm(folder, { recursive: true, force: true })
  })

  /** A folder with its own configuration, and a database. */
  async function createProject() {
    const name = `shop${projects++}`
    const cwd = path.join(folder, name)
    await mkdir(cwd)
    const env = {
      PATH: process.env.PATH ?? '',
      HOME: cwd,
      XDG_CONFIG_HOME: path.join(cwd, 'config'),
      OFFSHOOT_URL: banner.address,
      OFFSHOOT_API_KEY: banner.key ?? (await readFile(banner.keyFile ?? '', 'utf8')).trim(),
      OFFSHOOT_WORKSPACE: banner.workspaceId,
      OFFSHOOT_DATABASE: name,
    }
    const run = (args: readonly string[], options: { env?: object; input?: string } = {}) =>
      new Promise<Outcome>((resolve) => {
        const child = spawn(process.execPath, [PROGRAM, ...args], {
          cwd,
          env: { ...env, ...options.env } as NodeJS.ProcessEnv,
        })
        let stdout = ''
        let stderr = ''
        child.stdout.setEncoding('utf8').on('data', (text: string) => {
          stdout += text
        })
        child.stderr.setEncoding('utf8').on('data', (text: string) => {
          stderr += text
        })
        child.stdin.end(options.input ?? '')
        child.once('close', (code) => resolve({ code, stdout, stderr }))
      })
    const json = async (...args: string[]) => {
      const outcome = await run([...args, '--json'])
      expect(outcome.stderr === '' || outcome.code === 0, outcome.stderr).toBe(true)
      return JSON.parse(outcome.stdout)
    }
    /** Requests prepare tests and check results, because starting a command takes much longer. */
    const call = async (method: string, url: string, body?: unknown) => {
      const answer = await request(banner.address, method, url, { key: env.OFFSHOOT_API_KEY, body })
      expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
      return answer.body
    }
    const at = (branch: string) => `/${banner.workspaceId}.local/db/${name}:${branch}`
    const sql = async (statement: string, branch = 'main') =>
      (await call('POST', `${at(branch)}/sql`, { statement })).records
    await call('PUT', `/workspaces/${banner.workspaceId}/dbs/${name}`, { region: 'local' })
    return { cwd, env, name, run, json, call, at, sql }
  }

  const AGES = Array.from({ length: 30 }, (_, n) => n)

  async function createPeople() {
    const project = await createProject()
    const { call, at } = project
    const columns = [
      { name: 'name', type: 'string' },
      { name: 'age', type: 'int' },
      { name: 'tags', type: 'multiple' },
    ]
    await call('PUT', `${at('main')}/tables/people`)
    await call('PUT', `${at('main')}/tables/people/schema`, { columns })
    const records = AGES.map((n) => ({ id: `p${n}`, name: `Name, ${n}`, age: n, tags: ['a'] }))
    await call('POST', `${at('main')}/tables/people/bulk`, { records })
    return project
  }

  it('imports a CSV file into a new table, with the types that it shows', async () => {
    const project = await createProject()
    const database = `${project.name}-imported`
    expect(await project.run(['db', 'create', database])).toMatchObject({ code: 0, stdout: '' })
    const run = (args: readonly string[]) =>
      project.run(args, { env: { OFFSHOOT_DATABASE: database } })
    const lines = ['id,name,age,tags', ...AGES.map((n) => `p${n},"Name, ${n}",${n},"[""a""]"`)]
    await writeFile(path.join(project.cwd, 'people.csv'), `${lines.join('\n')}\n`)
    const imported = await run(['import', 'people.csv', '--table', 'people', '--create', '--yes'])
    expect(imported).toMatchObject({ code: 0, stdout: '' })
    expect(imported.stderr).toContain('+ column people.age (int)')
    expect(imported.stderr).toContain('+ column people.tags (multiple)')
    expect(imported.stderr).toContain('Imported 30 rows')
    const statement = 'select count(*) as n, max(age) as oldest from people'
    const { stdout } = await run(['sql', '-c', statement, '--json'])
    expect(JSON.parse(stdout)).toEqual([{ n: 30, oldest: 29 }])
  })

  it.each([
    [
      'csv',
      'id,d,e,g,h\n1,9007199254740993,0.12345678901234567891,1.5,7\n2,1,0.30000000000000004,2,8\n',
    ],
    [
      'ndjson',
      '{"id":"1","d":9007199254740993,"e":0.12345678901234567891,"g":1.5,"h":7}\n' +
        '{"id":"2","d":1,"e":0.30000000000000004,"g":2,"h":8.0}\n',
    ],
    [
      'json',
      '[{"id":"1","d":9007199254740993,"e":0.12345678901234567891,"g":1.5,"h":7},\n' +
        '{"id":"2","d":1,"e":0.30000000000000004,"g":2,"h":8.0}]\n',
    ],
  ])('imports numbers of %s that a float would round into decimals', async (format, text) => {
    const { cwd, run, sql } = await createProject()
    await writeFile(path.join(cwd, `items.${format}`), text)
    const imported = await run([
      ...['import', `items.${format}`, '--table', 'items', '--create', '--yes'],
    ])
    expect(imported.stderr).toContain('+ column items.d (decimal')
    expect(imported.stderr).toContain('+ column items.e (decimal')
    expect(imported.stderr).toContain('+ column items.g (float)')
    expect(imported.stderr).toContain('+ column items.h (int)')
    expect(imported.code).toBe(0)
    expect(await sql('select d::text, trim_scale(e)::text as e from items order by id')).toEqual([
      { d: '9007199254740993', e: '0.12345678901234567891' },
      { d: '1', e: '0.30000000000000004' },
    ])
  })

  it('imports long numbers of NDJSON exactly where columns keep them', async () => {
    const { cwd, run, call, at, sql } = await createProject()
    const columns = [
      { name: 'doc', type: 'json' },
      { name: 'd', type: 'decimal', decimal: { precision: 40, scale: 20 } },
      { name: 'f', type: 'float' },
      { name: 'n', type: 'int' },
      { name: 'v', type: 'vector', vector: { dimension: 2 } },
      {
        name: 'size',
        type: 'object',
        columns: [{ name: 'd', type: 'decimal', decimal: { precision: 40, scale: 20 } }],
      },
    ]
    await call('PUT', `${at('main')}/tables/items`)
    await call('PUT', `${at('main')}/tables/items/schema`, { columns })
    const number = '0.12345678901234567891'
    const row = `{"id":"a","doc":{"a":[9007199254740993,"x"]},"d":${number},"f":${number},"n":7,"v":[${number},1],"size":{"d":${number}}}`
    await writeFile(path.join(cwd, 'items.ndjson'), row)
    expect(await run(['import', 'items.ndjson', '--table', 'items'])).toMatchObject({ code: 0 })
    expect(
      await sql('select doc::text, d::text, f, n, v::text, "size.d"::text as s from items'),
    ).toEqual([
      {
        doc: '{"a": [9007199254740993, "x"]}',
        d: number,
        f: 0.12345678901234568,
        n: 7,
        v: '{0.12345679,1}',
        s: number,
      },
    ])
    await writeFile(path.join(cwd, 'odd.ndjson'), '{"id":"b","n":9007199254740990.6}')
    const refused = await run(['import', 'odd.ndjson', '--table', 'items'])
    expect(refused.code).toBe(1)
    expect(refused.stderr).toContain('column [n]: expected a whole number')
  })

  it.each(['csv', 'ndjson', 'json'])('exports %s that can be imported again', async (format) => {
    const { cwd, run, json, call, at, sql } = await createPeople()
    const exported = await run(['export', '--table', 'people', '--format', format])
    expect(exported.code).toBe(0)
    await call('PUT', at('copy'), { from: 'main' })
    await sql('delete from people', 'copy')
    await writeFile(path.join(cwd, `again.${format}`), exported.stdout)
    const again = ['import', `again.${format}`, '--table', 'people', '--branch', 'copy']
    expect(await run(again)).toMatchObject({ code: 0 })
    const { changes } = await json('diff', 'copy')
    expect(changes).toEqual([])
  })

  it.each([
    ['csv', 'id,n,constructor,__proto__,toString,valueOf.x\na,1,,,,\nb,2,"",[],x,y\n'],
    [
      'ndjson',
      '{"id":"a","n":1,"constructor":null,"__proto__":null,"toString":null,"valueOf":null}\n' +
        '{"id":"b","n":2,"constructor":"","__proto__":[],"toString":"x","valueOf":{"x":"y"}}\n',
    ],
    [
      'json',
      '[\n  {"id":"a","n":1,"constructor":null,"__proto__":null,"toString":null,"valueOf":null},\n' +
        '  {"id":"b","n":2,"constructor":"","__proto__":[],"toString":"x","valueOf":{"x":"y"}}\n]\n',
    ],
  ])('exports columns whose names objects inherit to %s', async (format, expected) => {
    const { cwd, run, json, call, at, sql } = await createProject()
    const columns = [
      { name: 'n', type: 'int' },
      { name: 'constructor', type: 'text' },
      { name: '__proto__', type: 'json' },
      { name: 'toString', type: 'string' },
      { name: 'valueOf', type: 'object', columns: [{ name: 'x', type: 'string' }] },
    ]
    await call('PUT', `${at('main')}/tables/items`)
    await call('PUT', `${at('main')}/tables/items/schema`, { columns })
    const records = [
      '{"id":"a","n":1}',
      '{"id":"b","n":2,"constructor":"","__proto__":[],"toString":"x","valueOf":{"x":"y"}}',
    ].map((text) => JSON.parse(text))
    await call('POST', `${at('main')}/tables/items/bulk`, { records })
    const exported = await run(['export', '--table', 'items', '--format', format])
    expect(exported.stdout).toBe(expected)
    const again = path.join(cwd, `items.${format}`)
    await writeFile(again, exported.stdout)
    await call('PUT', at('copy'), { from: 'main' })
    await sql('delete from items', 'copy')
    const outcome = await run(['import', again, '--table', 'items', '--branch', 'copy'])
    expect(outcome).toMatchObject({ code: 0 })
    expect((await json('diff', 'copy')).changes).toEqual([])
  })

  it.each(['csv', 'ndjson'])('keeps JSON, links and objects in %s as they are', async (format) => {
    const { cwd, run, json, call, at, sql } = await createProject()
    const columns = [
      { name: 'doc', type: 'json' },
      { name: 'peer', type: 'link', link: { table: 'items' } },
      { name: 'place', type: 'object', columns: [{ name: 'city', type: 'string' }] },
      { name: 'photo', type: 'file' },
    ]
    const schema = JSON.stringify({ tables: [{ name: 'items', columns }] })
    await writeFile(path.join(cwd, 'offshoot.schema.json'), schema)
    expect((await run(['schema', 'apply', '--yes'])).code).toBe(0)
    const lines = [
      { id: 'a', doc: { id: 'looks like a link' }, place: { city: 'Bern' } },
      { id: 'b', doc: 'true', peer: 'a' },
    ].map((record) => JSON.stringify(record))
    await writeFile(path.join(cwd, 'items.ndjson'), lines.join('\n'))
    expect((await run(['import', 'items.ndjson', '--table', 'items'])).code).toBe(0)
    const exported = await run(['export', '--table', 'items', '--format', format])
    expect(exported.stderr).toContain('Left out: photo')
    await writeFile(path.join(cwd, `again.${format}`), exported.stdout)
    await call('PUT', at('copy'), { from: 'main' })
    await sql('delete from items', 'copy')
    const again = ['import', `again.${format}`, '--table', 'items', '--branch', 'copy']
    expect(await run(again)).toMatchObject({ code: 0 })
    expect((await json('diff', 'copy')).changes).toEqual([])
  })

  it.each(['csv', 'ndjson', 'json'])(
    'exports to %s what an import stores as it was',
    async (format) => {
      const { cwd, run, json, call, at, sql } = await createProject()
      const columns = [
        { name: 'text', type: 'text' },
        { name: 'label', type: 'string', defaultValue: 'new' },
        { name: 'token', type: 'uuid', generate: 'uuid' },
        { name: 'number', type: 'int', generate: 'sequence' },
        { name: 'tags', type: 'multiple', defaultValue: '["new"]' },
        { name: 'size', type: 'int', computed: 'length(text)' },
        { name: 'ratio', type: 'float' },
        { name: 'doc', type: 'json' },
        {
          name: 'place',
          type: 'object',
          columns: [
            { name: 'city', type: 'string' },
            { name: 'data', type: 'json' },
          ],
        },
      ]
      const schema = JSON.stringify({ tables: [{ name: 'items', columns }] })
      await writeFile(path.join(cwd, 'offshoot.schema.json'), schema)
      expect((await run(['schema', 'apply', '--yes'])).code).toBe(0)
      const none = { label: null, token: null, number: null, tags: null }
      const records = [
        { id: 'a', ...none, text: '', doc: 'null' },
        { id: 'b', ...none, text: 'x', label: '', doc: '"12"', place: { city: '' } },
        { id: 'c', text: 'null', doc: '""', ratio: 1 / 3, tags: [] },
        { id: 'd', doc: '{"a": [12345678901234567890123, "12345678901234567890123"]}' },
        {
          id: 'e',
          doc: '12345678901234567890.5',
          place: { city: 'Bern', data: '0.12345678901234567890' },
        },
      ]
      const lines = records.map((record) => `${JSON.stringify(record)}\n`).join('')
      await writeFile(path.join(cwd, 'items.ndjson'), lines)
      expect((await run(['import', 'items.ndjson', '--table', 'items'])).code).toBe(0)
      const exported = await run(['export', '--table', 'items', '--format', format])
      await writeFile(path.join(cwd, `again.${format}`), exported.stdout)
      await call('PUT', at('copy'), { from: 'main' })
      await sql('delete from items', 'copy')
      const again = ['import', `again.${format}`, '--table', 'items', '--branch', 'copy']
      const imported = await run(again)
      expect(imported).toMatchObject({ code: 0 })
      expect(imported.stderr).toContain('Left out: size (computed)')
      expect((await json('diff', 'copy')).changes).toEqual([])
      await sql("update items set text = 'y', label = 'y', doc = '{}'", 'copy')
      expect(await run([...again, '--by', 'id'])).toMatchObject({ code: 0 })
      expect((await json('diff', 'copy')).changes).toEqual([])
    },
  )

  it('takes no name of a column for a part of an object of JavaScript', async () => {
    const { cwd, run } = await createPeople()
    await writeFile(path.join(cwd, 'odd.csv'), 'id,__proto__.code,constructor.prototype.x\nx,1,2\n')
    const refused = await run(['import', 'odd.csv', '--table', 'people'])
    expect(refused.code).toBe(1)
    expect(refused.stderr).toContain('column not found')
  })

  it('refuses invalid records, names them, and inserts the others only with --partial', async () => {
    const { cwd, run, sql } = await createPeople()
    await writeFile(path.join(cwd, 'more.csv'), 'id,age\nx1,1\nx2,old\n')
    const refused = await run(['import', 'more.csv', '--table', 'people'])
    expect(refused.code).toBe(1)
    expect(refused.stderr).toContain('nothing was inserted')
    expect(refused.stderr).toContain('line 3: invalid record: column [age]')
    const partial = await run(['import', 'more.csv', '--table', 'people', '--partial'])
    expect(partial.code).toBe(1)
    expect(partial.stderr).toContain('line 3')
    expect(partial.stderr).toContain('1 record was refused.')
    expect(await sql("select id from people where id like 'x%'")).toEqual([{ id: 'x1' }])
  })

  it('imports a file as a whole or not at all, however many records it has', async () => {
    const { cwd, run, sql } = await createPeople()
    const lines = Array.from({ length: 25_000 }, (_, n) => `m${n},${n === 15_000 ? 'old' : n}`)
    await writeFile(path.join(cwd, 'many.csv'), `id,age\n${lines.join('\n')}\n`)
    const refused = await run(['import', 'many.csv', '--table', 'people'])
    expect(refused).toMatchObject({ code: 1, stdout: '' })
    expect(refused.stderr).toContain('nothing was inserted')
    expect(refused.stderr).toContain('line 15002: invalid record: column [age]')
    expect(await sql('select count(*) as n from people')).toEqual([{ n: 30 }])
    // Progress is for terminals only.
    expect(refused.stderr).not.toContain('Sent')
  })

  it('finds the lines of refused records, whatever is between them', async () => {
    const { cwd, run } = await createPeople()
    const rows = ['\ufeffid,name', 'x1,"two\r\nlines"', '', '', 'x2,"a\n\nb"', 'p1,taken', 'x3,"y"']
    await writeFile(path.join(cwd, 'odd.csv'), rows.join('\r\n'))
    const csv = await run(['import', 'odd.csv', '--table', 'people'])
    expect(csv.stderr).toContain('line 9: invalid record: column [id]: is not unique')
    await writeFile(path.join(cwd, 'odd.ndjson'), '\ufeff{"id":"x1"}\r\n\r\n{"id":"p1"}\r\n')
    const ndjson = await run(['import', 'odd.ndjson', '--table', 'people'])
    expect(ndjson.stderr).toContain('line 3: invalid record: column [id]: is not unique')
    await writeFile(path.join(cwd, 'odd.json'), '[{"id":"x1"},\n{"id":"p1"}]')
    const list = await run(['import', 'odd.json', '--table', 'people'])
    expect(list.stderr).toContain('record 2: invalid record: column [id]: is not unique')
    await writeFile(path.join(cwd, 'short.csv'), 'id,name\nx1,"a\nb"\n\nx2,"c\nd",3\n')
    const short = await run(['import', 'short.csv', '--table', 'people'])
    expect(short).toMatchObject({ code: 2 })
    expect(short.stderr).toContain('line 5: not valid CSV')
    expect(short.stderr).toContain('Nothing was inserted.')
    await writeFile(path.join(cwd, 'twice.csv'), 'id,name,name\nx1,a,b\n')
    const twice = await run(['import', 'twice.csv', '--table', 'people'])
    expect(twice.stderr).toContain('line 1: column [name] is there twice')
    await writeFile(path.join(cwd, 'empty.csv'), '')
    const empty = await run(['import', 'empty.csv', '--table', 'people', '--json'])
    expect(JSON.parse(empty.stdout)).toMatchObject({ inserted: 0, failed: 0 })
  })

  it('replaces or skips records that exist, if asked to', async () => {
    const { cwd, run, json, sql } = await createPeople()
    await writeFile(path.join(cwd, 'more.csv'), 'id,name\np1,new\nq1,new\n')
    const skipped = await run(['import', 'more.csv', '--table', 'people', '--skip-existing'])
    expect(skipped).toMatchObject({ code: 0 })
    expect(skipped.stderr).toContain('Imported 1 row,')
    expect(skipped.stderr).toContain('1 were skipped')
    const [, entry = ''] = /To take it back: offshoot revert (log_\w+)/.exec(skipped.stderr) ?? []
    expect((await run(['revert', entry])).code).toBe(0)
    expect(await sql("select id from people where id = 'q1'")).toEqual([])
    await run(['import', 'more.csv', '--table', 'people', '--skip-existing'])
    const select = "select id, name, age from people where id in ('p1', 'q1') order by id"
    expect(await sql(select)).toEqual([
      { id: 'p1', name: 'Name, 1', age: 1 },
      { id: 'q1', name: 'new', age: null },
    ])
    const replaced = await json('import', 'more.csv', '--table', 'people', '--upsert')
    expect(replaced).toEqual({ inserted: 0, updated: 2, skipped: 0, failed: 0, errors: [] })
    expect(await sql(select)).toMatchObject([{ name: 'new', age: null }, {}])
    const both = await run(['import', 'more.csv', '--table', 'people', '--upsert', '--partial'])
    expect(both).toMatchObject({ code: 2 })
    expect(both.stderr).toContain('--upsert and --partial exclude each other')
  })

  it.runIf(process.platform !== 'win32')('says after Ctrl-C what is stored', async () => {
    const { cwd, env, sql } = await createPeople()
    /** Imports from a pipe that has more to give, and presses Ctrl-C when some of it was read. */
    const interrupt = async (name: string, more: readonly string[]) => {
      await git('mkfifo', [path.join(cwd, name)])
      const child = spawn(
        process.execPath,
        [PROGRAM, 'import', name, '--table', 'people', '--format', 'ndjson', ...more],
        { cwd, env },
      )
      let stderr = ''
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        stderr += text
      })
      const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
      // A pipe opens when it is read.
      const pipe = await open(path.join(cwd, name), 'w')
      const lines = Array.from({ length: 12_000 }, (_, n) => `{"id":"${name}${n}"}\n`)
      await pipe.write(lines.join(''))
      return { child, pipe, ended, text: () => stderr }
    }
    const atomic = await interrupt('pipe1', [])
    atomic.child.kill('SIGINT')
    await expect.poll(atomic.text).toContain('cancelled; nothing was inserted')
    // The command cannot end while it waits for a pipe. In a terminal, Ctrl-C also ends the program that writes to it.
    await atomic.pipe.close()
    expect(await atomic.ended).toBe(130)
    const stored = async (name: string) => {
      const [row] = await sql(`select count(*) as n from people where id like '${name}%'`)
      return row.n
    }
    expect(await stored('pipe1')).toBe(0)
    const partial = await interrupt('pipe2', ['--partial'])
    await expect.poll(() => stored('pipe2')).toBe(10_000)
    partial.child.kill('SIGINT')
    await expect.poll(partial.text).toContain('Press Ctrl-C again')
    partial.child.kill('SIGINT')
    await expect.poll(partial.text).toContain('10000 were inserted; no others were inserted')
    await partial.pipe.close()
    expect(await partial.ended).toBe(130)
    expect(await stored('pipe2')).toBe(10_000)
  })

  it('changes records by a unique column, and inserts the others', async () => {
    const { cwd, run, json, sql, call, at } = await createPeople()
    const byName = ['import', 'more.csv', '--table', 'people', '--by', 'name']
    await writeFile(path.join(cwd, 'more.csv'), 'name,age\nEve,1\nEve,2\n')
    const refused = await run(byName)
    expect(refused.code).toBe(1)
    expect(refused.stderr).toContain(
      'column [name]: is not unique, so records cannot be found by it',
    )
    expect(refused.stderr).not.toContain('Of the first')
    await sql('update people set name = id')
    const unique = { alterColumn: { table: 'people', column: 'name', unique: true } }
    await call('POST', `${at('main')}/schema/update`, { operations: [unique] })
    await writeFile(path.join(cwd, 'more.csv'), 'name,age\np1,41\nzoe,7\np2,old\n')
    const partly = await run(byName)
    expect(partly.code).toBe(1)
    expect(partly.stderr).toContain('line 4: invalid record: column [age]')
    expect(partly.stderr).toContain('New: 1, changed: 1, the same as before: 0, refused: 1.')
    await writeFile(path.join(cwd, 'more.csv'), 'name,age\np1,41\nzoe,8\n')
    expect(await json(...byName)).toMatchObject({
      inserted: 0,
      updated: 1,
      unchanged: 1,
      failed: 0,
    })
    expect(
      await sql("select name, age from people where name in ('p1', 'zoe') order by 1"),
    ).toEqual([
      { name: 'p1', age: 41 },
      { name: 'zoe', age: 8 },
    ])
    expect((await run([...byName, '--upsert'])).code).toBe(2)
  })

  it('schedules checkpoints, names the compared one, and says what is known of a record', async () => {
    const { run, json, call, at } = await createPeople()
    const schedule = async () => (await call('GET', at('main'))).checkpoints
    expect(await json('checkpoint', 'schedule', '30m', '--keep', '5')).toEqual({
      branch: 'main',
      checkpoints: { every: 1800, keep: 5 },
    })
    expect(await schedule()).toEqual({ every: 1800, keep: 5 })
    expect((await run(['checkpoint', 'schedule', 'often'])).code).toBe(2)
    expect((await run(['checkpoint', 'schedule', '1h', '--keep', 'all'])).code).toBe(2)
    expect((await run(['checkpoint', 'schedule', 'off'])).code).toBe(0)
    expect(await schedule()).toBeUndefined()
    await call('POST', `${at('main')}/checkpoints`, { name: 'monday' })
    const compared = await run(['diff', 'main', '--against-at', 'monday'])
    expect(compared.stderr).toContain('main against main at monday')
    const earlier = await run(['diff', 'main', '--at', 'monday'])
    expect(earlier.stderr).toContain('main at monday against main')
    const states = await run(['history', 'people', 'p1'])
    expect(states).toMatchObject({ code: 0 })
    expect(states.stderr).toContain('Table people keeps no versions.')
    const unknown = await run(['history', 'people', 'nobody'])
    expect(unknown.code).toBe(1)
    expect(unknown.stderr).toContain('record [nobody]: nothing is known of it')
  })

  it('prints whole results of SQL, with exact numbers and values of any length', async () => {
    const { run, json } = await createProject()
    const all = await run(['sql', '-c', 'select i from generate_series(1, 20161) i'])
    expect(all).toMatchObject({ code: 0, stderr: '20161 rows\n' })
    expect(all.stdout.trim().split('\n')).toHaveLength(20_161)
    const tooMany = await run(['sql', '-c', 'select i from generate_series(1, 100001) i'])
    expect(tooMany).toMatchObject({ code: 1, stdout: '' })
    expect(tooMany.stderr).toContain('more than 100000 rows')
    const statement = "select 9007199254740993 as n, repeat('x', 100) as text"
    expect(await json('sql', '-c', statement)).toEqual([
      { n: '9007199254740993', text: 'x'.repeat(100) },
    ])
    const { stdout } = await run(['sql', '-c', statement])
    expect(stdout).toBe(`9007199254740993  ${'x'.repeat(100)}\n`)
    const same = 'select 1 as a, 2 as a'
    expect((await run(['sql', '-c', same])).stdout).toBe('1  2\n')
    const objects = await run(['sql', '-c', same, '--json'])
    expect(objects).toMatchObject({ code: 2, stdout: '' })
    expect(objects.stderr).toContain('two columns [a]')
  })

  it('forks, shows the difference, and merges', async () => {
    const { name, run, json, sql } = await createPeople()
    expect(await json('branch', 'create', 'dev', '--from', 'main')).toEqual({
      branch: 'dev',
      from: 'main',
    })
    await run(['sql', '--branch', 'dev', '-c', "update people set name = 'Zed' where id = 'p1'"])
    await sql("delete from people where id = 'p2'", 'dev')
    const difference = await json('diff', 'dev')
    expect(difference.tables).toEqual([{ name: 'people', inserted: 0, updated: 1, deleted: 1 }])
    expect(difference.changes).toHaveLength(2)
    const text = await run(['diff', 'dev'])
    expect(text.stdout).toContain('~ people/p1')
    expect(text.stdout).toContain('name: Name, 1 → Zed')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
    expect(text.stdout).not.toMatch(/\u001b/)
    expect(await json('merge', 'dev', '--dry-run')).toMatchObject({ merged: false })
    expect(await json('merge', 'dev')).toMatchObject({ merged: true, into: 'main' })
    const merged = await run(['diff', 'dev'])
    expect(merged.stdout).toBe('')
    expect(merged.stderr).toContain('No differences.')
    const listed: { name: string; ownedRows?: number }[] = await json('branch', 'ls')
    expect(listed.map(({ name }) => name).sort()).toEqual(['dev', 'main'])
    expect(listed.every(({ ownedRows }) => ownedRows !== undefined)).toBe(true)
    // The flag has two names, and wins over the environment.
    for (const flag of ['--db', '--database']) {
      const env = { OFFSHOOT_DATABASE: 'other' }
      expect((await run(['branch', 'ls', flag, name], { env })).code).toBe(0)
    }
    const tree = await run(['branch', 'ls'])
    expect(tree.stdout).toMatch(/^main +\S+ ?\S* +\d+\n└ dev +\S+ ?\S* +\d+\n$/)
  })

  it('merges a part of a difference, and takes a merge back', async () => {
    const { run, call, at, json, sql } = await createPeople()
    await call('PUT', at('dev'), { from: 'main' })
    await sql("update people set name = 'A' where id = 'p1'", 'dev')
    await sql("update people set name = 'B' where id = 'p2'", 'dev')
    expect((await run(['merge', 'dev', '--only-record', 'people'])).code).toBe(2)
    const both = ['--only-record', 'people/p1', '--only-table', 'people']
    expect((await run(['merge', 'dev', ...both])).code).toBe(2)
    const part = await json('merge', 'dev', '--only-record', 'people/p1')
    expect(part.tables).toEqual([{ name: 'people', inserted: 0, updated: 1, deleted: 0 }])
    const { entry } = await json('merge', 'dev', '--only-table', 'people')
    expect((await run(['revert'])).code).toBe(2)
    expect(await json('revert', entry, '--branch', 'main', '--dry-run')).toMatchObject({
      merged: false,
      tables: [{ name: 'people', inserted: 0, updated: 1, deleted: 0 }],
    })
    const reverted = await run(['revert', entry, '--branch', 'main'])
    expect([reverted.code, reverted.stderr]).toEqual([0, expect.stringContaining('Reverted')])
    const again = await run(['revert', entry, '--branch', 'main'])
    expect(again.stderr).toContain('There is nothing to take back.')
  })

  it('ends with 3 if a merge has conflicts, and lists them', async () => {
    const { run, call, at, sql } = await createPeople()
    await call('PUT', at('dev'), { from: 'main' })
    await sql("update people set name = 'A' where id = 'p1'", 'dev')
    await sql("update people set name = 'B' where id = 'p1'")
    const outcome = await run(['merge', 'dev', '--json'])
    expect(outcome.code).toBe(3)
    expect(JSON.parse(outcome.stdout)).toMatchObject({ merged: false, conflictCount: 1 })
    expect(outcome.stderr).toContain('name: ours B, theirs A')
    expect((await run(['merge', 'dev', '--dry-run'])).code).toBe(3)
    expect((await run(['merge', 'dev', '--theirs'])).code).toBe(0)
    expect(await sql("select name from people where id = 'p1'")).toEqual([{ name: 'A' }])
  })

  it('pulls all of a schema, so that another database gets the same one of the file', async () => {
    const { cwd, run, call, at } = await createProject()
    const file = path.join(cwd, 'offshoot.schema.json')
    const schema = {
      tables: [
        {
          name: 'teams',
          idType: 'int',
          idBits: 32,
          columns: [{ name: 'name', type: 'string', notNull: true, unique: true }],
          history: { keep: '30d' },
        },
        { name: 'codes', hiddenId: true, columns: [{ name: 'code', type: 'string' }] },
        {
          name: 'people',
          idType: 'uuid',
          columns: [
            { name: 'mail', type: 'email', description: 'For letters.' },
            { name: 'code', type: 'string', maxLength: 20, defaultValue: 'new' },
            { name: 'age', type: 'int', bits: 16 },
            { name: 'number', type: 'int', generate: 'sequence' },
            { name: 'twice', type: 'int', computed: 'age * 2' },
            { name: 'price', type: 'decimal', decimal: { precision: 10, scale: 2 } },
            { name: 'born', type: 'datetime', withoutZone: true },
            { name: 'mood', type: 'enum', enum: { values: ['sad', 'glad'], type: 'mood' } },
            { name: 'likes', type: 'vector', vector: { dimension: 3 } },
            { name: 'photo', type: 'file', file: { defaultPublicAccess: true } },
            { name: 'scans', type: 'file[]', 'file[]': { defaultPublicAccess: true } },
            {
              name: 'team',
              type: 'link',
              link: { table: 'teams', onDelete: 'cascade', constraint: 'in_a_team' },
            },
            { name: 'place', type: 'object', columns: [{ name: 'city', type: 'text' }] },
          ],
          constraints: [
            { name: 'adult', check: 'age >= 18' },
            { name: 'once', unique: ['mail', 'code'] },
            { name: 'shown_as_index', unique: ['age', 'code'], index: true },
          ],
        },
      ],
    }
    await writeFile(file, JSON.stringify(schema))
    expect(await run(['schema', 'apply', '--yes'])).toMatchObject({ code: 0 })
    const { schema: applied } = await call('GET', at('main'))

    // A field that the schema gets later belongs into the one above.
    const fieldsOf = (items: readonly object[]) => [...new Set(items.flatMap(Object.keys))].sort()
    const tables = applied.tables as readonly Table[]
    const columns = tables.flatMap((table) => table.columns)
    const constraints = tables.flatMap((table) => table.constraints ?? [])
    expect(fieldsOf(tables)).toEqual(Object.keys(TableSchema.properties).sort())
    expect(fieldsOf(columns)).toEqual(Object.keys(ColumnSchema.properties).sort())
    expect(fieldsOf(constraints)).toEqual(Object.keys(ConstraintSchema.properties).sort())
    for (const name of ['link', 'vector', 'decimal', 'enum', 'file', 'file[]'] as const) {
      const details = columns.flatMap((column) => column[name] ?? [])
      expect(fieldsOf(details)).toEqual(
        Object.keys(ColumnSchema.properties[name].properties).sort(),
      )
    }

    const placesOf = (each: Pick<Schema, 'tables'>) =>
      each.tables.map(({ columns }) => columns.map(({ name }) => name))
    expect(placesOf(applied)).toEqual(placesOf(schema as Pick<Schema, 'tables'>))

    expect(await run(['schema', 'pull'])).toMatchObject({ code: 0 })
    expect(await run(['schema', 'plan'])).toMatchObject({ code: 0, stdout: '' })
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual({
      tables: tables.map(({ id: _, revLinks: __, ...table }) => table),
    })
    const other = await createProject()
    const flags = ['--file', file]
    expect(await other.run(['schema', 'apply', '--yes', ...flags])).toMatchObject({ code: 0 })
    expect(await other.run(['schema', 'plan', ...flags])).toMatchObject({ code: 0, stdout: '' })
    const { schema: again } = await other.call('GET', other.at('main'))
    const withoutIds = ({ tables, ...rest }: Schema) => ({
      ...rest,
      tables: tables.map(({ id: _, ...table }) => table),
    })
    expect(withoutIds(again)).toEqual(withoutIds(applied))
  })

  it('writes types that are checked for drift', async () => {
    const { cwd, run } = await createPeople()
    expect((await run(['codegen', '-o', 'schema.ts'])).code).toBe(0)
    const types = await readFile(path.join(cwd, 'schema.ts'), 'utf8')
    expect(types).toContain('export interface Schema {\n  people: {\n    name: string | null\n')
    expect((await run(['codegen', '-o', 'schema.ts', '--check'])).code).toBe(0)
    await run(['schema', 'pull'])
    expect((await run(['schema', 'plan'])).code).toBe(0)
    const file = path.join(cwd, 'offshoot.schema.json')
    const schema = JSON.parse(await readFile(file, 'utf8'))
    schema.tables[0].columns.push({ name: 'vip', type: 'bool' })
    await writeFile(file, JSON.stringify(schema))
    const plan = await run(['schema', 'plan'])
    expect(plan).toMatchObject({ code: 3, stdout: '+ column people.vip (bool)\n' })
    expect((await run(['schema', 'apply'])).code).toBe(2)
    expect((await run(['schema', 'apply', '--yes'])).code).toBe(0)
    expect((await run(['codegen', '-o', 'schema.ts', '--check'])).code).toBe(3)
    expect((await run(['log', '--migrations'])).stdout).toContain('+ column people.vip (bool)')
    expect((await run(['log'])).stdout).toMatch(/log_\w+ {2}.*ago {2}migration {2}/)
    expect(JSON.parse((await run(['operation', 'ls', '--json'])).stdout)).toEqual([])
    const cancelled = await run(['operation', 'cancel', 'op_missing'])
    expect(cancelled.code).toBe(1)
    expect(cancelled.stderr).toContain('operation [op_missing] not found')
  })

  /** Creates conflicts of `dev` and `main`: of two columns, of a deletion and of an insert. */
  async function createConflicts() {
    const project = await createPeople()
    const { run, call, at, sql } = project
    await call('PUT', at('dev'), { from: 'main' })
    const dev =
      "update people set name = 'D', age = 100 where id = 'p1'; delete from people where id = 'p2'"
    const main =
      "update people set name = 'M', age = 200 where id = 'p1'; update people set age = 2000 where id = 'p2'"
    for (const [branch, statements] of [
      ['dev', dev],
      ['main', main],
    ] as const) {
      for (const statement of statements.split('; ')) await sql(statement, branch)
    }
    const people = () =>
      sql("select id, name, age from people where id in ('p1', 'p2') order by id")
    /** Reads the tokens of the conflicts. */
    const review = async () => {
      const { stdout } = await run(['merge', 'dev', '--dry-run', '--json'])
      const { conflicts, conflictTables } = JSON.parse(stdout)
      const tokenOf = (wanted: string): string =>
        conflicts.find(({ id }: { id: string }) => id === wanted).token
      return { table: conflictTables[0].token, tokenOf }
    }
    return { ...project, people, review }
  }

  it('merges with the decisions of a file', async () => {
    const { cwd, run, people, review } = await createConflicts()
    const file = path.join(cwd, 'decisions.json')
    const { tokenOf } = await review()
    const resolutions = [
      {
        table: 'people',
        id: 'p1',
        columns: { name: { take: 'theirs' }, age: { value: 7 } },
        token: tokenOf('p1'),
      },
      { table: 'people', id: 'p2', take: 'theirs', token: tokenOf('p2') },
    ]
    await writeFile(file, 'nothing')
    expect((await run(['merge', 'dev', '--resolutions', file])).code).toBe(2)
    await writeFile(file, '{}')
    expect((await run(['merge', 'dev', '--resolutions', file])).code).toBe(2)
    expect((await run(['merge', 'dev', '--resolutions', 'missing.json'])).code).toBe(2)
    await writeFile(file, JSON.stringify(resolutions.slice(1)))
    const left = await run(['merge', 'dev', '--resolutions', file, '--dry-run'])
    expect(left.code).toBe(3)
    expect(left.stderr).toContain('conflict in people/p1')
    expect(left.stderr).not.toContain('conflict in people/p2')
    const input = JSON.stringify({ resolutions })
    const merged = await run(['merge', 'dev', '--resolutions', '-'], { input })
    expect([merged.code, merged.stdout]).toEqual([0, 'people  +0  ~1  -1\n'])
    expect(await people()).toEqual([{ id: 'p1', name: 'D', age: 7 }])
    // A merge that brings nothing prints no table.
    expect(await run(['merge', 'dev'])).toMatchObject({ code: 0, stdout: '' })
  })

  it('says which conflicts are open again if the decisions of a file are outdated', async () => {
    const { run, sql, people, review } = await createConflicts()
    const { table, tokenOf } = await review()
    await sql("update people set age = 201 where id = 'p1'")
    const before = await people()
    const decided = [
      [{ table: 'people', take: 'theirs', token: table }],
      [{ table: 'people', id: 'p1', take: 'theirs', token: tokenOf('p1') }],
    ]
    for (const resolutions of decided) {
      const input = JSON.stringify(resolutions)
      const refused = await run(['merge', 'dev', '--resolutions', '-'], { input })
      expect(refused.code).toBe(3)
      expect(refused.stderr).toContain('changed since')
      expect(refused.stderr).toContain('conflict in people/p1')
      expect(refused.stderr).toContain('age: ours 201, theirs 100')
      expect(refused.stderr).toContain('These conflicts are open again')
      expect(await people()).toEqual(before)
    }
    const input = JSON.stringify([{ table: 'people', take: 'theirs' }])
    const without = await run(['merge', 'dev', '--resolutions', '-'], { input })
    expect(without.code).toBe(1)
    expect(without.stderr).toContain('field [token] is required')
  })

  it('needs a terminal to decide conflicts one by one', async () => {
    const { run } = await createProject()
    for (const command of ['merge', 'pull']) {
      const outcome = await run([command, 'dev', '--interactive'])
      expect(outcome.code).toBe(2)
      expect(outcome.stderr).toContain('--interactive needs a terminal')
    }
    expect((await run(['merge', 'dev', '--interactive', '--ours'])).code).toBe(2)
  })

  describe.skipIf(!hasScript)('in a terminal', () => {
    const DOWN = '\u001b[B'
    const ENTER = '\r'

    it('decides conflicts by a side, column by column and by a value, and merges at the end', async () => {
      const { cwd, env, people } = await createConflicts()
      const before = await people()
      const stopped = await inTerminal(
        cwd,
        env,
        ['merge', 'dev', '--interactive'],
        [
          ['Conflict 1 of 2', ENTER],
          ['Conflict 2 of 2', DOWN.repeat(4) + ENTER],
        ],
      )
      // The decisions so far are printed.
      expect(stopped.code, stopped.text).toBe(3)
      expect(stopped.text).toContain('"id": "p1"')
      expect(stopped.text).toContain('"take": "ours"')
      expect(await people()).toEqual(before)
      const shown = await inTerminal(
        cwd,
        env,
        ['merge', 'dev', '--interactive'],
        [
          ['Conflict 1 of 2', DOWN + DOWN + ENTER],
          ['people/p1: name', DOWN + ENTER],
          ['people/p1: age', DOWN + DOWN + ENTER],
          ['age (as JSON):', `12${ENTER}`],
          ['Conflict 2 of 2', ENTER],
        ],
      )
      expect(shown.code, shown.text).toBe(0)
      expect(shown.text).toContain('Merged dev into main.')
      expect(await people()).toEqual([
        { id: 'p1', name: 'D', age: 12 },
        { id: 'p2', name: 'Name, 2', age: 2000 },
      ])
    })

    it('asks again about a conflict that has changed since it was decided', async () => {
      const { cwd, env, sql, people } = await createConflicts()
      const shown = await inTerminal(
        cwd,
        env,
        ['merge', 'dev', '--interactive'],
        [
          ['Conflict 1 of 2', DOWN + ENTER],
          [
            'Conflict 2 of 2',
            async () => {
              await sql("update people set age = 201 where id = 'p1'")
              return ENTER
            },
          ],
          ['Conflict 1 of 1', ENTER],
        ],
      )
      expect(shown.code, shown.text).toBe(0)
      expect(shown.text).toContain('Decide again:')
      expect(await people()).toMatchObject([{ id: 'p1', name: 'M', age: 201 }, { id: 'p2' }])
    })

    it('pulls with one decision for all that is left, and aborts with Ctrl-C', async () => {
      const { cwd, env, run, sql } = await createConflicts()
      const aborted = await inTerminal(
        cwd,
        env,
        ['pull', 'dev', '--interactive'],
        [['Conflict 1 of 2', '\u0003']],
      )
      expect(aborted.code, aborted.text).toBe(1)
      expect(aborted.text).toContain('nothing was merged')
      expect((await run(['pull', 'dev', '--dry-run'])).code).toBe(3)
      const pulled = await inTerminal(
        cwd,
        env,
        ['pull', 'dev', '--interactive'],
        [['Conflict 1 of 2', DOWN.repeat(4) + ENTER]],
      )
      expect(pulled.code, pulled.text).toBe(0)
      const rows = await sql("select age from people where id in ('p1', 'p2') order by age", 'dev')
      expect(rows).toEqual([{ age: 200 }, { age: 2000 }])
    })
  })

  it('asks before it deletes, and needs --yes without a terminal', async () => {
    const { run, json, call, at } = await createPeople()
    await call('PUT', at('dev'), { from: 'main' })
    const refused = await run(['branch', 'rm', 'dev'])
    expect(refused.code).toBe(2)
    expect(refused.stderr).toContain('--yes')
    expect((await run(['branch', 'protect', 'dev'])).code).toBe(0)
    expect((await run(['branch', 'rm', 'dev', '--yes'])).stderr).toContain('protected')
    expect((await run(['branch', 'protect', 'dev', '--off'])).code).toBe(0)
    expect((await run(['branch', 'expire', 'dev', '12h'])).code).toBe(0)
    expect((await run(['branch', 'delete', 'dev', '--yes'])).code).toBe(0)
    expect((await json('branch', 'ls')) as unknown[]).toHaveLength(1)
  })

  it('keeps credentials in a file that only the user can read', async () => {
    const { cwd, env, run } = await createProject()
    const without = { OFFSHOOT_API_KEY: '' }
    const missing = await run(['whoami'], { env: without })
    expect(missing.code).toBe(2)
    expect(missing.stderr).toContain(`offshoot login --url ${banner.address}`)
    const wrong = await run(['login'], { env: without, input: 'off_wrong\n' })
    expect(wrong).toMatchObject({ code: 1 })
    const login = await run(['login'], { env: without, input: `${env.OFFSHOOT_API_KEY}\n` })
    expect(login.code).toBe(0)
    expect(login.stdout + login.stderr).not.toContain(env.OFFSHOOT_API_KEY)
    const { mode } = await stat(path.join(cwd, 'config', 'offshoot', 'credentials.json'))
    expect(mode & 0o777).toBe(0o600)
    expect((await run(['whoami'], { env: without })).code).toBe(0)
    await run(['logout'], { env: without })
    expect((await run(['whoami'], { env: without })).code).toBe(2)
  })

  it('follows the git branch, and never uses main instead of it', async () => {
    const { cwd, name, run, json } = await createPeople()
    await git('git', ['init', '-q', '-b', 'main', cwd])
    await run(['link', name])
    const linked = JSON.parse(await readFile(path.join(cwd, '.offshoot.json'), 'utf8'))
    expect(linked).toEqual({ database: name })
    expect(await json('status')).toMatchObject({ branch: 'main', reason: 'git branch main' })
    await git('git', ['-C', cwd, 'symbolic-ref', 'HEAD', 'refs/heads/feat/login'])
    const unknown = await run(['sql', '-c', 'select 1'])
    expect(unknown.code).toBe(2)
    expect(unknown.stderr).toContain('feat/login')
    expect((await run(['checkout', '-c'])).code).toBe(0)
    const status = await json('status')
    expect(status).toMatchObject({ reason: 'git branch feat/login', source: 'main' })
    expect(status.branch).not.toBe('main')
    expect((await run(['checkout', 'main'])).code).toBe(0)
    expect(await json('status')).toMatchObject({ branch: 'main', reason: 'checked out' })
    expect((await run(['checkout', '--git'])).code).toBe(0)
    expect(await json('status')).toMatchObject({ branch: status.branch })
  })

  it('gives other programs their environment and passes on their exit code', async () => {
    const { name, run, json } = await createProject()
    expect(await json('env')).toMatchObject({ OFFSHOOT_DATABASE: name, OFFSHOOT_BRANCH: 'main' })
    const program = 'console.log(process.env.OFFSHOOT_BRANCH); process.exitCode = 7'
    const outcome = await run(['run', '--', process.execPath, '-e', program])
    expect(outcome).toMatchObject({ code: 7, stdout: 'main\n' })
    expect((await run(['run', '--', 'no-such-program'])).code).toBe(2)
  })

  it('creates and revokes keys', async () => {
    const { run, json } = await createProject()
    const created = await run(['keys', 'create', 'ci', '--read-only', '--expires', '30d'])
    expect(created.stdout).toMatch(/^\S+\n$/)
    const env = { OFFSHOOT_API_KEY: created.stdout.trim() }
    const refused = await run(['branch', 'create', 'x', '--from', 'main'], { env })
    expect(refused).toMatchObject({ code: 1 })
    expect((await json('keys', 'ls')).map(({ name }: { name: string }) => name)).toContain('ci')
    expect((await run(['keys', 'delete', 'ci', '--yes'])).code).toBe(0)
    expect((await run(['db', 'ls'], { env })).stderr).toContain('does not accept the API key')
  })

  it('creates keys that read the audit log', async () => {
    const { run, json, name } = await createProject()
    const made = await json('keys', 'create', 'auditor', '--databases', name, '--audit')
    expect(made.scope).toMatchObject({ databases: [name], audit: true })
    const listed = await run(['keys', 'ls'])
    expect(listed.stdout).toMatch(/auditor .*; the audit log/)
    await run(['keys', 'rm', 'auditor', '--yes'])
  })

  it('limits a key for a database to the workspace of the database', async () => {
    const { env, name, run } = await createProject()
    const { OFFSHOOT_API_KEY: apiKey, OFFSHOOT_URL: url } = env
    const account = createAccount({ url, apiKey })
    const { id: other } = await account.createWorkspace(`other-${name}`)
    onTestFinished(() => account.workspace(other).delete())
    await account.createDatabase(other, name)
    const created = await run(['keys', 'create', name, '--databases', name])
    expect(created.stderr).toContain(
      `The key reaches: workspace ${banner.workspaceId}; database ${name}.\n`,
    )
    const limited = createAccount({ url, apiKey: created.stdout.trim() })
    expect((await limited.workspaces()).map(({ id }) => id)).toEqual([banner.workspaceId])
    await expect(limited.databases(other)).rejects.toMatchObject({ status: 404 })
    const within = { ...{ url, apiKey: created.stdout.trim() }, database: name, branch: 'main' }
    await createClient({ ...within, workspace: banner.workspaceId })
      .branch()
      .get()
    await expect(
      createClient({ ...within, workspace: other })
        .branch()
        .get(),
    ).rejects.toMatchObject({ status: 404 })
    // With several workspaces, one must be named.
    const unclear = await run(['keys', 'create', 'unclear', '--branches', 'preview-*'], {
      env: { OFFSHOOT_WORKSPACE: '' },
    })
    expect(unclear.code).toBe(2)
    expect(unclear.stderr).toContain('--workspace')
    const args = ['keys', 'create', `${name}-read`, '--workspace', other, '--read-only']
    expect((await run(args)).stderr).toContain(`workspace ${other}; read only.\n`)
    const all = await run(['keys', 'create', `${name}-all`])
    expect(all.stderr).toContain('The key reaches: everything.\n')
    const listed = (await run(['keys', 'ls'])).stdout
    expect(listed).toContain(`workspace ${banner.workspaceId}; database ${name}\n`)
  })

  it('says what is wrong: a typo, a server that does not answer, invalid arguments', async () => {
    const { run } = await createProject()
    const typo = await run(['brnch', 'ls'])
    expect(typo.code).toBe(2)
    expect(typo.stderr).toContain('Did you mean branch?')
    const silent = await run(['db', 'ls'], { env: { OFFSHOOT_URL: 'http://127.0.0.1:1' } })
    expect(silent.code).toBe(1)
    expect(silent.stderr).toContain('http://127.0.0.1:1')
    const wrong = await run(['db', 'ls'], { env: { OFFSHOOT_API_KEY: 'off_wrong' } })
    expect(wrong.code).toBe(1)
    expect(wrong.stderr).toContain('does not accept the API key of OFFSHOOT_API_KEY')
    expect((await run(['import', 'nothing.csv', '--table', 't'])).code).toBe(2)
    expect((await run(['import', 'nothing.csv'])).code).toBe(2)
    expect((await run(['export', '--table', 'nothing'])).code).toBe(2)
    expect((await run(['branch', 'expire', 'main', 'soon'])).stderr).toContain('12h')
    const number = await run(['proposal', 'show', 'x'])
    expect(number).toMatchObject({
      code: 2,
      stderr: 'offshoot: [x] is not the number of a proposal\n',
    })
    const sql = await run(['sql', '-c', 'selec 1'])
    expect(sql).toMatchObject({ code: 1, stdout: '' })
    expect(sql.stderr).toContain('syntax error')
  })

  it('prints completion for three shells, and help with examples for every command', async () => {
    const { run } = await createProject()
    for (const shell of ['bash', 'zsh', 'fish']) {
      expect((await run(['completion', shell])).stdout).toContain('checkout')
    }
    const help = await run(['import', '--help'])
    expect(help.code).toBe(0)
    expect(help.stdout).toContain('Examples:')
  })
})
