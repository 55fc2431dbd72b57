import type { Column } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { Answer, CallOptions, TestService } from './service.js'
import { branchCall, createTables, expectOk } from './tables.js'

type Values = Readonly<Record<string, unknown>>

/** The branches of one database. Calls that do not return an answer must succeed. */
export class TestBranches {
  constructor(
    readonly service: TestService,
    readonly database: string,
    /** Another process on the same PostgreSQL. */
    readonly via: TestService = service,
  ) {}

  /** A database with tables on its first branch, `main`. */
  static async create(
    service: TestService,
    database: string,
    tables: Readonly<Record<string, readonly Column[]>>,
  ): Promise<TestBranches> {
    await createTables(service, database, tables)
    return new TestBranches(service, database)
  }

  /** Returns the same branches through another process. */
  through(via: TestService): TestBranches {
    return new TestBranches(this.service, this.database, via)
  }

  call(
    branch: string,
    method: string,
    path: string,
    body?: unknown,
    options: CallOptions = {},
  ): Promise<Answer> {
    const call = branchCall(this.service, this.database, { branch, via: this.via })
    return call(method, path, { ...options, ...(body === undefined ? {} : { body }) })
  }

  async fork(name: string, from = 'main', fields: Values = {}): Promise<void> {
    expectOk(await this.call(name, 'PUT', '', { from, ...fields }))
  }

  async delete(branch: string): Promise<void> {
    expectOk(await this.call(branch, 'DELETE', ''))
  }

  async edit(branch: string, ...operations: readonly SchemaOperation[]): Promise<void> {
    const body = { edits: { operations }, allowDataLoss: true }
    expectOk(await this.call(branch, 'POST', '/schema/apply', body))
  }

  /** Creates or replaces a record. */
  async put(branch: string, table: string, id: string, values: Values): Promise<void> {
    expectOk(await this.call(branch, 'PUT', `/tables/${table}/data/${id}`, values))
  }

  async patch(branch: string, table: string, id: string, values: Values): Promise<void> {
    expectOk(await this.call(branch, 'PATCH', `/tables/${table}/data/${id}`, values))
  }

  async remove(branch: string, table: string, ...ids: readonly string[]): Promise<void> {
    for (const id of ids) expectOk(await this.call(branch, 'DELETE', `/tables/${table}/data/${id}`))
  }

  async bulk(branch: string, table: string, records: readonly Values[]): Promise<void> {
    expectOk(await this.call(branch, 'POST', `/tables/${table}/bulk`, { records }))
  }

  /** Returns a record with its metadata; undefined if there is none. */
  async record(branch: string, table: string, id: string) {
    const answer = await this.call(branch, 'GET', `/tables/${table}/data/${id}`)
    return answer.status === 404 ? undefined : expectOk(answer).body
  }

  /** Returns the columns of records by id, without those that do not exist. */
  async read(branch: string, table: string, ids: readonly string[]) {
    const operations = ids.map((id) => ({ get: { table, id, columns: ['*'] } }))
    const { body } = expectOk(await this.call(branch, 'POST', '/transaction', { operations }))
    const found: [string, unknown][] = body.results.flatMap(
      ({ columns: { id, service: _metadata, ...record } }: { columns: Record<string, unknown> }) =>
        id === undefined ? [] : [[id, record]],
    )
    return Object.fromEntries(found)
  }

  /** Tables with the names of their columns. */
  async schema(branch: string): Promise<Record<string, string[]>> {
    const { body } = expectOk(await this.call(branch, 'GET', ''))
    return Object.fromEntries(
      body.schema.tables.map((table: { name: string; columns: readonly Column[] }) => [
        table.name,
        table.columns.map((column) => column.name),
      ]),
    )
  }

  async diff(branch: string, query = '') {
    return expectOk(await this.call(branch, 'GET', `/diff${query}`)).body
  }

  merging(branch: string, body?: unknown): Promise<Answer> {
    return this.call(branch, 'POST', '/merge', body)
  }

  async merge(branch: string, body?: unknown) {
    return expectOk(await this.merging(branch, body)).body
  }

  pulling(branch: string, body?: unknown): Promise<Answer> {
    return this.call(branch, 'POST', '/pull', body)
  }

  async pull(branch: string, body?: unknown) {
    return expectOk(await this.pulling(branch, body)).body
  }

  async reset(branch: string, to?: string): Promise<void> {
    expectOk(await this.call(branch, 'POST', '/reset', to === undefined ? undefined : { to }))
  }
}
