import {
  BranchMetadataSchema,
  BranchRuleSchema,
  StartedFromSchema,
} from '@offshoot/contract/branches'
import { RepositorySchema } from '@offshoot/contract/databases'
import { LIMITS, type Limits } from '@offshoot/contract/limits'
import { BranchNameSchema, ColumnNameSchema, TableNameSchema } from '@offshoot/contract/names'
import {
  COLUMN_TYPES,
  ColumnDescriptionSchema,
  ColumnGenerateSchema,
  type ColumnType,
  ConstraintNameSchema,
  INT_BITS,
  LINK_ACTIONS,
  TableHistorySchema,
} from '@offshoot/contract/schema'
import { type Static, type TSchema, Type } from 'typebox'
import { Value } from 'typebox/value'
import { toCanonicalJson } from '../common/write-json.js'
import { expressionText, parseRowExpressions } from '../dialect/row-expression.js'
import { REPLACED_MAX } from '../domain/schemas/alter-column.js'
import {
  bindComputed,
  pathsOf,
  type StoredConstraint,
  storeConstraint,
  toPublicConstraint,
} from '../domain/schemas/store-constraint.js'
import type { Queryable } from '../postgres/database.js'
import { ident, type Sql, sql } from '../postgres/sql.js'
import { COLUMN_TYPE_ENTRIES, isFileType } from '../rows/columns/column-types.js'
import { conversionFault } from '../rows/columns/conversions.js'
import type { StoredColumn, StoredTable } from '../rows/columns/stored-schema.js'
import { MentionedContents } from '../rows/files.js'
import { DatabaseSchema } from '../rows/layout/database-schema.js'
import { isHeapOfDatabase } from './catalogue-of-database.js'
import { DamagedArchiveError } from './tar.js'

/*
 * The catalogue of an archive says where rows are and how they are read: statements are compiled from stored schemas,
 * and files are served by the hashes in rows. An archive comes from outside, so all of this is checked before anybody
 * reads it. What a service has written passes.
 */

/** Ids of tables and columns come from a sequence, which must never get near its end. */
export const OBJECT_ID_MAX = 2 ** 40

const Id = Type.Integer({ minimum: 1, maximum: OBJECT_ID_MAX })
const closed = { additionalProperties: false } as const

const StoredIdType = Type.Optional(Type.Enum(['int', 'uuid']))

const StoredBits = Type.Optional(Type.Enum([...INT_BITS]))

const Parts = Type.Array(Type.Union([Type.String(), Id]))
const PlaceIn = Type.Object({ placeIn: Id, value: Type.Optional(Type.String()) }, closed)
const NamedValue = Type.Object({ column: Id, value: Type.String() }, closed)
const ExpressionSchema = Type.Object(
  {
    text: Parts,
    sql: Type.Array(Type.Union([Type.String(), Id, PlaceIn])),
    values: Type.Optional(Type.Array(NamedValue)),
  },
  closed,
)

const StoredColumnSchema = Type.Object(
  {
    id: Id,
    name: ColumnNameSchema,
    type: Type.Enum([...COLUMN_TYPES]),
    link: Type.Optional(
      Type.Object({ tableId: Id, idType: StoredIdType, idBits: StoredBits }, closed),
    ),
    onDelete: Type.Optional(Type.Enum(LINK_ACTIONS.filter((action) => action !== 'none'))),
    rule: Type.Optional(ConstraintNameSchema),
    vector: Type.Optional(
      Type.Object(
        { dimension: Type.Integer({ minimum: 1, maximum: LIMITS.vectorDimensionMax }) },
        closed,
      ),
    ),
    decimal: Type.Optional(
      Type.Object(
        {
          precision: Type.Integer({ minimum: 1, maximum: LIMITS.decimalPrecisionMax }),
          scale: Type.Integer({ minimum: 0, maximum: LIMITS.decimalPrecisionMax }),
        },
        closed,
      ),
    ),
    bits: StoredBits,
    maxLength: Type.Optional(Type.Integer({ minimum: 1, maximum: LIMITS.recordBytesMax })),
    withoutZone: Type.Optional(Type.Literal(true)),
    enum: Type.Optional(
      Type.Object(
        {
          values: Type.Array(Type.String({ minLength: 1, maxLength: LIMITS.enumValueLengthMax }), {
            minItems: 1,
            maxItems: LIMITS.enumValuesMax,
          }),
          type: Type.Optional(Type.String({ minLength: 1, maxLength: 63 })),
        },
        closed,
      ),
    ),
    defaultPublicAccess: Type.Optional(Type.Boolean()),
    notNull: Type.Optional(Type.Boolean()),
    defaultValue: Type.Optional(Type.String()),
    unique: Type.Optional(Type.Boolean()),
    index: Type.Optional(Type.Boolean()),
    replaced: Type.Optional(Type.Array(Id, { maxItems: REPLACED_MAX })),
    columns: Type.Optional(Type.Array(Type.Unknown())),
    generate: Type.Optional(ColumnGenerateSchema),
    computed: Type.Optional(ExpressionSchema),
    description: Type.Optional(ColumnDescriptionSchema),
    fill: Type.Optional(Type.String()),
    from: Type.Optional(Type.Unknown()),
  },
  closed,
)

const StoredConstraintSchema = Type.Object(
  {
    id: Id,
    name: ConstraintNameSchema,
    unique: Type.Optional(Type.Array(Id, { minItems: 1 })),
    index: Type.Optional(Type.Literal(true)),
    check: Type.Optional(ExpressionSchema),
  },
  closed,
)

const StoredSchemaSchema = Type.Object(
  {
    tables: Type.Array(
      Type.Object(
        {
          id: Id,
          name: TableNameSchema,
          idType: StoredIdType,
          idBits: StoredBits,
          hiddenId: Type.Optional(Type.Literal(true)),
          columns: Type.Array(Type.Unknown()),
          searchIndex: Type.Optional(Type.Boolean()),
          constraints: Type.Optional(Type.Array(StoredConstraintSchema)),
          history: Type.Optional(TableHistorySchema),
        },
        closed,
      ),
    ),
    tablesOrder: Type.Optional(Type.Array(Type.String())),
    removedIds: Type.Optional(Type.Array(Id)),
    sameIds: Type.Optional(Type.Array(Type.Array(Id, { minItems: 2 }))),
  },
  closed,
)

/** Limits for the schemas of a database that is restored beside others. */
export type SchemaLimits = Pick<
  Limits,
  'tablesPerBranchMax' | 'columnsPerTableMax' | 'columnsPerBranchMax' | 'objectDepthMax'
>

const damaged = (what: string): DamagedArchiveError =>
  new DamagedArchiveError(`${what} is not one that offshoot stores`)

function requireShape<Schema extends TSchema>(
  schema: Schema,
  value: unknown,
  what: string,
): Static<Schema> {
  if (Value.Check(schema, value)) return value as Static<Schema>
  throw damaged(what)
}

/** Nesting of columns, in an instance with a limit of its own. */
const DEPTH_MAX = 100

/** Schemas that are read together. They are large, if they have many tables. */
const SCHEMAS_AT_ONCE = 100

/** Checks all stored schemas in a table. Returns the largest id of a table or column. */
export async function checkSchemas(
  database: Queryable,
  schemas: Sql,
  limits?: SchemaLimits,
): Promise<number> {
  let largest = 0
  for (let afterId: string | null = null; ; ) {
    const rows: { id: string; document: unknown }[] = await database.query(sql`
      select id::text as id, document
      from ${schemas}
      where id > coalesce(${afterId}::bigint, -9223372036854775808)
      order by id
      limit ${SCHEMAS_AT_ONCE}`)
    for (const { id, document } of rows) {
      largest = Math.max(largest, await checkSchema(`schema [${id}]`, document, limits))
    }
    const last = rows.at(-1)
    if (last === undefined || rows.length < SCHEMAS_AT_ONCE) return largest
    afterId = last.id
  }
}

/** Checks a stored schema. Returns the largest id in it. */
async function checkSchema(
  what: string,
  document: unknown,
  limits?: SchemaLimits,
): Promise<number> {
  const { tables, removedIds = [], sameIds = [] } = requireShape(StoredSchemaSchema, document, what)
  const ids = new Set<number>()
  const add = (id: number) => {
    if (ids.has(id)) throw damaged(`${what}: the id [${id}], which it has twice,`)
    ids.add(id)
  }
  const origins: number[] = []
  const idBits = new Map(tables.map((table) => [table.id, table.idBits]))
  const objectDepthMax = limits?.objectDepthMax ?? DEPTH_MAX
  const addColumns = (columns: readonly unknown[], depth: number): number => {
    if (depth > objectDepthMax) throw damaged(`${what}: the nesting of columns`)
    return columns.reduce((count: number, column) => {
      const stored = requireShape(StoredColumnSchema, column, what)
      const { id, columns: nested = [] } = stored
      add(id)
      if (depth > 0 && stored.computed !== undefined) {
        throw damaged(`${what}: a computed column inside an object`)
      }
      origins.push(...checkOrigins(stored, what))
      if (!hasOwnDetails(stored, idBits)) throw damaged(`${what}: the size of a column`)
      const fault = conversionFault(stored as StoredColumn)
      if (fault !== undefined) throw damaged(`${what}: the change of a column`)
      return count + 1 + addColumns(nested, depth + 1)
    }, 0)
  }
  let total = 0
  for (const { id, name, idType, idBits, columns, constraints = [] } of tables) {
    add(id)
    if (idBits !== undefined && idType !== 'int') throw damaged(`${what}: the size of ids`)
    const count = addColumns(columns, 0)
    for (const column of columns as StoredColumn[]) {
      if (!(await isComputedAgain(column, columns as StoredColumn[]))) {
        throw damaged(`${what}: the computed column [${column.name}]`)
      }
    }
    for (const constraint of constraints) {
      add(constraint.id)
      const of = { name, columns: columns as StoredColumn[] }
      if (!(await isRebuilt(of, constraint as StoredConstraint))) {
        throw damaged(`${what}: the constraint [${constraint.name}]`)
      }
    }
    requireAtMost(`table [${name}]: columns`, count, limits?.columnsPerTableMax)
    total += count
  }
  requireAtMost('tables of a branch', tables.length, limits?.tablesPerBranchMax)
  requireAtMost('columns of a branch', total, limits?.columnsPerBranchMax)
  const same = sameIds.flat()
  if (new Set(same).size < same.length) throw damaged(`${what}: the list of ids that are the same`)
  return [...ids, ...origins, ...removedIds, ...same].reduce(
    (largest, id) => Math.max(largest, id),
    0,
  )
}

/** Returns whether a column has details of its own type only, and the size of the ids that it links to. */
function hasOwnDetails(
  { type, bits, maxLength, withoutZone, link }: Static<typeof StoredColumnSchema>,
  idBits: ReadonlyMap<number, number | undefined>,
): boolean {
  const isText = type === 'string' || type === 'text'
  return (
    (bits === undefined || type === 'int') &&
    (maxLength === undefined || isText) &&
    (withoutZone === undefined || type === 'datetime') &&
    (link === undefined || link.idBits === idBits.get(link.tableId))
  )
}

/** Checks the columns that a column was made of. Returns their ids. */
function checkOrigins(column: { readonly from?: unknown }, what: string): number[] {
  const ids: number[] = []
  for (let { from } = column; from !== undefined; ) {
    if (ids.length === DEPTH_MAX) throw damaged(`${what}: the changes of a column`)
    const origin = requireShape(StoredColumnSchema, from, what)
    ids.push(origin.id)
    from = origin.from
  }
  return ids
}

/**
 * Returns whether a constraint is what offshoot makes of its definition. The SQL of a check is a part of statements, so it
 * has to be the SQL that is written for the text of the check.
 */
async function isRebuilt(
  { name: table, columns }: Pick<StoredTable, 'name' | 'columns'>,
  constraint: StoredConstraint,
): Promise<boolean> {
  try {
    const definition = toPublicConstraint(constraint, columns)
    const expressions = await parseRowExpressions('check' in definition ? [definition.check] : [])
    const { id } = constraint
    return [columns, withLetters(columns)].some((each) => {
      const context = { id, table, columns: each, limits: LIMITS, expressions }
      return makes(constraint, () => storeConstraint(definition, context))
    })
  } catch {
    return false
  }
}

/** Earlier versions compared the values of enums as texts. So do expressions over a column that was a text then. */
function withLetters(columns: readonly StoredColumn[]): StoredColumn[] {
  return columns.map(({ enum: _, columns: nested, ...column }) => ({
    ...column,
    ...(nested && { columns: withLetters(nested) }),
  }))
}

function makes(stored: unknown, make: () => unknown): boolean {
  try {
    return toCanonicalJson(make()) === toCanonicalJson(stored)
  } catch {
    return false
  }
}

/** Does the same for the expression of a computed column. */
async function isComputedAgain(
  { id, type, computed }: StoredColumn,
  columns: readonly StoredColumn[],
): Promise<boolean> {
  if (computed === undefined) return true
  try {
    const text = expressionText(computed.text, pathsOf(columns))
    const expressions = await parseRowExpressions([text])
    const others = columns.filter((column) => column.id !== id)
    const isPossible = COLUMN_TYPE_ENTRIES[type].allows.computed === true
    return [others, withLetters(others)].some(
      (each) =>
        isPossible && makes(computed, () => bindComputed(text, { columns: each, expressions })),
    )
  } catch {
    return false
  }
}

function requireAtMost(what: string, count: number, max = Number.POSITIVE_INFINITY): void {
  if (count <= max) return
  throw new DamagedArchiveError(`${what}: it has ${count}, and this instance allows ${max}`)
}

/**
 * Checks the rows of the catalogue that belong to a database, after its schemas: what refers to what, and whether its
 * tables are there. `files` are the hashes of all contents of the archive.
 */
export async function checkDatabase(
  database: Queryable,
  databaseId: string,
  files: ReadonlySet<string>,
): Promise<void> {
  await checkSettings(database, databaseId)
  await checkBranches(database, databaseId)
  await checkHeaps(database, databaseId)
  await checkContents(database, databaseId, files)
}

const nullable = <Schema extends TSchema>(schema: Schema) => Type.Union([schema, Type.Null()])

async function checkSettings(database: Queryable, databaseId: string): Promise<void> {
  const [own] = await database.query<{ color: unknown; repository: unknown }>(sql`
    select color, repository from offshoot.databases where id = ${databaseId}`)
  requireShape(nullable(Type.String({ maxLength: LIMITS.labelLengthMax })), own?.color, 'the color')
  requireShape(nullable(RepositorySchema), own?.repository, 'the repository')
  const rules = await database.query<{ pattern: string; settings: object }>(sql`
    select pattern, settings from offshoot.branch_rules where database_id = ${databaseId}`)
  if (rules.length > LIMITS.branchRulesMax) throw damaged('the number of rules for branches')
  for (const { pattern, settings } of rules) {
    const what = `the rule for branches [${pattern}]`
    requireShape(Type.Object({}), settings, what)
    requireShape(BranchRuleSchema, { ...settings, pattern }, what)
  }
}

interface BranchRow {
  readonly id: string
  readonly name: string
  readonly parentId: string | null
  readonly isLive: boolean
  readonly metadata: unknown
  readonly startedFrom: unknown
}

async function checkBranches(database: Queryable, databaseId: string): Promise<void> {
  const rows = await database.query<BranchRow & Record<string, unknown>>(sql`
    select id, name, parent_id as "parentId", deleted_at is null as "isLive", metadata,
      started_from as "startedFrom"
    from offshoot.branches
    where database_id = ${databaseId}`)
  for (const { id, name, isLive, metadata, startedFrom } of rows) {
    if (isLive) requireShape(BranchNameSchema, name, `the name of branch [${id}]`)
    requireShape(BranchMetadataSchema, metadata, `the metadata of branch [${id}]`)
    requireShape(nullable(StartedFromSchema), startedFrom, `the source of branch [${id}]`)
  }
  requireAncestors(new Map(rows.map(({ id, parentId }) => [id, parentId])))
}

/** Refuses branches that inherit from themselves, or from another database. PostgreSQL would follow a circle for ever. */
function requireAncestors(parents: ReadonlyMap<string, string | null>): void {
  const checked = new Set<string>()
  for (const id of parents.keys()) {
    const path = new Set<string>()
    for (let at: string | null = id; at !== null && !checked.has(at); ) {
      const parentId: string | null | undefined = parents.get(at)
      if (parentId === undefined || path.has(at)) throw damaged(`what branch [${id}] inherits from`)
      path.add(at)
      at = parentId
    }
    for (const passed of path) checked.add(passed)
  }
}

const KINDS: readonly string[] = ['heap', 'layer', 'gone']

interface HeapRow {
  readonly id: string
  readonly kind: string
  readonly columnIds: readonly string[]
  readonly fileColumnIds: readonly string[]
  readonly columnEpochs: unknown
}

const ColumnEpochsSchema = nullable(
  Type.Record(Type.String(), Type.Integer({ minimum: 0, maximum: 2 ** 31 - 1 })),
)

/** Checks that heaps have the columns that the catalogue says, with the types that schemas say. */
async function checkHeaps(database: Queryable, databaseId: string): Promise<void> {
  const heaps = await database.query<HeapRow & Record<string, unknown>>(sql`
    select id::text as id, kind, column_ids::text[] as "columnIds",
      file_column_ids::text[] as "fileColumnIds", column_epochs as "columnEpochs"
    from offshoot.heaps
    where database_id = ${databaseId}`)
  const types = await findColumnTypes(database, databaseId)
  const tables = await findTableColumns(database, databaseId)
  for (const { id, kind, columnIds, fileColumnIds, columnEpochs } of heaps) {
    const what = `the table of rows [${id}]`
    requireShape(ColumnEpochsSchema, columnEpochs, what)
    if (!KINDS.includes(kind)) throw damaged(what)
    const isOfFiles = new Set(fileColumnIds)
    for (const columnId of columnIds) {
      const type = types.get(columnId)
      // A column that no branch has any more keeps its values. Nothing reads them, except for the contents of files.
      if (type !== undefined && isOfFiles.has(columnId) !== isFileType(type)) throw damaged(what)
      isOfFiles.delete(columnId)
    }
    if (isOfFiles.size > 0) throw damaged(what)
    if (kind === 'gone') continue
    for (const name of kind === 'heap' ? [`heap_${id}`, `past_${id}`] : [`heap_${id}`]) {
      const columns = tables.get(name)
      if (columns === undefined) throw new DamagedArchiveError('a table of rows is missing')
      for (const columnId of columnIds) {
        const found = columns.get(`c${columnId}`)
        const expected = fileColumnIds.includes(columnId) ? 'file' : types.get(columnId)
        const isRight =
          found !== undefined && (expected === undefined || found === printedType(expected))
        if (!isRight) throw damaged(what)
      }
    }
  }
}

/** Returns the type of a column as PostgreSQL prints it. */
function printedType(type: ColumnType): string {
  const [name = ''] = COLUMN_TYPE_ENTRIES[type].sqlType.split(' collate ')
  if (name === 'timestamptz') return 'timestamp with time zone'
  return name === 'time' ? 'time without time zone' : name
}

/** Returns the types of all columns in the schemas of a database, and of those that they were made of, by id. */
async function findColumnTypes(
  database: Queryable,
  databaseId: string,
): Promise<Map<string, ColumnType>> {
  const rows = await database.query<{ id: string; type: ColumnType }>(sql`
    select distinct (c -> 'id')::bigint::text as id, c ->> 'type' as type
    from offshoot.schemas s,
      lateral (
        select jsonb_path_query(s.document, '$.**.columns[*]')
        union all
        select jsonb_path_query(s.document, '$.**.from')
      ) as columns (c)
    where s.database_id = ${databaseId}`)
  const types = new Map(rows.map(({ id, type }) => [id, type]))
  if (types.size < rows.length) throw damaged('a column with two types')
  return types
}

/** Returns the columns of the tables in the schema of a database, with their types as PostgreSQL prints them. */
async function findTableColumns(
  database: Queryable,
  databaseId: string,
): Promise<Map<string, Map<string, string>>> {
  const rows = await database.query<{ table: string; column: string; type: string }>(sql`
    select t.relname as table, a.attname as column, format_type(a.atttypid, a.atttypmod) as type
    from pg_class t
    join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
    where t.relnamespace = to_regnamespace(${ident(new DatabaseSchema(databaseId).name).text}) and t.relkind = 'r'`)
  const tables = new Map<string, Map<string, string>>()
  for (const { table, column, type } of rows) {
    const columns = tables.get(table) ?? new Map<string, string>()
    tables.set(table, columns.set(column, type))
  }
  return tables
}

/**
 * Refuses rows that mention a content which is not in the archive. It may be one of somebody else: the hash of a content
 * is all that it takes to read it.
 */
async function checkContents(
  database: Queryable,
  databaseId: string,
  files: ReadonlySet<string>,
): Promise<void> {
  const mentioned = await new MentionedContents(database).list(
    isHeapOfDatabase(sql`${databaseId}::bigint`),
  )
  for (const sha256 of mentioned) {
    if (!files.has(sha256)) {
      throw new DamagedArchiveError('a row mentions the content of a file that is not in it')
    }
  }
}
