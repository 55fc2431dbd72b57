import type {
  IndexInfo,
  RecordHistory,
  RecordHistoryOptions,
  SearchIndexInfo,
  TableIndexes,
} from './api.js'
import { FileHandle } from './files.js'
import type { Filter, Sort } from './filter.js'
import { type CallOptions, type LongCallOptions, segment, type Transport } from './http.js'
import {
  type InsertManyOptions,
  type InsertManyResult,
  insertMany,
  type RecordSource,
} from './insert-many.js'
import type {
  BaseRecord,
  ColumnName,
  FullRecord,
  InsertRecord,
  TableName,
  UpdateFields,
} from './schema.js'
import { pathsOf, type Selected, type Selection } from './selection.js'

export interface ReadOptions<Schema, Table extends keyof Schema, Chosen> extends CallOptions {
  /** The columns to return. Default: all columns, with links as ids. */
  readonly columns?: Chosen & Selection<Schema, Table>
}

export interface WriteOptions extends CallOptions {
  /** The write is refused with `version_conflict` unless the record has this version. */
  readonly ifVersion?: number
}

/** The records that meet a filter, or all records of a table. */
export type RecordSet<Schema, Table extends keyof Schema> =
  | { readonly filter: Filter<Schema, Table>; readonly all?: never }
  | { readonly all: true; readonly filter?: never }

export interface SetOptions extends LongCallOptions {
  /** Changes nothing. The answer or the error is that of the same call without it. */
  readonly dryRun?: boolean
}

/** The numbers of records that a deletion by a filter has deleted or changed. */
export interface DeletedSet {
  /** The number of deleted records that meet the filter. */
  readonly deleted: number
  /** The records that links to the deleted ones have deleted or changed, by table. */
  readonly linked?: Readonly<
    Record<
      string,
      {
        /** The number of records that were deleted with them. */
        readonly deleted?: number
        /** The number of links that were set to null. */
        readonly cleared?: number
      }
    >
  >
}

export interface QueryOptions<Schema, Table extends keyof Schema, Chosen>
  extends ReadOptions<Schema, Table, Chosen> {
  readonly filter?: Filter<Schema, Table>
  readonly sort?: Sort<Schema, Table>
  /** Records per page. Default: 20. */
  readonly size?: number
  /** Replaces `JSON.parse`, which rounds numbers of many digits in columns of the type `json`. */
  readonly parse?: (text: string) => unknown
}

/** A page of a query, from which all others can be reached. */
export interface Page<Row> {
  readonly records: readonly Row[]
  /** Whether there are more records after this page. */
  readonly hasMore: boolean
  /** A text from which another process can continue, with `page(cursor)`. */
  readonly cursor: string
  /**
   * Reads the next page. Returns undefined if there is none.
   *
   * @example
   * ```ts
   * const page = await client.table('users').query().page()
   * const next = await page.next()
   * ```
   */
  next(): Promise<Page<Row> | undefined>
}

/** A query. It is sent when it is awaited, iterated or asked for a page. */
export interface Query<Row> extends AsyncIterable<Row> {
  /**
   * Reads one page; with a cursor, the page after it.
   *
   * @example
   * ```ts
   * const users = client.table('users').query({ sort: { email: 'asc' }, size: 50 })
   * const first = await users.page()
   * const second = await users.page(first.cursor)
   * ```
   */
  page(cursor?: string): Promise<Page<Row>>
  /**
   * Iterates over all pages.
   *
   * @example
   * ```ts
   * for await (const { records } of client.table('users').query({ size: 100 }).pages()) {
   *   console.log(records.length)
   * }
   * ```
   */
  pages(): AsyncIterableIterator<Page<Row>>
  /**
   * Reads all records.
   *
   * @example
   * ```ts
   * const everyone = await client.table('users').query().all()
   * ```
   */
  all(): Promise<Row[]>
  /**
   * Reads the first record.
   *
   * @example
   * ```ts
   * const newest = await client.table('users').query({ sort: { visits: 'desc' } }).first()
   * ```
   */
  first(): Promise<Row | undefined>
}

interface QueryAnswer<Row> {
  readonly records: Row[]
  readonly meta: { readonly page: { readonly cursor: string; readonly more: boolean } }
}

/** Records per request when all records are read. */
const ALL_PAGE_SIZE = 200

/** Records of one request. */
const UPSERTED_RECORDS_MAX = 10_000

/** What an upsert did with one record. */
export type UpsertResult =
  | { readonly id: string; readonly outcome: 'inserted' | 'updated' | 'unchanged' }
  | {
      /** The id of the record, if it had one. */
      readonly id?: string
      readonly outcome: 'failed'
      readonly error: {
        readonly message: string
        readonly code?: 'unique_violation' | 'not_null_violation'
        readonly table?: string
        readonly column?: string
      }
    }

/** A table of a branch. */
export class Table<Schema, Name extends TableName<Schema>> {
  readonly name: Name
  readonly #transport: Transport
  readonly #path: string

  constructor(transport: Transport, branchPath: string, name: Name) {
    this.name = name
    this.#transport = transport
    this.#path = `${branchPath}/tables/${segment(name)}`
  }

  /**
   * Creates a record, and refuses an id that exists. Returns its id and metadata, or the chosen columns.
   *
   * @example
   * ```ts
   * const { id } = await client.table('users').create({ email: 'ada@example.com' })
   * ```
   */
  create<const Chosen extends Selection<Schema, Name> | readonly [] = readonly []>(
    record: InsertRecord<Schema, Name>,
    options: ReadOptions<Schema, Name, Chosen> = {},
  ): Promise<Selected<Schema, Name, Chosen>> {
    const { columns, signal } = options
    return this.#transport.json({
      method: 'POST',
      path: `${this.#path}/data`,
      query: { columns: columnList(columns) },
      json: record,
      isOnce: true,
      signal,
    })
  }

  /**
   * Reads a record. Returns undefined if it does not exist.
   *
   * @example
   * ```ts
   * const user = await client.table('users').read('ada', { columns: { email: true, team: { name: true } } })
   * ```
   */
  async read<const Chosen extends Selection<Schema, Name> | undefined = undefined>(
    id: string,
    options: ReadOptions<Schema, Name, Chosen> = {},
  ): Promise<Selected<Schema, Name, Chosen> | undefined> {
    const { columns, signal } = options
    return this.#unlessMissing(
      this.#transport.json<Selected<Schema, Name, Chosen>>({
        method: 'GET',
        path: this.#record(id),
        query: { columns: columnList(columns) },
        isRead: true,
        signal,
      }),
    )
  }

  /**
   * Changes columns of a record. Throws `record_not_found` if it does not exist.
   *
   * @example
   * ```ts
   * await client.table('users').update('ada', { name: 'Ada', visits: { $increment: 1 } })
   * ```
   */
  update(
    id: string,
    fields: UpdateFields<Schema, Name>,
    options: WriteOptions = {},
  ): Promise<BaseRecord> {
    return this.#write('PATCH', id, fields, options)
  }

  /**
   * Replaces a record as a whole, or creates it. Columns that are left out become empty.
   *
   * @example
   * ```ts
   * await client.table('users').replace('ada', { email: 'ada@example.com', name: 'Ada' })
   * ```
   */
  replace(
    id: string,
    record: InsertRecord<Schema, Name>,
    options: WriteOptions = {},
  ): Promise<BaseRecord> {
    return this.#write('PUT', id, record, options)
  }

  /**
   * Changes columns of a record, or creates it.
   *
   * @example
   * ```ts
   * await client.table('users').upsert('grace', { email: 'grace@example.com' })
   * ```
   */
  upsert(
    id: string,
    record: InsertRecord<Schema, Name>,
    options: WriteOptions = {},
  ): Promise<BaseRecord> {
    return this.#write('POST', id, record, options)
  }

  /**
   * Deletes a record. Returns whether it existed.
   *
   * @example
   * ```ts
   * const existed = await client.table('users').delete('ada')
   * ```
   */
  async delete(id: string, options: CallOptions = {}): Promise<boolean> {
    const deleted = await this.#unlessMissing(
      this.#transport
        .send({ method: 'DELETE', path: this.#record(id), isOnce: true, signal: options.signal })
        .then(() => true),
    )
    return deleted ?? false
  }

  /**
   * Reads the versions of a record, newest first, if the table keeps them. Otherwise `states` has the record at the
   * checkpoints of the branch and on other branches.
   *
   * @example
   * ```ts
   * const { versions } = await client.table('users').history('ada', { size: 50 })
   * for (const { at, operation, email, changes } of versions) console.log(at, operation, email, changes)
   * ```
   */
  history(
    id: string,
    options: RecordHistoryOptions & CallOptions = {},
  ): Promise<RecordHistory<FullRecord<Schema, Name>>> {
    const { size, cursor, signal } = options
    return this.#transport.json({
      method: 'GET',
      path: `${this.#record(id)}/history`,
      query: { size, cursor },
      isRead: true,
      signal,
    })
  }

  /**
   * Gives a record the values of one of its versions. It is an ordinary update, which makes a new version.
   *
   * @example
   * ```ts
   * const { versions } = await client.table('users').history('ada')
   * const first = versions.at(-1)
   * if (first?.record) await client.table('users').restoreVersion('ada', first.version)
   * ```
   */
  restoreVersion(id: string, version: string, options: CallOptions = {}): Promise<BaseRecord> {
    return this.#transport.json({
      method: 'POST',
      path: `${this.#record(id)}/history/${segment(version)}/restore`,
      isOnce: true,
      signal: options.signal,
    })
  }

  /**
   * Changes columns of all records that meet a filter, or of all records with `{ all: true }`: of all of them or none.
   * Returns their number. With `dryRun`, nothing is changed.
   *
   * @example
   * ```ts
   * const { updated } = await client.table('users').updateMany(
   *   { filter: { age: { $lt: 18 } } },
   *   { visits: { $increment: 1 } },
   * )
   * ```
   */
  updateMany(
    records: RecordSet<Schema, Name>,
    fields: UpdateFields<Schema, Name>,
    options: SetOptions = {},
  ): Promise<{ readonly updated: number }> {
    return this.#changeSet('PATCH', { ...records, set: fields }, options)
  }

  /**
   * Deletes all records that meet a filter, or all records with `{ all: true }`: all of them or none. Returns their
   * number, and what that causes in tables with links to them. With `dryRun`, nothing is deleted.
   *
   * @example
   * ```ts
   * const old = { filter: { visits: 0 } }
   * const { deleted } = await client.table('users').deleteMany(old, { dryRun: true })
   * if (deleted < 1000) await client.table('users').deleteMany(old)
   * ```
   */
  deleteMany(records: RecordSet<Schema, Name>, options: SetOptions = {}): Promise<DeletedSet> {
    return this.#changeSet('DELETE', records, options)
  }

  /**
   * Finds records. Nothing is sent until the query is used.
   *
   * @example
   * ```ts
   * const adults = client.table('users').query({ filter: { age: { $ge: 18 } }, sort: { name: 'asc' } })
   * for await (const user of adults) console.log(user.name)
   * const page = await adults.page()
   * const everyone = await adults.all()
   * ```
   */
  query<const Chosen extends Selection<Schema, Name> | undefined = undefined>(
    options: QueryOptions<Schema, Name, Chosen> = {},
  ): Query<Selected<Schema, Name, Chosen>> {
    type Row = Selected<Schema, Name, Chosen>
    const { filter, sort, columns, size, signal, parse } = options
    const question = { filter, sort, columns: pathsOf(columns) }
    const ask = (body: object) =>
      this.#transport.json<QueryAnswer<Row>>(
        {
          method: 'POST',
          path: `${this.#path}/query`,
          json: body,
          isRead: true,
          signal,
        },
        parse,
      )
    const pageOf = (
      { records, meta }: QueryAnswer<Row>,
      pageSize: number | undefined,
    ): Page<Row> => ({
      records,
      hasMore: meta.page.more,
      cursor: meta.page.cursor,
      next: async () =>
        meta.page.more
          ? pageOf(await ask({ page: { after: meta.page.cursor, size: pageSize } }), pageSize)
          : undefined,
    })
    const readPage = async (pageSize = size, cursor?: string) =>
      pageOf(
        cursor === undefined
          ? await ask({ ...question, page: { size: pageSize } })
          : await ask({ page: { after: cursor, size: pageSize } }),
        pageSize,
      )
    async function* pages(pageSize = size) {
      let page: Page<Row> | undefined = await readPage(pageSize)
      while (page !== undefined) {
        yield page
        page = await page.next()
      }
    }
    async function* records() {
      for await (const page of pages(size ?? ALL_PAGE_SIZE)) yield* page.records
    }
    return {
      page: (cursor) => readPage(size, cursor),
      pages,
      all: async () => {
        const all: Row[] = []
        for await (const page of pages(size ?? ALL_PAGE_SIZE)) all.push(...page.records)
        return all
      },
      first: async () => (await readPage(1)).records[0],
      [Symbol.asyncIterator]: records,
    }
  }

  /**
   * Groups records and summarises each group.
   *
   * @example
   * ```ts
   * const { summaries } = await client.table('users').summarize({
   *   columns: ['team.name'],
   *   summaries: { people: { count: '*' } },
   * })
   * ```
   */
  summarize(
    request: {
      readonly columns?: readonly string[]
      readonly summaries?: Readonly<Record<string, Summary<ColumnName<Schema, Name>>>>
      readonly filter?: Filter<Schema, Name>
      readonly summariesFilter?: unknown
      readonly sort?: unknown
      readonly size?: number
    },
    options: CallOptions = {},
  ): Promise<{ readonly summaries: readonly Readonly<Record<string, unknown>>[] }> {
    const { size, ...rest } = request
    return this.#ask('summarize', { ...rest, ...(size && { page: { size } }) }, options)
  }

  /**
   * Computes several aggregations over the same records.
   *
   * @example
   * ```ts
   * const { aggs } = await client.table('users').aggregate({
   *   filter: { age: { $ge: 18 } },
   *   aggs: { people: { count: '*' }, oldest: { max: { column: 'age' } } },
   * })
   * ```
   */
  aggregate(
    request: {
      readonly filter?: Filter<Schema, Name>
      readonly aggs: Readonly<Record<string, unknown>>
    },
    options: CallOptions = {},
  ): Promise<{ readonly aggs: Readonly<Record<string, unknown>> }> {
    return this.#ask('aggregate', request, options)
  }

  /**
   * Counts records.
   *
   * @example
   * ```ts
   * const adults = await client.table('users').count({ age: { $ge: 18 } })
   * ```
   */
  async count(filter?: Filter<Schema, Name>, options: CallOptions = {}): Promise<number> {
    const { aggs } = await this.aggregate(
      { ...(filter === undefined ? {} : { filter }), aggs: { count: { count: '*' } } },
      options,
    )
    return aggs.count as number
  }

  /**
   * Searches the texts of the table.
   *
   * @example
   * ```ts
   * const { records } = await client.table('users').search('ada', { fuzziness: 1, target: ['name'] })
   * ```
   */
  search(
    query: string,
    options: SearchOptions<Schema, Name> & CallOptions = {},
  ): Promise<{
    readonly records: readonly FullRecord<Schema, Name>[]
    readonly totalCount?: number
  }> {
    const { signal, ...rest } = options
    return this.#ask('search', { query, ...rest }, { ...(signal && { signal }) })
  }

  /**
   * Finds the records whose vector is most similar to the given one.
   *
   * @example
   * ```ts
   * const { records } = await client.table('users').searchVectors([0.1, 0.9], {
   *   column: 'taste',
   *   size: 5,
   * })
   * ```
   */
  searchVectors(
    vector: readonly number[],
    options: {
      readonly column: ColumnName<Schema, Name>
      readonly filter?: Filter<Schema, Name>
      readonly size?: number
      readonly similarityFunction?: 'cosineSimilarity' | 'l1' | 'euclidean'
    } & CallOptions,
  ): Promise<{ readonly records: readonly FullRecord<Schema, Name>[] }> {
    const { signal, ...rest } = options
    return this.#ask(
      'vectorSearch',
      { queryVector: vector, ...rest },
      { ...(signal && { signal }) },
    )
  }

  /**
   * Inserts many records, from a list or any iterable: all of them or none, however many there are. They are sent
   * while they are read. The error is an `InsertManyError`, which tells what is stored. After a lost connection, the
   * records are sent again if they are a list, or a function that returns an iterable.
   *
   * @example
   * ```ts
   * function* rows() {
   *   for (let n = 0; n < 20_000; n++) yield { email: `user${n}@example.com` }
   * }
   * const { inserted } = await client.table('users').insertMany(rows(), {
   *   onProgress: (progress) => console.log(progress.sent),
   * })
   * ```
   */
  insertMany(
    records: RecordSource<InsertRecord<Schema, Name>>,
    options: InsertManyOptions = {},
  ): Promise<InsertManyResult> {
    return insertMany(this.#transport, `${this.#path}/bulk`, { records, options })
  }

  /**
   * Inserts records, or changes the given columns of those that exist. They are found by their id, or by a unique
   * column. The results are in the order of the records: one that is refused does not affect the others. More than
   * 10,000 records are sent in parts, each of which is a transaction.
   *
   * @example
   * ```ts
   * const { results } = await client.table('users').upsertMany(
   *   [{ email: 'ada@example.com', name: 'Ada' }, { email: 'eve@example.com', name: 'Eve' }],
   *   { by: 'email' },
   * )
   * for (const { id, outcome } of results) console.log(id, outcome)
   * ```
   */
  async upsertMany(
    records: readonly Partial<InsertRecord<Schema, Name>>[],
    options: CallOptions & {
      /** `id`, or the name of a unique column or of a unique constraint. */
      readonly by?: string
    } = {},
  ): Promise<{ readonly results: readonly UpsertResult[] }> {
    const { by, signal } = options
    const results: UpsertResult[] = []
    for (let start = 0; start < records.length; start += UPSERTED_RECORDS_MAX) {
      const part = await this.#transport.json<{ readonly results: readonly UpsertResult[] }>({
        method: 'POST',
        path: `${this.#path}/upsert`,
        json: { records: records.slice(start, start + UPSERTED_RECORDS_MAX), by },
        isOnce: true,
        signal,
      })
      for (const result of part.results) results.push(result)
    }
    return { results }
  }

  /**
   * A file of a record. The third argument is the id of a file in a list.
   *
   * @example
   * ```ts
   * const photo = client.table('users').file('ada', 'photo')
   * await photo.upload(new Blob(['...'], { type: 'image/png' }))
   * const content = await photo.download()
   * ```
   */
  file(id: string, column: ColumnName<Schema, Name>, fileId?: string): FileHandle {
    const base = `${this.#record(id)}/column/${segment(column)}/file`
    // The service gives an id to a file that is uploaded to a list without one.
    const item = fileId === undefined ? '' : fileId === '' ? '/' : `/${segment(fileId)}`
    return new FileHandle(this.#transport, base + item)
  }

  /**
   * Lists the indexes of columns, and the search index if there is one.
   *
   * @example
   * ```ts
   * const { indexes, searchIndex } = await client.table('users').indexes()
   * for (const { column, state } of indexes) console.log(column, state)
   * console.log(searchIndex?.state)
   * ```
   */
  indexes(options: CallOptions = {}): Promise<TableIndexes> {
    return this.#transport.json({
      method: 'GET',
      path: `${this.#path}/indexes`,
      isRead: true,
      signal: options.signal,
    })
  }

  /**
   * Creates the index of a column. Repeating it changes nothing, unless the index failed.
   *
   * @example
   * ```ts
   * const { state } = await client.table('users').createIndex('age')
   * ```
   */
  createIndex(column: string, options: CallOptions = {}): Promise<IndexInfo> {
    return this.#transport.json({
      method: 'PUT',
      path: `${this.#path}/columns/${segment(column)}/index`,
      signal: options.signal,
    })
  }

  /**
   * Removes the index of a column.
   *
   * @example
   * ```ts
   * await client.table('users').createIndex('age')
   * await client.table('users').deleteIndex('age')
   * ```
   */
  async deleteIndex(column: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send({
      method: 'DELETE',
      path: `${this.#path}/columns/${segment(column)}/index`,
      signal: options.signal,
    })
  }

  /**
   * Creates an index of all words of the table.
   *
   * @example
   * ```ts
   * const { columns } = await client.table('users').createSearchIndex()
   * ```
   */
  createSearchIndex(options: CallOptions = {}): Promise<SearchIndexInfo> {
    return this.#transport.json({
      method: 'PUT',
      path: `${this.#path}/searchIndex`,
      signal: options.signal,
    })
  }

  /**
   * Removes the search index.
   *
   * @example
   * ```ts
   * await client.table('users').createSearchIndex()
   * await client.table('users').deleteSearchIndex()
   * ```
   */
  async deleteSearchIndex(options: CallOptions = {}): Promise<void> {
    await this.#transport.send({
      method: 'DELETE',
      path: `${this.#path}/searchIndex`,
      signal: options.signal,
    })
  }

  #record(id: string): string {
    return `${this.#path}/data/${segment(id)}`
  }

  #write(
    method: 'PUT' | 'PATCH' | 'POST',
    id: string,
    record: object,
    { ifVersion, signal }: WriteOptions,
  ): Promise<BaseRecord> {
    return this.#transport.json({
      method,
      path: this.#record(id),
      query: { ifVersion },
      json: record,
      isOnce: true,
      signal,
    })
  }

  #changeSet<Answer>(
    method: 'PATCH' | 'DELETE',
    body: object,
    { dryRun, signal, onProgress }: SetOptions,
  ): Promise<Answer> {
    return this.#transport.json({
      method,
      path: `${this.#path}/data`,
      json: { ...body, dryRun },
      isOnce: true,
      signal,
      onProgress,
    })
  }

  #ask<Answer>(action: string, body: object, { signal }: CallOptions): Promise<Answer> {
    return this.#transport.json({
      method: 'POST',
      path: `${this.#path}/${action}`,
      json: body,
      isRead: true,
      signal,
    })
  }

  async #unlessMissing<Answer>(answer: Promise<Answer>): Promise<Answer | undefined> {
    try {
      return await answer
    } catch (error) {
      if ((error as { code?: string }).code === 'record_not_found') return undefined
      throw error
    }
  }
}

type Summary<Column extends string> =
  | { readonly count: '*' | Column }
  | { readonly min: Column | `${string}.${string}` }
  | { readonly max: Column | `${string}.${string}` }
  | { readonly sum: Column | `${string}.${string}` }
  | { readonly average: Column | `${string}.${string}` }

interface SearchOptions<Schema, Table extends keyof Schema> {
  readonly fuzziness?: 0 | 1 | 2
  readonly prefix?: 'phrase' | 'disabled'
  readonly target?: readonly (
    | (keyof Schema[Table] & string)
    | { readonly column: string; readonly weight?: number }
  )[]
  readonly filter?: Filter<Schema, Table>
  readonly highlight?: { readonly enabled?: boolean; readonly encodeHTML?: boolean }
  readonly page?: { readonly size?: number; readonly offset?: number }
}

function columnList(selection: unknown): string | undefined {
  const paths = pathsOf(selection)
  return paths === undefined || paths.length === 0 ? undefined : paths.join(',')
}
