import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chown, mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import mysql from 'mysql2/promise'
import pg from 'pg'
import { Pool } from 'undici'
import { stopProcess } from './environment.js'

/*
 * Programs that suites compare with: other databases, which the environment gives to the suite `versus`, and PgBouncer, which
 * the suite `wire` finds if it is installed.
 */

/** The operations on branches of the table `people`. All are durable when they resolve. */
export interface Branching {
  fork(options: { name: string; from: string }): Promise<unknown>
  read(branch: string, id: string): Promise<unknown>
  update(branch: string, ids: readonly string[], age: number): Promise<unknown>
  /** Makes changes of a branch visible to `difference` and `merge`, where that is a step of its own. */
  commit(branch: string): Promise<unknown>
  /** The changes of a branch since it was forked from the other one. */
  difference(options: { name: string; from: string }): Promise<unknown>
  merge(options: { name: string; into: string }): Promise<unknown>
  remove(branch: string): Promise<unknown>
}

interface Peer {
  readonly pid: number
  /** Reads a page of 20 rows since a time, by an index. */
  page(since: string): Promise<unknown>
  close(): Promise<void>
}

/** Starts a program, and resolves when `probe` succeeds. */
async function startPeer(
  command: readonly [string, ...string[]],
  options: {
    folder: string
    probe(): Promise<unknown>
    user?: { readonly uid: number; readonly gid: number } | undefined
  },
): Promise<ChildProcess> {
  const [program, ...parameters] = command
  const child = spawn(program, parameters, {
    ...options.user,
    cwd: options.folder,
    env: { ...process.env, HOME: options.folder },
    stdio: 'ignore',
  })
  let failure: unknown
  child.once('error', (error) => {
    failure = error
  })
  for (;;) {
    if (failure !== undefined || child.exitCode !== null) {
      throw new Error(`[${command.join(' ')}] did not start`, { cause: failure })
    }
    try {
      await options.probe()
      return child
    } catch {
      await delay(5)
    }
  }
}

/** Runs a program to its end. */
async function runTool(command: readonly [string, ...string[]], folder: string): Promise<void> {
  const [program, ...parameters] = command
  const env = { ...process.env, HOME: folder }
  const child = spawn(program, parameters, { cwd: folder, env, stdio: 'ignore' })
  const [code] = await once(child, 'exit')
  if (code !== 0) throw new Error(`[${command.join(' ')}] ended with code ${code}`)
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  return typeof address === 'object' && address !== null ? address.port : 0
}

/** Dolt as a server, with the same table and index. */
export class Dolt implements Peer, Branching {
  readonly #process: ChildProcess
  readonly #one: mysql.Connection
  readonly #pool: mysql.Pool

  private constructor(child: ChildProcess, one: mysql.Connection, pool: mysql.Pool) {
    this.#process = child
    this.#one = one
    this.#pool = pool
  }

  static async start(
    program: string,
    options: { folder: string; connections: number },
  ): Promise<Dolt> {
    const { folder, connections } = options
    const port = await freePort()
    const address = { host: '127.0.0.1', port, user: 'root' }
    const parameters = ['sql-server', '--host', '127.0.0.1', '--port', String(port)]
    const child = await startPeer([program, ...parameters, '--data-dir', folder], {
      folder,
      probe: async () => (await mysql.createConnection(address)).end(),
    })
    const one = await mysql.createConnection({ ...address, multipleStatements: true })
    await one.query('create database if not exists people')
    await one.query('use people')
    const pool = mysql.createPool({
      ...address,
      database: 'people',
      connectionLimit: connections,
    })
    return new Dolt(child, one, pool)
  }

  get pid(): number {
    return this.#process.pid ?? 0
  }

  async fill(rows: readonly (readonly unknown[])[]): Promise<void> {
    await this.#one.query(
      `create table people (id varchar(255) primary key, name text, email text, age bigint,
        score double, active boolean, seen datetime(3), key (seen), key (age))`,
    )
    for (let start = 0; start < rows.length; start += 5000) {
      await this.#one.query('insert into people values ?', [rows.slice(start, start + 5000)])
    }
    await this.commit('main')
  }

  async fork({ name, from }: { name: string; from: string }): Promise<void> {
    await this.#one.query('call dolt_branch(?, ?)', [name, from])
  }

  async #on(
    branch: string,
    statement: string,
    values: (string | number | string[])[] = [],
  ): Promise<unknown> {
    return this.#one.query(`use ${mysql.escapeId(`people/${branch}`, true)}; ${statement}`, values)
  }

  read(branch: string, id: string): Promise<unknown> {
    return this.#on(branch, 'select * from people where id = ?', [id])
  }

  update(branch: string, ids: readonly string[], age: number): Promise<unknown> {
    return this.#on(branch, 'update people set age = ? where id in (?)', [age, [...ids]])
  }

  commit(branch: string): Promise<unknown> {
    return this.#on(branch, `call dolt_commit('-Am', 'bench')`)
  }

  difference({ name, from }: { name: string; from: string }): Promise<unknown> {
    return this.#one.query('select * from dolt_diff(?, ?)', [`${from}...${name}`, 'people'])
  }

  merge({ name, into }: { name: string; into: string }): Promise<unknown> {
    return this.#on(into, 'call dolt_merge(?)', [name])
  }

  async remove(branch: string): Promise<void> {
    await this.#one.query('use people')
    await this.#one.query(`call dolt_branch('-D', ?)`, [branch])
  }

  /** In the plain form of this statement, Dolt 2.3 reads the index from its start. In this one, it begins at the time. */
  page(since: string): Promise<unknown> {
    const statement = `select p.*
      from (select id, seen from people where seen >= ? order by seen limit 20) k
      join people p on p.id = k.id
      order by k.seen`
    return this.#pool.execute(statement, [since.slice(0, -1).replace('T', ' ')])
  }

  async close(): Promise<void> {
    await this.#pool.end()
    await this.#one.end()
    await stopProcess(this.#process)
  }
}

const ADMINISTRATOR = { identity: 'bench@example.com', password: 'bench-password' }

/** PocketBase, with the same collection and index, readable without a key. It has no branches. */
export class PocketBase implements Peer {
  readonly #process: ChildProcess
  readonly #http: Pool
  #token = ''

  private constructor(child: ChildProcess, http: Pool) {
    this.#process = child
    this.#http = http
  }

  static async start(
    program: string,
    options: { folder: string; connections: number },
  ): Promise<PocketBase> {
    const { folder, connections } = options
    const address = `127.0.0.1:${await freePort()}`
    const child = await startPeer([program, 'serve', `--http=${address}`, `--dir=${folder}`], {
      folder,
      probe: async () => fetch(`http://${address}/api/health`),
    })
    return new PocketBase(child, new Pool(`http://${address}`, { connections, pipelining: 1 }))
  }

  get pid(): number {
    return this.#process.pid ?? 0
  }

  async fill(
    rows: readonly (readonly unknown[])[],
    options: { program: string; folder: string },
  ): Promise<void> {
    const { identity, password } = ADMINISTRATOR
    const account = ['superuser', 'upsert', identity, password, `--dir=${options.folder}`] as const
    await runTool([options.program, ...account], options.folder)
    const signedIn = await this.#call(
      'POST',
      '/api/collections/_superusers/auth-with-password',
      ADMINISTRATOR,
    )
    this.#token = (signedIn as { token: string }).token
    await this.#call('PATCH', '/api/settings', {
      batch: { enabled: true, maxRequests: 1000, timeout: 300 },
    })
    await this.#call('POST', '/api/collections', {
      name: 'people',
      type: 'base',
      listRule: '',
      fields: [
        { name: 'name', type: 'text' },
        { name: 'email', type: 'email' },
        { name: 'age', type: 'number' },
        { name: 'score', type: 'number' },
        { name: 'active', type: 'bool' },
        { name: 'seen', type: 'date' },
      ],
      indexes: [
        'create index people_seen on people (seen)',
        'create index people_age on people (age)',
      ],
    })
    const url = '/api/collections/people/records'
    for (let start = 0; start < rows.length; start += 200) {
      const requests = rows
        .slice(start, start + 200)
        .map(([, name, email, age, score, active, seen]) => ({
          method: 'POST',
          url,
          body: { name, email, age, score, active, seen },
        }))
      await this.#call('POST', '/api/batch', { requests })
    }
  }

  page(since: string): Promise<unknown> {
    const filter = encodeURIComponent(`seen >= '${since.replace('T', ' ')}'`)
    return this.#call(
      'GET',
      `/api/collections/people/records?perPage=20&skipTotal=1&sort=seen&filter=${filter}`,
    )
  }

  async #call(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await this.#http.request({
      method: method as 'GET',
      path,
      headers: { authorization: this.#token, 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    })
    const text = await response.body.text()
    if (response.statusCode >= 300) throw new Error(`${method} ${path}: ${text}`)
    return text === '' ? undefined : JSON.parse(text)
  }

  async close(): Promise<void> {
    await this.#http.close()
    await stopProcess(this.#process)
  }
}

/** From this version on, PgBouncer knows prepared statements of clients in transaction mode. */
const PREPARING_VERSION = 1.21

/** PgBouncer in transaction mode in front of a PostgreSQL. */
export class PgBouncer {
  readonly #process: ChildProcess
  readonly #folder: string
  readonly url: string
  /** How pgbench sends statements through it: as prepared ones, if it knows them. */
  readonly mode: 'prepared' | 'extended'

  private constructor(
    child: ChildProcess,
    { folder, url, version }: { folder: string; url: string; version: number },
  ) {
    this.#process = child
    this.#folder = folder
    this.url = url
    this.mode = version < PREPARING_VERSION ? 'extended' : 'prepared'
  }

  /** Returns undefined if the program is not installed. */
  static async start(postgresUrl: string, connections: number): Promise<PgBouncer | undefined> {
    const { stdout } = await promisify(execFile)('pgbouncer', ['--version']).catch(
      (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return { stdout: undefined }
        throw error
      },
    )
    if (stdout === undefined) return undefined
    const version = Number(/PgBouncer (\d+\.\d+)/.exec(stdout)?.[1])
    const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-pgbouncer-'))
    const port = await freePort()
    const file = path.join(folder, 'pgbouncer.ini')
    const prepares = version < PREPARING_VERSION ? '' : 'max_prepared_statements = 100'
    await writeFile(
      file,
      `[databases]
bench = ${targetOf(postgresUrl)}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = ${connections}
ignore_startup_parameters = extra_float_digits
${prepares}
`,
    )
    // It does not run as root. The socket of PostgreSQL belongs to a user who can read the file, too.
    const user = process.getuid?.() === 0 ? await ownerOfSocket(postgresUrl) : undefined
    if (user !== undefined) {
      for (const each of [folder, file]) await chown(each, user.uid, user.gid)
    }
    const url = `postgresql://bench@127.0.0.1:${port}/bench`
    const child = await startPeer(['pgbouncer', '-q', file], {
      folder,
      user,
      probe: async () => {
        const client = new pg.Client({ connectionString: url })
        await client.connect()
        await client.end()
      },
    })
    return new PgBouncer(child, { folder, url, version })
  }

  async close(): Promise<void> {
    await stopProcess(this.#process)
    await rm(this.#folder, { recursive: true, force: true })
  }
}

/** Returns a PostgreSQL as a setting of PgBouncer. */
function targetOf(postgresUrl: string): string {
  const { username, password, pathname, searchParams, port } = new URL(postgresUrl)
  const settings = {
    host: searchParams.get('host') ?? '',
    port,
    dbname: pathname.slice(1),
    user: username,
    password: decodeURIComponent(password),
  }
  return Object.entries(settings)
    .map(([name, value]) => `${name}='${value.replaceAll("'", "''")}'`)
    .join(' ')
}

async function ownerOfSocket(postgresUrl: string): Promise<{ uid: number; gid: number }> {
  const { searchParams, port } = new URL(postgresUrl)
  const { uid, gid } = await stat(`${searchParams.get('host')}/.s.PGSQL.${port}`)
  return { uid, gid }
}
