import type { Column } from '@offshoot/contract/schema'
import { newOperationId } from '../../../packages/server/src/common/ids.js'
import { insertOperation } from '../../../packages/server/src/domain/long-work/queries.js'
import { sql } from '../../../packages/server/src/postgres/sql.js'
import { createKey } from '../people.js'
import { Random } from '../seeded-random.js'
import type { CallableService, TestService } from '../service.js'
import { addTables, expectOk } from '../tables.js'
import { createTenant, TENANT_TABLES, type Tenant, userRecord } from '../tenants.js'
import type { Document, Operation } from './document.js'
import type { FuzzAnswer } from './judge.js'
import { type Caller, type FuzzRequest, makeRequest, recordsOf } from './requests.js'
import type { Scope, Tables } from './scope.js'
import { Stock } from './stock.js'

/** Requests after which the lane makes sure that its resources exist. */
const UPKEEP_EVERY = 60
/** Of so many requests, one is of the next operation in turn. */
const IN_TURN_EVERY = 4

/** Destructive operations are chosen less often. */
const WEIGHTS: ReadonlyMap<string, number> = new Map([
  ['DELETE /user', 0.3],
  ['DELETE /workspaces/{workspaceId}', 0.3],
  ['DELETE /workspaces/{workspaceId}/dbs/{databaseName}', 0.3],
  ['POST /workspaces/{workspaceId}/dbs/{databaseName}/rename', 0.3],
  ['DELETE /db/{databaseBranch}', 0.4],
  ['DELETE /db/{databaseBranch}/tables/{tableName}', 0.4],
  ['PATCH /db/{databaseBranch}/tables/{tableName}', 0.4],
  ['DELETE /db/{databaseBranch}/tables/{tableName}/columns/{columnName}', 0.4],
  ['PATCH /db/{databaseBranch}/tables/{tableName}/columns/{columnName}', 0.4],
])

function weightOf({ name, path, requestBody }: Operation): number {
  // Operations on records have the most variants.
  const isDeep = path.startsWith('/db/') && requestBody !== undefined && !path.includes('schema')
  return WEIGHTS.get(name) ?? (isDeep ? 2.5 : 1)
}

/**
 * A tenant that sends random requests one after the other. Lanes share only the service, so that a
 * seed always produces the same requests.
 */
export class Lane implements Caller {
  readonly #random: Random
  readonly #operations: readonly (readonly [weight: number, operation: Operation])[]
  #tenant: Tenant | undefined
  #stock = new Stock({})
  #keys: readonly string[] = []
  #tables = new Map<string, Tables>()
  #count = 0
  #made = 0
  #tenants = 0

  constructor(
    readonly options: {
      readonly name: string
      readonly seed: number
      readonly service: CallableService & Partial<Pick<TestService, 'database'>>
      readonly document: Document
      readonly neighbour: Tenant
      /** The place of the operation with which the lane begins. */
      readonly first?: number
    },
  ) {
    this.#random = new Random(options.seed)
    this.#operations = options.document.operations.map((operation) => [
      weightOf(operation),
      operation,
    ])
  }

  get scope(): Omit<Scope, 'tables' | 'table'> {
    return { random: this.#random, document: this.options.document, stock: this.#stock }
  }

  get workspaceId(): string {
    return this.#tenant?.workspaceId ?? ''
  }

  get foreign(): Readonly<Record<string, readonly string[]>> {
    const { workspaceId, links } = this.options.neighbour
    const accessIds = links.map((link) => link.replace(/^\/file\/|\?.*$/g, ''))
    return { workspaceId: [workspaceId], accessId: accessIds }
  }

  tablesOf(databaseBranch: string): Tables {
    return this.#tables.get(databaseBranch) ?? TENANT_TABLES
  }

  keyFor(operation: Operation): string | undefined {
    const random = this.#random
    const [main = '', ...scoped] = this.#keys
    return random.weighted<() => string | undefined>([
      [operation.path === '/users' ? 20 : 0, () => this.options.service.key],
      // Somebody else's, mostly, when it is to go.
      [operation.name === 'DELETE /user' ? 1 : 20, () => main],
      [2, () => random.pick(scoped)],
      [1, () => this.#stock.pick(random, 'key') ?? main],
      [0.5, () => `off_${'a'.repeat(44)}`],
      [0.5, () => undefined],
    ])()
  }

  async next(): Promise<FuzzRequest> {
    if (this.#count++ % UPKEEP_EVERY === 0) await this.#keepUp()
    return makeRequest(this.#nextOperation(), this)
  }

  /** Mostly a random one, and now and then the next one in turn, so that also short runs reach all. */
  #nextOperation(): Operation {
    if (this.#made++ % IN_TURN_EVERY > 0) return this.#random.weighted(this.#operations)
    const { first = 0, document } = this.options
    const place = first + this.#made / IN_TURN_EVERY
    const next = document.operations[Math.floor(place) % document.operations.length]
    if (next === undefined) throw new Error('there must be an operation')
    return next
  }

  /** Stores the names and ids of the answer. */
  learn(request: FuzzRequest, answer: FuzzAnswer): void {
    const isLockedOut =
      answer.status === 401 && request.headers.authorization === `Bearer ${this.#keys[0]}`
    if (isLockedOut) this.#count = 0
    const { operation, values } = request
    if (answer.status === 404) {
      for (const [kind, value] of Object.entries(values)) this.#stock.drop(kind, value)
      this.#stock.drop(recordsOf(values.tableName), values.recordId)
    }
    if (answer.status >= 300 || request.isMisrouted) return
    if (operation.method !== 'DELETE') {
      for (const [kind, value] of Object.entries(values)) this.#stock.add(kind, value)
    }
    if (!String(answer.headers['content-type']).startsWith('application/json')) return
    const isAboutRecords = /\/(data|query|bulk|transaction)/.test(operation.path)
    for (const [key, value] of stringsIn(JSON.parse(answer.body.toString()))) {
      if (key === 'id' && isAboutRecords) {
        this.#stock.add('recordId', value)
        this.#stock.add(recordsOf(values.tableName), value)
      }
      if (key === 'id' && operation.name === 'POST /workspaces')
        this.#stock.add('workspaceId', value)
      if (key === 'id' && value.startsWith('cp_')) this.#stock.add('checkpoint', value)
      if (key === 'key')
        this.#stock.add(operation.path.includes('invites') ? 'invite' : 'key', value)
      if (value.includes('/file/')) this.#stock.add('link', value.split('/file/')[1])
      const kind = KIND_BY_FIELD.get(key)
      if (kind !== undefined) this.#stock.add(kind, value)
    }
  }

  /** Creates the resources again that earlier requests deleted. */
  async #keepUp(): Promise<void> {
    const { service } = this.options
    const user = await service.call('GET', '/user', { key: this.#keys[0] ?? null })
    const workspace = await service.call('GET', `/workspaces/${this.workspaceId}`, {
      key: this.#keys[0] ?? null,
    })
    if (user.status !== 200 || workspace.status !== 200) await this.#moveIn()
    else if (!(await this.#isFurnished())) await this.#furnish()
    await this.#lookAround()
  }

  async #moveIn(): Promise<void> {
    const { service, name } = this.options
    const userName = `${name}-${this.#tenants++}`
    const tenant = await createTenant(service, { userName, mark: `mark-of-${name}` })
    const { key, workspaceId } = tenant
    const scopes = [{ access: 'read' }, { databases: ['shop'] }, { branches: ['dev', 'preview-*'] }]
    const scoped: string[] = []
    for (const [position, scope] of scopes.entries()) {
      scoped.push(await createKey(service, `scoped-${position}`, { key, fields: { scope } }))
    }
    this.#tenant = tenant
    this.#keys = [key, ...scoped]
    this.#stock = new Stock({
      workspaceId: [workspaceId],
      databaseName: ['shop'],
      branchName: ['main', 'dev', 'preview-1'],
      databaseBranch: ['shop:main', 'shop:dev', 'shop:preview-1'],
      tableName: Object.keys(TENANT_TABLES),
      columnName: Object.values(TENANT_TABLES).flatMap((columns) => columns.map((c) => c.name)),
      recordId: ['ada', 'grace', 'alan', 'edsger', 'core', 'web'],
      [recordsOf('users')]: ['ada', 'grace'],
      [recordsOf('teams')]: ['core'],
      userId: [tenant.userId],
      invite: [tenant.invite.inviteId, tenant.invite.key],
      keyName: ['ci', 'scoped-0'],
      checkpoint: ['kept'],
      constraintName: ['named'],
      check: [CHECK],
      fileId: ['paper'],
      gitBranch: ['feat/login'],
      region: ['local', 'eu'],
      migrationId: [tenant.migrationId],
      email: [tenant.email],
      link: tenant.links.map((link) => link.replace('/file/', '')),
    })
  }

  async #isFurnished(): Promise<boolean> {
    for (const branch of ['main', 'dev']) {
      const table = `${this.#tenant?.workspace}/db/shop:${branch}/tables/users`
      const { status, body } = await this.#call('GET', `${table}/schema`)
      if (status !== 200) return false
      const names: string[] = body.columns.map((column: Column) => column.name)
      if (TENANT_TABLES.users?.some((column) => !names.includes(column.name))) return false
      await this.#call('PUT', `${table}/data/ada`, userRecord('ada', 0, 'ada'))
      for (const index of ['columns/name/index', 'searchIndex']) {
        await this.#call('PUT', `${table}/${index}`)
      }
    }
    return true
  }

  async #furnish(): Promise<void> {
    const database = `/workspaces/${this.workspaceId}/dbs/shop`
    const branch = (name: string) => `${this.#tenant?.workspace}/db/shop:${name}`
    await this.#unprotect()
    await this.#call('DELETE', database)
    await this.#make('PUT', database, { region: 'local' })
    const operations = addTables(TENANT_TABLES)
    await this.#make('POST', `${branch('main')}/schema/update`, { operations })
    await this.#make('PUT', `${branch('main')}/tables/users/constraints/named`, { check: CHECK })
    const records = ['ada', 'grace'].map((id, position) => userRecord(id, position, id))
    await this.#make('POST', `${branch('main')}/tables/users/bulk`, { records })
    await this.#make('POST', `${branch('main')}/tables/teams/bulk`, { records: [{ id: 'core' }] })
    for (const name of ['dev', 'preview-1']) await this.#make('PUT', branch(name), { from: 'main' })
    for (const name of ['main', 'dev', 'preview-1']) {
      await this.#make('POST', `${branch(name)}/checkpoints`, { name: 'kept' })
    }
    const users = `${branch('dev')}/tables/users/data`
    for (const name of ['first', 'second']) {
      await this.#make('PATCH', `${users}/grace`, { name })
      const merged = await this.#call('POST', `${branch('dev')}/merge`, { into: 'main' })
      this.#stock.add('entry', expectOk(merged).body.entry)
    }
    const proposal = { from: 'dev', into: 'main', title: 'kept' }
    await this.#make('POST', `${this.#tenant?.workspace}/dbs/shop/proposals`, proposal)
    await this.#addOperation()
    await this.#addVersion(`${branch('main')}/tables/teams`)
  }

  /** Makes a table keep versions of its records, and changes one of them. */
  async #addVersion(table: string): Promise<void> {
    await this.#make('PATCH', table, { history: { keep: '30d' } })
    await this.#make('PATCH', `${table}/data/core`, { name: 'renamed' })
    const { body } = expectOk(await this.#call('GET', `${table}/data/core/history`))
    for (const { version } of body.versions) this.#stock.add('version', version)
  }

  /**
   * Stores the operation of a merge that never ends, if the database is at hand. Real ones end before anything can be asked
   * about them.
   */
  async #addOperation(): Promise<void> {
    const { database } = this.options.service
    if (database === undefined) return
    const [shop] = await database.query<{ id: string }>(sql`
      select id from offshoot.databases where workspace_id = ${this.workspaceId} and name = 'shop'`)
    const id = newOperationId()
    const progress = { step: 'starting', done: 0, total: 1 }
    const row = { id, kind: 'merge', databaseId: shop?.id ?? '', branchName: 'dev' } as const
    await database.query(insertOperation({ ...row, progress, startedAt: new Date() }))
    this.#stock.add('operationId', id)
  }

  /** Lifts the protection of all branches, which would keep the database from being deleted. */
  async #unprotect(): Promise<void> {
    const workspace = this.#tenant?.workspace
    const { status, body } = await this.#call('GET', `${workspace}/dbs/shop`)
    if (status !== 200) return
    for (const { name, protected: isProtected } of body.branches) {
      if (isProtected)
        await this.#call('PATCH', `${workspace}/db/shop:${name}`, { protected: false })
    }
  }

  /** Reads the tables and columns of the branch. */
  async #lookAround(): Promise<void> {
    this.#tables = new Map()
    for (let count = 0; count < 8; count++) {
      const name = this.#stock.pick(this.#random, 'databaseBranch') ?? ''
      if (this.#tables.has(name)) continue
      const { status, body } = await this.#call('GET', `${this.#tenant?.workspace}/db/${name}`)
      if (status !== 200) continue
      const tables: { name: string; columns: Column[] }[] = body.schema.tables
      this.#tables.set(name, Object.fromEntries(tables.map((table) => [table.name, table.columns])))
    }
  }

  #call(method: string, path: string, body?: unknown) {
    return this.options.service.call(method, path, { body, key: this.#keys[0] ?? null })
  }

  async #make(method: string, path: string, body: unknown): Promise<void> {
    expectOk(await this.#call(method, path, body))
  }
}

/** A condition that all records of the tenant's tables meet. */
const CHECK = 'name is null or length(name) >= 0'

const KIND_BY_FIELD: ReadonlyMap<string, string> = new Map([
  ['recordIDs', 'recordId'],
  ['inviteId', 'invite'],
  ['userId', 'userId'],
  ['migrationID', 'migrationId'],
  ['lastMigrationID', 'migrationId'],
  ['cursor', 'cursor'],
  ['checkpoint', 'checkpoint'],
  ['entry', 'entry'],
])

/** Yields every string of a value, with the key of the string or of its list. */
function stringsIn(value: unknown): [key: string, text: string][] {
  const found: [string, string][] = []
  const open: [string, unknown][] = [['', value]]
  while (open.length > 0 && found.length < 500) {
    const [key, inner] = open.pop() ?? ['', null]
    if (typeof inner === 'string') found.push([key, inner])
    if (typeof inner !== 'object' || inner === null) continue
    for (const [name, item] of Object.entries(inner)) {
      open.push([Array.isArray(inner) ? key : name, item])
    }
  }
  return found
}
