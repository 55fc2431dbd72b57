import { createHash } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { Permits } from '../common/permits.js'
import type { CompiledSchema } from '../data/session/compiled-schema.js'
import type { Session } from '../data/session/session.js'
import { invalidSql } from '../dialect/invalid-sql.js'
import { SHAPE_KEY } from '../postgres/advisory-keys.js'
import type { Database, Queryable } from '../postgres/database.js'
import { codeOf } from '../postgres/failures.js'
import { findInstanceId, prepareBareRole } from '../postgres/reader-role.js'
import { ident, join, literal, type Sql, sql } from '../postgres/sql.js'
import { defineShape } from './define-shape.js'
import { createShown, SHOWN_SCHEMAS, SHOWN_VERSION } from './shown-catalogue.js'

/*
 * A shape is a small PostgreSQL database that has the tables of one schema, without rows. Clients of PostgreSQL ask its
 * catalogue. Schemas are immutable and branches share them, so a shape never changes: it is made when it is first needed, by
 * a copy of a template, and dropped when it has not been used for long. Nothing of it is in a backup.
 *
 * Processes agree by the names of shapes, which are made of what they contain. The comment on a shape is the time of its last
 * use. One without a comment is not complete.
 */

/** Shapes of an instance. The least recently used one makes room for another. */
const SHAPES_MAX = 32
/** Shapes of one database. */
export const SHAPES_PER_DATABASE_MAX = 4
/** A shape that was not used for this time is dropped. */
const UNUSED_MS_MAX = 24 * 3_600_000
/** How often a use is noted. */
const NOTED_MS = 60_000
/** Shapes that a process makes at the same time, and how long others wait. */
const MAKING_MAX = 2
const MAKING_WAIT_MS = 60_000

const UNKNOWN_DATABASE = '3D000'
/** From this version, a copy does not need a checkpoint. */
const QUICK_COPY_VERSION = 150_000
/** From this version, a foreign key can be one that is not enforced. */
const UNENFORCED_VERSION = 180_000

/** What shapes of the server have in common. */
interface ShapeSetting {
  /** The beginning of the names of shapes and templates. */
  readonly prefix: string
  readonly template: string
  readonly role: string
  readonly roleId: number
  readonly shownSchema: string
  readonly isSuperuser: boolean
  readonly isCopiedQuickly: boolean
  readonly hasUnenforced: boolean
}

/** A shape that statements can be sent to. */
export interface Shape {
  readonly name: string
  /** The role that statements run as. */
  readonly role: string
  /** The schema with the replacements of relations and functions. */
  readonly shownSchema: string
}

/** The shapes of an instance, as one process uses them. */
export class ShapeDatabases {
  readonly #database: Database
  readonly #names = new WeakMap<CompiledSchema, string>()
  readonly #ready = new Map<string, Promise<void>>()
  readonly #notedAt = new Map<string, number>()
  readonly #making = new Permits({ permitsMax: MAKING_MAX, waitMs: MAKING_WAIT_MS }, tooMany)
  #setting: Promise<ShapeSetting> | undefined

  constructor(database: Database) {
    this.#database = database
  }

  /** Opens a connection to the shape of a session, which is made if there is none. The caller must end it. */
  async open(session: Session): Promise<pg.Client> {
    const { name } = await this.find(session)
    try {
      return await this.#database.openElsewhere(name)
    } catch (error) {
      if (codeOf(error) !== UNKNOWN_DATABASE) throw error
      // Another process has dropped it.
      this.#ready.delete(name)
      await this.find(session)
      return this.#database.openElsewhere(name)
    }
  }

  /** Finds the shape of a session. It is made if there is none. */
  async find({ schema, branch, access }: Session): Promise<Shape> {
    const setting = await this.#prepare()
    const { prefix, template, role, shownSchema } = setting
    let name = this.#names.get(schema)
    if (name === undefined) {
      const content = hash([
        template,
        ...defineShape(schema, setting).map((statement) => statement.sql),
      ])
      name = `${prefix}_${branch.rows.databaseId}_${content}`
      this.#names.set(schema, name)
    }
    let ready = this.#ready.get(name)
    if (ready === undefined) {
      ready = this.#make({ name, setting, schema, owner: access.workspaceId })
      this.#ready.set(name, ready)
    }
    await ready.catch((error: unknown) => {
      this.#ready.delete(name)
      throw error
    })
    await this.#noteUse(name)
    return { name, role, shownSchema }
  }

  async #noteUse(name: string): Promise<void> {
    const now = Date.now()
    if (now - (this.#notedAt.get(name) ?? 0) < NOTED_MS) return
    this.#notedAt.set(name, now)
    const note = onOwnConnection(this.#database, (queryable) => noteUse(queryable, name))
    await note.catch((error: unknown) => {
      this.#ready.delete(name)
      if (codeOf(error) !== UNKNOWN_DATABASE) throw error
    })
  }

  #prepare(): Promise<ShapeSetting> {
    this.#setting ??= findSetting(this.#database)
    this.#setting.catch(() => {
      this.#setting = undefined
    })
    return this.#setting
  }

  async #make(shape: {
    name: string
    setting: ShapeSetting
    schema: CompiledSchema
    owner: string
  }): Promise<void> {
    const { name, setting, schema, owner } = shape
    await this.#making.enter(owner)
    try {
      await withLock(this.#database, name, async (queryable) => {
        if (await isComplete(queryable, name)) return
        await this.#makeTemplate(setting)
        await dropDatabase(queryable, name)
        await makeRoom(queryable, { ...setting, name })
        await createDatabase(queryable, {
          name,
          template: setting.template,
          copying: setting.isCopiedQuickly ? sql`strategy wal_log` : sql``,
        })
        await this.#define(name, setting, defineShape(schema, setting))
        await noteUse(queryable, name)
      })
    } finally {
      this.#making.leave(owner)
    }
  }

  async #makeTemplate(setting: ShapeSetting): Promise<void> {
    const { template: name } = setting
    await withLock(this.#database, name, async (queryable) => {
      if (!(await isComplete(queryable, name))) {
        await dropDatabase(queryable, name)
        await createDatabase(queryable, {
          name,
          template: 'template0',
          copying: sql`encoding 'UTF8' lc_collate 'C' lc_ctype 'C'`,
        })
        await this.#in(name, (client) =>
          createShown(client, { ...setting, schema: setting.shownSchema }),
        )
      }
      await noteUse(queryable, name)
    })
  }

  /** Defines tables as the role that statements run as, because the catalogue shows everything of a table to its owner only. */
  async #define(name: string, { role }: ShapeSetting, statements: readonly Sql[]): Promise<void> {
    const all = [
      sql`begin`,
      sql`grant create on schema public to ${ident(role)}`,
      sql`set local role ${ident(role)}`,
      ...statements,
      sql`reset role`,
      sql`revoke create on schema public from ${ident(role)}`,
      sql`commit`,
    ]
    await this.#in(name, (client) => client.query(join(all, ';\n').sql))
  }

  async #in(name: string, work: (client: pg.Client) => Promise<unknown>): Promise<void> {
    const client = await this.#database.openElsewhere(name)
    try {
      await work(client)
    } finally {
      await client.end()
    }
  }
}

function hash(texts: readonly string[]): string {
  return createHash('sha256').update(JSON.stringify(texts)).digest('hex').slice(0, HASH_LENGTH)
}

/** With the other parts of a name, no more than the 63 bytes of an identifier. */
const HASH_LENGTH = 14

function tooMany(): AppError {
  return new AppError('overloaded', 'too many catalogues are in use or being made; try again later')
}

async function findSetting(database: Database): Promise<ShapeSetting> {
  const [found] = await database.query<{
    isSuperuser: boolean
    createsDatabases: boolean
    version: number
  }>(sql`
    select rolsuper as "isSuperuser", rolsuper or rolcreatedb as "createsDatabases",
      current_setting('server_version_num')::int as version
    from pg_roles where rolname = current_user`)
  if (found === undefined) throw new Error('the role of the service must exist')
  if (!found.createsDatabases) throw unavailable('may not create databases (CREATEDB)')
  const role = await prepareBareRole(database)
  if (role === undefined) throw unavailable('may not create roles (CREATEROLE)')
  const { isSuperuser, version } = found
  const roleId = await findRoleId(database, role)
  const shownSchema = isSuperuser ? SHOWN_SCHEMAS.hidden : SHOWN_SCHEMAS.visible
  const prefix = await findPrefix(database)
  return {
    prefix,
    role,
    roleId,
    shownSchema,
    isSuperuser,
    isCopiedQuickly: version >= QUICK_COPY_VERSION,
    hasUnenforced: version >= UNENFORCED_VERSION,
    template: `${prefix}_${hash([SHOWN_VERSION, String(version), String(roleId), shownSchema])}`,
  }
}

async function findRoleId(database: Database, role: string): Promise<number> {
  const [row] = await database.query<{ id: string }>(
    sql`select oid::text as id from pg_roles where rolname = ${role}`,
  )
  return Number(row?.id ?? 0)
}

const unavailable = (reason: string): AppError =>
  invalidSql(
    `pg_catalog and information_schema are not supported by this server, because the role of the service ${reason}. Statements on tables work, but tools cannot list tables and columns`,
  )

const findPrefix = async (queryable: Queryable): Promise<string> =>
  `offshoot_${await findInstanceId(queryable)}_shape`

/** Runs work while no other process makes or drops a database of the same name. */
function withLock(
  database: Database,
  name: string,
  work: (queryable: Queryable) => Promise<void>,
): Promise<void> {
  return onOwnConnection(database, async (connection) => {
    await connection.query(sql`select pg_advisory_lock(${SHAPE_KEY}::int, hashtext(${name}))`)
    await work(connection)
  })
}

/** Runs work on a connection that defines databases. */
async function onOwnConnection(
  database: Database,
  work: (queryable: Queryable) => Promise<void>,
): Promise<void> {
  const connection = await database.openLong({ staysHere: true })
  try {
    await work(connection)
  } finally {
    await connection.end()
  }
}

async function isComplete(queryable: Queryable, name: string): Promise<boolean> {
  const found = await queryable.query(sql`
    select from pg_database
    where datname = ${name} and shobj_description(oid, 'pg_database') is not null`)
  return found.length > 0
}

async function noteUse(queryable: Queryable, name: string): Promise<void> {
  await queryable.query(
    sql`comment on database ${ident(name)} is ${literal(new Date().toISOString())}`,
  )
}

async function createDatabase(
  queryable: Queryable,
  { name, template, copying }: { name: string; template: string; copying: Sql },
): Promise<void> {
  await queryable.query(sql`create database ${ident(name)} template ${ident(template)} ${copying}`)
  await queryable.query(sql`revoke all on database ${ident(name)} from public`)
}

/** Ends the connections of other processes, which make the database again if they need it. */
async function dropDatabase(queryable: Queryable, name: string): Promise<void> {
  await queryable.query(sql`drop database if exists ${ident(name)} with (force)`)
}

interface FoundShape {
  readonly name: string
  /** null: it is not complete. */
  readonly usedAt: Date | null
}

/** Lists shapes and templates, the least recently used first. */
async function listShapes(queryable: Queryable, prefix: string): Promise<FoundShape[]> {
  return queryable.query<FoundShape & pg.QueryResultRow>(sql`
    select datname as name, shobj_description(oid, 'pg_database')::timestamptz as "usedAt"
    from pg_database
    where starts_with(datname, ${`${prefix}_`})
    order by 2 nulls first, 1`)
}

/** Drops shapes that were not used for long, if there are too many. */
async function makeRoom(
  queryable: Queryable,
  { prefix, name }: { prefix: string; name: string },
): Promise<void> {
  const shapes = (await listShapes(queryable, prefix)).filter((each) => isShape(each.name))
  const siblings = shapes.filter((each) => databaseOf(each.name) === databaseOf(name))
  const excess = [
    ...siblings.slice(0, Math.max(0, siblings.length + 1 - SHAPES_PER_DATABASE_MAX)),
    ...shapes.slice(0, Math.max(0, shapes.length + 1 - SHAPES_MAX)),
  ]
  for (const each of new Set(excess)) await dropIfFree(queryable, each.name)
}

/** The names of shapes contain the id of a database. Those of templates do not. */
const databaseOf = (name: string): string | undefined => /_shape_(\d+)_[0-9a-f]+$/.exec(name)?.[1]
const isShape = (name: string): boolean => databaseOf(name) !== undefined

/** Drops a database unless another process is making it. */
async function dropIfFree(queryable: Queryable, name: string): Promise<void> {
  const key = sql`${SHAPE_KEY}::int, hashtext(${name})`
  const [lock] = await queryable.query<{ isFree: boolean }>(
    sql`select pg_try_advisory_lock(${key}) as "isFree"`,
  )
  if (!lock?.isFree) return
  try {
    await dropDatabase(queryable, name)
  } finally {
    await queryable.query(sql`select pg_advisory_unlock(${key})`)
  }
}

/** Drops shapes that were not used for long, and what a crash has left behind. */
export async function collectShapes(
  database: Database,
  { unusedMs = UNUSED_MS_MAX }: { unusedMs?: number } = {},
): Promise<void> {
  const before = Date.now() - unusedMs
  const found = await listShapes(database, await findPrefix(database))
  const unused = found.filter(({ usedAt }) => usedAt === null || usedAt.getTime() <= before)
  if (unused.length === 0) return
  await onOwnConnection(database, async (connection) => {
    for (const { name } of unused) await dropIfFree(connection, name)
  })
}
