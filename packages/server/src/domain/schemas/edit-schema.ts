import type { DataLoss } from '@offshoot/contract/data-loss'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Progress } from '@offshoot/contract/operations'
import type { Migration, SchemaOperation, SchemaUpdate } from '@offshoot/contract/schema-edits'
import { newEntryId, newMigrationId } from '../../common/ids.js'
import { inTurns } from '../../common/in-turns.js'
import type { Bounds } from '../../postgres/bounds.js'
import type { Queryable } from '../../postgres/database.js'
import { isUndefinedTable } from '../../postgres/failures.js'
import {
  runTransaction,
  type Transaction,
  WRITABLE_SNAPSHOT,
} from '../../postgres/run-transaction.js'
import type { Sql } from '../../postgres/sql.js'
import type { StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import { RowState } from '../../rows/row-state.js'
import type { Storage } from '../../rows/storage.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import { findLiveBranch } from '../access/find-live-branch.js'
import type { BranchAccess } from '../access/resolve.js'
import { requireAccess } from '../access/scope.js'
import { insertAfterSql, insertAutomatic } from '../checkpoints/queries.js'
import { entryOf, insertEntrySql } from '../log/entries.js'
import type { LongWork } from '../long-work/long-work.js'
import { listAdded, onlyAdds } from './additions.js'
import { applyOperations } from './apply-operations.js'
import { countColumns } from './check-column.js'
import { checksumOf } from './checksum.js'
import { dataLossError, listLost, measureLoss, removesAnything } from './data-loss.js'
import { dryRunOptions, editOptions, parseExpressions } from './edit-options.js'
import {
  type BranchHead,
  deleteUnusedSchema,
  findHead,
  findMigration,
  insertMigration,
  insertSchema,
  listObjectIds,
  updateHead,
} from './queries.js'
import { rememberIds } from './remembered-ids.js'

/** A migration to apply. It has an id and a checksum if a client pushed it. */
type PlannedEdit = Pick<Migration, 'operations'> & Partial<Migration>

/** Plans the edits after the branch has been locked. */
export type PlanEdits = (
  head: BranchHead,
  transaction: Transaction,
) => Promise<readonly PlannedEdit[]>

/**
 * Edits the schema of a branch: updates the schema, its migrations and the physical tables in one
 * transaction. Writers of the branch wait until it ends. Requests that were planned on the old schema
 * find that the stamp of the branch has changed, and are planned again.
 *
 * If many rows have to keep a new rule, a pinned state of the branch is checked before, while others write. The transaction
 * then only checks the rows that have changed since.
 */
export async function editSchema(
  storage: Storage,
  access: BranchAccess,
  options: EditOptions & { readonly withPin: WithPin },
): Promise<SchemaUpdate> {
  const { work, withPin } = options
  work?.belongTo(access)
  const edit = (checked: Checked) =>
    withHead(
      storage,
      access,
      async (transaction, head) => {
        const update = await editHead(transaction, { ...options, head, access, checked })
        await work?.keep((statement) => transaction.query(statement), update)
        return update
      },
      work?.bounds,
    )
  for (let attempt = 1; attempt <= PINNED_ATTEMPTS; attempt++) {
    try {
      return await edit('few')
    } catch (error) {
      if (!(error instanceof LargeCheck)) throw error
      const update = await withPin(storage, access, async (pin) => {
        work?.begin({ step: 'checking the records', done: 0, total: 1 })
        const isChecked = await checkPinned(storage, { ...options, pin, check: error })
        return isChecked ? edit({ pin }).catch(unlessOutdated) : undefined
      })
      if (update !== undefined) return update
    }
  }
  return edit('all')
}

/** How often pinned states are checked. If the schema has changed each time meanwhile, the branch is locked. */
const PINNED_ATTEMPTS = 3

/** A state of a branch that is kept while work on it goes on. */
interface Pin {
  readonly id: string
  readonly rows: BranchRows
}

/** Runs work with a pin of a branch, and removes the pin. Pins belong to a higher room. */
export type WithPin = <Result>(
  storage: Storage,
  access: BranchAccess,
  body: (pin: Pin) => Promise<Result>,
) => Promise<Result>

/** The rows that an edit may check while writers wait: a few, all, or those that have changed since a pinned state. */
type Checked = 'few' | 'all' | { readonly pin: Pin }

/** An edit would keep writers waiting while it looks at many rows. It has changed nothing. */
class LargeCheck extends Error {
  constructor(
    readonly schemaId: string,
    readonly changes: Parameters<RowState['check']>[1],
  ) {
    super('many rows must be checked')
  }
}

/** The schema is another one than that of the pinned state. */
class OutdatedPin extends Error {}

function unlessOutdated(error: unknown): undefined {
  // A fold may have dropped a table that the pinned state was read from.
  if (error instanceof OutdatedPin || isUndefinedTable(error)) return undefined
  throw error
}

/** Checks the rows of a pinned state, without any lock. Returns false if its schema is another one by now. */
function checkPinned(
  { database }: Storage,
  { pin, check, work }: Pick<EditOptions, 'work'> & { pin: Pin; check: LargeCheck },
): Promise<boolean> {
  return runTransaction(
    database,
    async (transaction) => {
      const rows = await new StoredBranch(transaction, pin.id).findStartRows()
      if (rows === undefined) throw new Error('a pin must exist')
      if (rows.schemaId !== check.schemaId) return false
      await new RowState(rows).check(transaction, check.changes)
      return true
    },
    { ...WRITABLE_SNAPSHOT, bounds: work?.bounds },
  )
}

/**
 * Throws a `LargeCheck` if a locked branch may not look at the rows that edits need. Later edits of a list depend on what the
 * first ones do to the rows, so only a single edit is checked before.
 */
async function requireFewRows(
  transaction: Queryable,
  { head, edits, limits }: { head: BranchHead; edits: readonly PlannedEdit[]; limits: Limits },
): Promise<void> {
  const [edit, ...others] = edits
  if (edit === undefined || others.length > 0 || !edit.operations.some(mayAddRule)) return
  const dryRun = dryRunOptions(limits, await parseExpressions(edit.operations, head.schema))
  const { changes } = await inTurns(applyOperations(head.schema, edit.operations, dryRun))
  const rows = await getRows(transaction, head)
  if (!(await new RowState(rows).isLargeCheck(transaction, { changes, limits }))) return
  throw new LargeCheck(head.schemaId, { before: tablesOf(head), changes, limits })
}

function mayAddRule(operation: SchemaOperation): boolean {
  if (!('addColumn' in operation)) return 'addConstraint' in operation || 'alterColumn' in operation
  const { notNull, computed } = operation.addColumn.column
  return notNull === true || computed !== undefined
}

/** Returns the state that was pinned, for a check of the rows that have changed since. */
async function findSince(
  transaction: Queryable,
  head: BranchHead,
  checked: Checked,
): Promise<BranchRows | undefined> {
  if (typeof checked === 'string') return undefined
  const since = await new StoredBranch(transaction, checked.pin.id).findStartRows()
  if (since?.schemaId !== head.schemaId) throw new OutdatedPin('the schema has changed')
  return since
}

interface EditOptions {
  readonly plan: PlanEdits
  readonly limits: Limits
  readonly allowDataLoss: boolean
  /** The request may be answered before the edit ends. */
  readonly work?: LongWork | undefined
  /** Changes what is part of the schema, but not of migrations. */
  readonly finish?: ((transaction: Transaction) => Promise<void>) | undefined
}

/** Edits the schema of a branch in a transaction that has it alone. */
export async function editInside(
  transaction: Transaction,
  access: BranchAccess,
  options: EditOptions,
): Promise<SchemaUpdate> {
  const head = await getHead(transaction, access)
  return editHead(transaction, { ...options, access, head, checked: 'all' })
}

async function editHead(
  transaction: Transaction,
  options: EditOptions & {
    readonly head: BranchHead
    readonly access: BranchAccess
    readonly checked: Checked
  },
): Promise<SchemaUpdate> {
  const { head, access, limits, checked } = options
  const edits = await options.plan(head, transaction)
  const losses = await findLosses(transaction, { head, edits, limits })
  if (losses.length > 0 && !options.allowDataLoss) throw dataLossError(losses)
  if (checked === 'few') await requireFewRows(transaction, { head, edits, limits })
  const since = await findSince(transaction, head, checked)
  // What edits have added is removed to take them back. Other edits need the states before and after them.
  const isAdding = edits.every(({ operations }) => onlyAdds(operations))
  const checkpoint = isAdding
    ? undefined
    : await insertAutomatic(transaction, access, { before: 'migration', limits })
  const { work } = options
  const changed = { head, edits, access, limits, isAdding, checkpoint, work, since }
  const update = await applyEdits(transaction, changed)
  await options.finish?.(transaction)
  return update
}

export async function getHead(
  database: Queryable,
  { branchId, branchName }: BranchAccess,
): Promise<BranchHead> {
  const head = await findHead(database, branchId)
  if (head !== undefined) return head
  throw new AppError('branch_not_found', `branch [${branchName}] not found`)
}

async function getRows(transaction: Queryable, { branchId }: BranchHead): Promise<BranchRows> {
  const rows = await new StoredBranch(transaction, branchId).findRows()
  if (rows === undefined) throw new Error('a locked branch must exist')
  return rows
}

const tablesOf = ({ schema }: BranchHead): ReadonlyMap<number, StoredTable> =>
  new Map(schema.tables.map((table) => [table.id, table]))

/** Measures the loss of all edits together before the first one is applied, which may drop a heap. */
async function findLosses(
  transaction: Queryable,
  options: { head: BranchHead; edits: readonly PlannedEdit[]; limits: Limits },
): Promise<DataLoss[]> {
  const { head, edits, limits } = options
  if (!edits.some(({ operations }) => removesAnything(operations))) return []
  let after = head.schema
  const { nextId } = dryRunOptions(limits)
  for (const { operations } of edits) {
    const expressions = await parseExpressions(operations, after)
    const dryRun = editOptions({ limits, expressions, nextId })
    after = (await inTurns(applyOperations(after, operations, dryRun))).schema
  }
  const removals = listLost(head.schema, after)
  const rows = await getRows(transaction, head)
  return measureLoss(transaction, rows, { removals, limits })
}

/** Runs a transaction that holds the branch exclusively and sees its current schema. */
export async function withHead<Result>(
  storage: Storage,
  access: BranchAccess,
  body: (transaction: Transaction, head: BranchHead) => Promise<Result>,
  bounds?: Bounds,
): Promise<Result> {
  requireAccess(access.principal.scope, 'write')
  const branch = await findLiveBranch(storage.database, {
    databaseId: access.databaseId,
    id: access.branchId,
  })
  if (branch === undefined) {
    throw new AppError('branch_not_found', `branch [${access.branchName}] not found`)
  }
  // A change of heaps needs them without layers. Nobody waits for that here.
  await storage.absorb(branch.id)
  return storage.runAlone(
    [branch.id],
    async (transaction) => body(transaction, await getHead(transaction, access)),
    { bounds },
  )
}

async function applyEdits(
  transaction: Transaction,
  options: {
    head: BranchHead
    edits: readonly PlannedEdit[]
    access: BranchAccess
    limits: Limits
    isAdding: boolean
    checkpoint: string | undefined
    work: LongWork | undefined
    since: BranchRows | undefined
  },
): Promise<SchemaUpdate> {
  const { edits, access, limits, isAdding, checkpoint, since, work } = options
  const { databaseId } = access
  let head = options.head
  let count = 0
  let entry: string | undefined
  for (const edit of edits.filter(({ operations, id }) => operations.length > 0 || id)) {
    work?.begin({ step: 'changing the schema', done: count, total: edits.length })
    head = await applyEdit(transaction, { head, edit, databaseId, limits, since, work })
    count++
  }
  if (count > 0) {
    const schemaId = await insertSchema(transaction, { databaseId, document: head.schema })
    await updateHead(transaction, {
      branchId: access.branchId,
      schemaId,
      migrationId: head.lastMigrationId,
      migrations: count,
    })
    await deleteUnusedSchema(transaction, options.head.schemaId)
    entry = newEntryId()
    const after = insertAfterSql(access, checkpoint)
    const states = isAdding
      ? { added: listAdded(options.head.schema, head.schema) }
      : { checkpoint, after: after?.id }
    transaction.lastStatements.push(
      ...(after === undefined ? [] : [after.statement]),
      migrationEntrySql(entry, access, { head, edits, states }),
    )
  }
  return {
    ...(entry === undefined ? {} : { entry }),
    migrationID: head.lastMigrationId,
    parentMigrationID: head.parentMigrationId ?? '',
    status: 'completed',
  }
}

function migrationEntrySql(
  id: string,
  access: BranchAccess,
  options: {
    head: BranchHead
    edits: readonly PlannedEdit[]
    /** The checkpoints before and after the edits, or the ids of what they have added. */
    states: Readonly<Record<string, unknown>>
  },
): Sql {
  const { head, edits, states } = options
  const entry = entryOf(access)
  const operations = edits.reduce((count, edit) => count + edit.operations.length, 0)
  const counts = { migrations: edits.length, operations }
  const details = { ...entry.details, migrationID: head.lastMigrationId, ...states, counts }
  return insertEntrySql({ ...entry, id, kind: 'migration', details })
}

async function applyEdit(
  transaction: Transaction,
  options: {
    head: BranchHead
    edit: PlannedEdit
    databaseId: string
    limits: Limits
    since: BranchRows | undefined
    work: LongWork | undefined
  },
): Promise<BranchHead> {
  const { head, edit, databaseId, limits, since, work } = options
  const ids = await listObjectIds(transaction, countIds(edit.operations, head.schema))
  const nextId = (): number => {
    const id = ids.shift()
    if (id === undefined) throw new Error('ids for an edit are counted beforehand')
    return id
  }
  const expressions = await parseExpressions(edit.operations, head.schema)
  const rules = editOptions({ limits, nextId, expressions })
  const edited = await inTurns(applyOperations(head.schema, edit.operations, rules))
  const schema = rememberIds(head.schema, edited.schema)
  // Read for each edit, because the previous edit of a push may have created tables.
  const rows = await getRows(transaction, head)
  const { changes } = edited
  const tell = work && ((progress: Progress) => work.begin(progress))
  await new RowState(rows).change(transaction, {
    before: tablesOf(head),
    changes,
    limits,
    since,
    tell,
  })
  const id = edit.id ?? newMigrationId()
  const parentId = head.lastMigrationId
  const checksum = checksumOf(edit.operations)
  const { operations, title, message } = edit
  const migration = { id, databaseId, parentId, checksum, operations, title, message }
  await insertMigration(transaction, migration)
  const stored = await findMigration(transaction, { databaseId, id })
  if (stored?.parentId !== parentId || stored.checksum !== checksum) {
    throw new AppError(
      'conflict',
      `migration [${id}]: another branch of this database has a different migration with this id`,
    )
  }
  return { ...head, schema, lastMigrationId: id, parentMigrationId: parentId }
}

/** Counts the ids that operations can need. */
function countIds(operations: readonly SchemaOperation[], { tables }: StoredSchema): number {
  const added = operations.filter((operation) => 'addConstraint' in operation).length
  const known = tables.map(({ constraints = [] }) => constraints.length)
  // A constraint of a column whose values are stored anew gets another id.
  const carriedMax = Math.max(0, ...known) + added
  return operations.reduce((count, operation) => {
    if ('alterColumn' in operation) return count + 1 + carriedMax
    const isOne = ['addTable', 'addConstraint'].some((kind) => kind in operation)
    if (isOne) return count + 1
    return 'addColumn' in operation ? count + countColumns(operation.addColumn.column) : count
  }, 0)
}
