import { type ColumnProblem, PROBLEM_RECORDS_MAX } from '@offshoot/contract/column-problems'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Progress } from '@offshoot/contract/operations'
import { columnIdsIn } from '../../dialect/row-expression.js'
import type { Queryable } from '../../postgres/database.js'
import { codeOf } from '../../postgres/failures.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, sql } from '../../postgres/sql.js'
import { physicalName } from '../columns/column-tree.js'
import {
  checkOf,
  checkOfComputed,
  isComputed,
  listNewRules,
  listStoredChecks,
  type StoredCheck,
} from '../columns/computed-columns.js'
import {
  isFilled,
  type StoredColumn,
  type StoredConstraint,
  type StoredTable,
} from '../columns/stored-schema.js'
import { compileTable } from '../columns/table-codec.js'
import { requestExtensionIndexes, requestIndexes } from '../indexes/heap-indexes.js'
import {
  type BranchRows,
  findLayout,
  type Heap,
  type HeapAddress,
  heapName,
  type Layout,
  layoutOf,
  ownHeap,
  pastName,
} from '../layout/layout.js'
import { heapColumns, selectVisible } from '../reading/arms.js'
import { type CheckedRows, rewrittenSql, selectChecked } from '../reading/checked-rows.js'
import { absorbAll } from './absorb.js'
import { listRules, requireCheckable, requireKept } from './check-rows.js'
import {
  type AlteredColumn,
  COUNTED,
  columnProblemsError,
  countOf,
  findColumnProblems,
  findIdProblems,
  narrowsIds,
  readsRecords,
  recordsIn,
} from './column-problems.js'
import {
  addHeapCheck,
  addHeapColumn,
  addHeapConstraint,
  alterHeapColumn,
  createHeaps,
  dropColumnRules,
  dropHeap,
  dropHeapConstraint,
} from './heap-ddl.js'
import { generatedValue, type MadeValue, type RowGenerator } from './made-values.js'
import { divideRows } from './row-parts.js'
import { continueSequence, startSequence, startsNumbering } from './start-sequence.js'
import { changeHistory, completeVersions, movingRows } from './versions.js'

const TOO_MANY_COLUMNS = '54011'

/** The effect of a schema edit on the storage of rows. Renames have none. */
export type SchemaChange =
  | { readonly kind: 'tableAdded'; readonly table: StoredTable }
  | { readonly kind: 'tableRemoved'; readonly table: StoredTable }
  | { readonly kind: 'historyChanged'; readonly table: StoredTable }
  /** Ids have another size. Links to the table change with it. */
  | { readonly kind: 'idsChanged'; readonly table: StoredTable; readonly before: StoredTable }
  | {
      readonly kind: 'columnAdded'
      readonly table: StoredTable
      readonly column: StoredColumn
      /** Existing rows get generated values. undefined: those of `fill` or of another column, or none. */
      readonly generating?: Generating
    }
  | { readonly kind: 'columnRemoved'; readonly table: StoredTable; readonly column: StoredColumn }
  | ({ readonly kind: 'columnAltered' } & AlteredColumn)
  /** The column exists before and after the change, at any depth. */
  | { readonly kind: 'indexChanged'; readonly table: StoredTable; readonly column: StoredColumn }
  | {
      readonly kind: 'constraintAdded' | 'constraintRemoved'
      readonly table: StoredTable
      readonly constraint: StoredConstraint
    }

/** Generated values of a new column, and the columns that its table has before it. */
interface Generating {
  readonly by: RowGenerator
  readonly columns: readonly StoredColumn[]
}

export interface SchemaChanges {
  readonly before: ReadonlyMap<number, StoredTable>
  readonly changes: readonly SchemaChange[]
  readonly limits: Limits
  /** The caller has checked that all rows keep the rules of new columns and constraints. */
  readonly areRowsChecked?: boolean
  /** A state of the branch that has passed `checkRows`. Only rows that have changed since are checked. */
  readonly since?: BranchRows | undefined
  /** Is told how far long changes have come. It throws if they are to stop. */
  readonly tell?: ((progress: Progress) => void) | undefined
}

/** Returns whether a change writes all rows of the branch to its own heap. */
export function writesAllRows(change: SchemaChange): boolean {
  if (change.kind === 'columnAdded') return change.generating !== undefined
  return change.kind === 'columnAltered' && change.using !== undefined
}

/** Returns whether all rows of a table have to be looked at before a change. */
export function readsAllRows(change: SchemaChange, limits: Limits): boolean {
  if (change.kind === 'constraintAdded') return true
  if (change.kind === 'columnAltered')
    return (
      startsNumbering(change) ||
      readsRecords(change, limits) ||
      listChecksMadeNew(change).length > 0
    )
  if (change.kind === 'idsChanged') return narrowsIds(change)
  return change.kind === 'columnAdded' && (isComputed(change.column) || lacksValues(change))
}

/** Whether existing rows would have no value of a new column that must have one. */
const lacksValues = ({ column, generating }: AddedColumn): boolean =>
  column.notNull === true && column.fill === undefined && generating === undefined

type AddedColumn = Extract<SchemaChange, { kind: 'columnAdded' }>

/** Throws if the rows of a state do not allow schema changes. Changes nothing but where sequences go on. */
export async function checkRows(
  transaction: Transaction,
  rows: BranchRows,
  options: SchemaChanges,
): Promise<void> {
  for (const change of inOrder(options.changes)) {
    await requireAllowed(transaction, { rows }, { ...options, change })
  }
  await continueAll(transaction, { rows }, options)
}

/**
 * Finds the records that do not allow changes of columns, new ones, constraints, or another size of ids. They are those that `applySchemaChanges`
 * would refuse. Throws if other than records do not allow them.
 */
export async function findChangeProblems(
  transaction: Queryable,
  rows: BranchRows,
  options: SchemaChanges,
): Promise<ColumnProblem[]> {
  const { limits, changes } = options
  const problems: ColumnProblem[] = []
  const rewritten: NonNullable<CheckedRows['rewritten']>[number][] = []
  const unfit = new Set<StoredTable['id']>()
  for (const change of inOrder(changes)) {
    const { table } = change
    const isRule = change.kind === 'constraintAdded' || isExpression(change)
    // Rules cannot be judged by values that columns cannot have.
    if (isRule && (unfit.has(table.id) || usesGenerated(change, changes))) continue
    const isJudged = isRule || change.kind === 'columnAltered' || change.kind === 'idsChanged'
    if (!isJudged && !(change.kind === 'columnAdded' && lacksValues(change))) continue
    try {
      await requireAllowed(transaction, { rows, rewritten }, { ...options, change })
    } catch (error) {
      const found = error instanceof AppError ? error.details?.problems : undefined
      if (found === undefined) throw error
      problems.push(...(found as ColumnProblem[]))
      if (!isRule) unfit.add(table.id)
    }
    if (change.kind === 'columnAltered' && change.using !== undefined) {
      const { column, using } = change
      rewritten.push({ table, column, using, limits })
    }
  }
  return problems
}

/** Returns whether a change gives a computed column its expression. */
const isExpression = (change: SchemaChange): boolean =>
  (change.kind === 'columnAdded' || change.kind === 'columnAltered') && isComputed(change.column)

/** The ids of the columns that a constraint or the expression of a column uses. */
function usedBy(change: SchemaChange): readonly number[] {
  if ('constraint' in change) {
    const { constraint } = change
    return 'unique' in constraint ? constraint.unique : columnIdsIn(constraint.check.sql)
  }
  const computed = 'column' in change ? change.column.computed : undefined
  return computed === undefined ? [] : columnIdsIn(computed.sql)
}

type ConstraintChange = Extract<SchemaChange, { readonly constraint: unknown }>

/** Returns whether a rule uses a new column whose values are generated with the change, and not known before. */
function usesGenerated(change: SchemaChange, changes: readonly SchemaChange[]): boolean {
  const ids = usedBy(change)
  return changes.some(
    (each) =>
      each.kind === 'columnAdded' && each.generating !== undefined && ids.includes(each.column.id),
  )
}

/** Lists the checks that a change of the list of an enum makes other ones: they compare the places of its values. */
function listChecksMadeNew({ table, before, column }: AlteredColumn): StoredCheck[] {
  if (before.enum === undefined || before.id !== column.id) return []
  const columns = table.columns.map((each) => (each.id === column.id ? before : each))
  const changed = new Set(listNewRules({ ...table, columns }, table))
  return listStoredChecks(table).filter(({ id }) => changed.has(id))
}

/** Returns the column whose change makes a constraint another one. */
function alteredBy(
  change: ConstraintChange,
  changes: readonly SchemaChange[],
): StoredColumn | undefined {
  const { table } = change
  const ids = usedBy(change)
  const altered = changes.find(
    (each) =>
      each.kind === 'columnAltered' &&
      each.table.id === table.id &&
      each.before.id !== each.column.id &&
      ids.includes(each.column.id),
  )
  return altered?.kind === 'columnAltered' ? altered.column : undefined
}

/** Lets sequences of changed columns go on after their values. A merge does so when its rows are written. */
async function continueAll(
  transaction: Transaction,
  checked: CheckedRows,
  { changes, limits, areRowsChecked }: SchemaChanges,
): Promise<void> {
  if (areRowsChecked) return
  for (const change of changes) {
    if (change.kind !== 'columnAltered' || !startsNumbering(change)) continue
    // An expression has made the values.
    const { rows, since } = checked
    const known = change.using === undefined ? since : undefined
    await continueSequence(transaction, { rows, since: known }, { ...change, limits })
  }
}

/** Throws if the checked rows do not allow a schema change. */
async function requireAllowed(
  transaction: Queryable,
  checked: CheckedRows,
  { change, changes, before, limits, areRowsChecked }: SchemaChanges & { change: SchemaChange },
): Promise<void> {
  if (areRowsChecked) return
  const { kind, table } = change
  const keep = (rule: Parameters<typeof requireKept>[2]['rule'], altered?: StoredColumn) =>
    requireKept(transaction, checked, { table, rule, limits, altered })
  if (kind === 'tableAdded') for (const rule of listRules(table)) await keep(rule)
  if (kind === 'constraintAdded') {
    const { constraint } = change
    const rule = 'unique' in constraint ? constraint : checkOf(constraint, table)
    if (rule !== undefined) await keep(rule, alteredBy(change, changes))
  }
  if (kind === 'idsChanged') {
    const problems = await findIdProblems(transaction, checked, { ...change, limits })
    if (problems.length > 0) throw columnProblemsError(problems)
  }
  if (kind !== 'columnAdded' && kind !== 'columnAltered') return
  const { column } = change
  if (isComputed(column)) {
    const altered = kind === 'columnAltered' ? column : undefined
    return keep(checkOfComputed(column, table), altered)
  }
  if (kind === 'columnAdded') {
    if (!lacksValues(change)) return
    const known = before.get(table.id) ?? table
    return requireNoRows(transaction, checked, { before: known, column, limits })
  }
  const { using } = change
  if (using !== undefined) {
    const read = { ...table, columns: using.columns }
    const rule = checkOfComputed({ ...column, computed: using.expression }, read)
    await requireCheckable(transaction, read, rule)
  }
  const problems = await findColumnProblems(transaction, checked, { ...change, limits })
  if (problems.length > 0) throw columnProblemsError(problems)
  for (const rule of listChecksMadeNew(change)) await keep(rule)
}

/** A computed column uses columns that may be added by the same edit, so it comes after them. */
function inOrder(changes: readonly SchemaChange[]): SchemaChange[] {
  const isComputing = (change: SchemaChange) =>
    (change.kind === 'columnAdded' || change.kind === 'columnAltered') && isComputed(change.column)
  return [...changes.filter((change) => !isComputing(change)), ...changes.filter(isComputing)]
}

/**
 * Divides the changes of a merge into those before its rows are written, and those after it. New keys come after it: rows
 * that the merge changes or deletes may break them.
 */
export function divideChanges(
  changes: readonly SchemaChange[],
): Record<'before' | 'after', SchemaChange[]> {
  const divided: Record<'before' | 'after', SchemaChange[]> = { before: [], after: [] }
  for (const change of changes) {
    if (change.kind === 'constraintAdded') divided.after.push(change)
    else if (!isKeyAdded(change)) divided.before.push(change)
    else {
      const { table, column } = change
      const { unique: _, ...before } = column
      const isStored = change.kind === 'columnAltered' && change.before.id === column.id
      if (!isStored) divided.before.push({ ...change, column: before })
      divided.after.push({ kind: 'columnAltered', table, before, column })
    }
  }
  return divided
}

/** Returns whether a change makes a column unique that rows of the target have values of. */
function isKeyAdded(
  change: SchemaChange,
): change is Extract<SchemaChange, { kind: 'columnAdded' | 'columnAltered' }> {
  if (change.kind === 'columnAdded') return change.column.unique === true && isFilled(change.column)
  if (change.kind !== 'columnAltered') return false
  const { before, column } = change
  return column.unique === true && (before.unique !== true || before.id !== column.id)
}

/** Applies schema changes to the heaps of a branch. Requires the exclusive gate. */
export async function applySchemaChanges(
  transaction: Transaction,
  rows: BranchRows,
  options: SchemaChanges,
): Promise<void> {
  let layout = layoutOf(rows)
  await absorbAll(transaction, layout)
  const rewritten = options.changes.filter(writesAllRows).map(({ table }) => table.id)
  // All rows of the branch are written to its own heaps.
  const missing = [...options.before.values()].filter(
    ({ id }) => rewritten.includes(id) && ownHeap(layout, id) === undefined,
  )
  if (missing.length > 0) {
    await createHeaps(transaction, { ...layout, tables: missing })
    layout = await findAgain(transaction, layout)
  }
  const added = options.changes.filter((change) => change.kind === 'tableAdded')
  const check = (change: SchemaChange) =>
    requireAllowed(transaction, { rows: layout, since: options.since }, { ...options, change })
  for (const change of added) await check(change)
  await createHeaps(transaction, { ...layout, tables: added.map(({ table }) => table) })
  for (const change of inOrder(options.changes)) {
    const heap = ownHeap(layout, change.table.id)
    switch (change.kind) {
      case 'tableAdded':
        break
      case 'tableRemoved':
        // Forks may still read the rows. The collector drops the heap when there are no forks left.
        if (heap !== undefined && !layout.hasForks) await dropHeap(transaction, heap)
        break
      case 'historyChanged':
        if (heap !== undefined) await changeHistory(transaction, heap, change.table)
        break
      case 'idsChanged':
        await check(change)
        break
      case 'columnAdded': {
        await check(change)
        if (heap === undefined) break
        const { table, column, generating } = change
        if (isComputed(column)) {
          await addHeapCheck(transaction, heap, checkOfComputed(column, table))
          break
        }
        await addColumn(transaction, heap, { table, column, tell: options.tell })
        if (generating !== undefined) {
          const { by, columns } = generating
          const made = generatedValue(by, { heap, table, column })
          const { limits, tell } = options
          const rewritten = { table, column, heap, columns, made, limits, tell }
          await rewriteRows(transaction, layout, rewritten)
          if (by === 'sequence') await startSequence(transaction, heap, { table, column })
          layout = await findAgain(transaction, layout)
        }
        break
      }
      case 'columnAltered': {
        const { table, before, column, using } = change
        await check(change)
        if (heap === undefined) break
        if (isComputed(column)) {
          await addHeapCheck(transaction, heap, checkOfComputed(column, table))
          break
        }
        if (before.id === column.id) {
          await alterHeapColumn(transaction, heap, change)
          for (const rule of listChecksMadeNew(change)) await addHeapCheck(transaction, heap, rule)
          break
        }
        await addColumn(transaction, heap, { table, column, tell: options.tell })
        if (using !== undefined) {
          const { columns } = using
          const columnSql = (id: number) => sql`h.${ident(physicalName({ id }))}`
          const made = { value: rewrittenSql({ column, using }, columnSql) }
          const { limits, tell } = options
          const rewritten = { table, column, heap, columns, made, limits, tell }
          await rewriteRows(transaction, layout, rewritten)
          layout = await findAgain(transaction, layout)
        }
        await dropColumnRules(transaction, heap, { column: before, hasForks: layout.hasForks })
        break
      }
      case 'columnRemoved':
        if (heap !== undefined) {
          const { column } = change
          if (isComputed(column)) await dropHeapConstraint(transaction, heap, column)
          await dropColumnRules(transaction, heap, { column, hasForks: layout.hasForks })
        }
        break
      case 'indexChanged':
        // Without a heap there is nothing to index yet. A heap created later has the index.
        if (heap !== undefined) {
          const { table, column } = change
          await requestIndexes(transaction, { ...heap, table, column })
        }
        break
      case 'constraintAdded':
        await check(change)
        if (heap !== undefined) await addHeapConstraint(transaction, heap, change)
        break
      case 'constraintRemoved':
        if (heap !== undefined) await dropHeapConstraint(transaction, heap, change.constraint)
        break
    }
  }
  await continueAll(transaction, { rows: layout, since: options.since }, options)
}

/** Finds the layout of a branch again, after its heaps have changed. */
async function findAgain(transaction: Queryable, { branchId }: Layout): Promise<Layout> {
  const layout = await findLayout(transaction, branchId)
  if (layout === undefined) throw new Error('a locked branch must exist')
  return layout
}

/**
 * Gives all rows of a branch another value of a column. Inherited rows are copied to the heap of the branch: an expression may
 * fail for rows that the branch does not see, and a generated value must be the same for each read, so reads cannot make
 * them. All rows belong to the present epoch then, so that a merge takes their values as changes. Versions and times stay,
 * because nobody has read the column yet.
 */
async function rewriteRows(
  transaction: Queryable,
  layout: Layout,
  {
    table,
    column,
    heap,
    columns,
    made,
    limits,
    tell,
  }: Pick<SchemaChanges, 'limits' | 'tell'> & {
    table: StoredTable
    column: StoredColumn
    heap: Heap
    /** The columns that the table has until then. */
    columns: readonly StoredColumn[]
    made: MadeValue
  },
): Promise<void> {
  const { stored } = compileTable({ ...table, columns }, { limits, jsonAsText: false })
  const names = [
    ...['id', 'version', 'created_at', 'updated_at'],
    ...stored.physical.map(({ physicalName: name }) => name),
  ].map(ident)
  const visible = selectVisible(layout, stored, { isInherited: true })
  await movingRows(transaction, table, async () => {
    await transaction.query(sql`
      insert into ${heapName(heap)} (${join(names, ', ')}, epoch)
      select ${join(
        names.map((name) => sql`v.${name}`),
        ', ',
      )}, ${layout.epoch}::integer from (${visible}) v`)
    await transaction.query(sql`
      insert into ${pastName(heap)} (${heapColumns(heap)}, until)
      select ${heapColumns(heap, sql`h`)}, ${layout.epoch}::integer
      from ${heapName(heap)} h
      where h.epoch < ${layout.epoch}::integer and not h.deleted`)
    // What the values are joined from is calculated once.
    const parts = made.from === undefined ? await divideRows(transaction, heap) : [sql`true`]
    const step = `writing column [${table.name}.${column.name}]`
    for (const [index, isPart] of parts.entries()) {
      tell?.({ step, done: index, total: parts.length })
      await transaction.query(sql`
        update ${heapName(heap)} h
        set ${ident(physicalName(column))} = ${made.value}, epoch = ${layout.epoch}::integer
        ${made.from ?? empty}
        where not h.deleted and ${isPart} and ${made.condition ?? sql`true`}`)
    }
  })
}

/**
 * Completes the heaps of a restored database, or of all: queues the indexes that need an extension, and adds the checks
 * and the triggers that schemas define. Backups leave them out, because nothing of an archive is run.
 */
export async function completeRestored(
  database: Queryable,
  { databaseId = null }: { databaseId?: string | null } = {},
): Promise<void> {
  await requestExtensionIndexes(database, { databaseId })
  const heaps = await database.query<HeapAddress & { table: StoredTable }>(sql`
    select h.database_id as "databaseId", h.id as "heapId", t as table
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id
    cross join lateral jsonb_path_query(s.document,
      '$.tables[*] ? (@.id == $id && (exists(@.constraints[*].check) || exists(@.columns[*].computed)))',
      jsonb_build_object('id', h.table_id)) t
    where h.kind = 'heap' and h.database_id = coalesce(${databaseId}::bigint, h.database_id)`)
  for (const { table, ...heap } of heaps) {
    for (const check of listStoredChecks(table)) await addHeapCheck(database, heap, check)
  }
  await completeVersions(database, { databaseId })
}

async function addColumn(
  transaction: Queryable,
  heap: Heap,
  options: Parameters<typeof addHeapColumn>[2],
): Promise<void> {
  await addHeapColumn(transaction, heap, options).catch((error: unknown) => {
    throw codeOf(error) === TOO_MANY_COLUMNS ? worn(options.table) : error
  })
}

/** Removed columns stay in the heap for forks, so they count towards PostgreSQL's limit of 1600 columns. */
function worn(table: StoredTable): AppError {
  return new AppError(
    'limit_reached',
    `table [${table.name}]: cannot have another column: it has had about 1600 columns, including ` +
      'removed ones; create a new table and move the records',
  )
}

/** Throws if a table has rows, which would have no value of a new not-null column. */
async function requireNoRows(
  transaction: Queryable,
  checked: CheckedRows,
  options: { before: StoredTable; column: StoredColumn; limits: Limits },
): Promise<void> {
  const { before, column, limits } = options
  const codec = compileTable(before, { limits, jsonAsText: false })
  const found = await transaction.query<{ id: string; records: number }>(sql`
    select b.id, (count(*) over ())::integer as records
    from (
      select v.id from (${selectChecked(checked, codec)}) v
      order by v.id
      limit ${COUNTED}
    ) b
    order by b.id
    limit ${PROBLEM_RECORDS_MAX}`)
  const [first] = found
  if (first === undefined) return
  const counted = countOf(first.records)
  const message =
    `table [${before.name}]: column [${column.name}]: cannot be added as not null without a default: ` +
    `${recordsIn(counted)} would have no value`
  const problem: ColumnProblem = {
    ...{ table: before.name, column: column.name, kind: 'notNull', ...counted },
    samples: found.map(({ id }) => ({ id })),
    message,
  }
  throw new AppError('invalid_schema', message, { details: { problems: [problem] } })
}
