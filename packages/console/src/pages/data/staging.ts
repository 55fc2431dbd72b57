import type { AnySchema, ColumnDefinition, Operation, TableDefinition } from '@offshoot/client'
import { isEqual, type Row, toWire } from './values.js'

/** A new record that is not saved yet. */
export interface Draft {
  readonly key: string
  readonly fields: Fields
}

type Fields = Readonly<Record<string, unknown>>

/** Changed columns of a record, and the record as it was read. */
interface Edit {
  readonly base: Row
  readonly fields: Fields
}

/** Changes that are not saved yet. */
export interface Staged {
  readonly drafts: readonly Draft[]
  readonly edits: ReadonlyMap<string, Edit>
  readonly deletes: ReadonlyMap<string, Row>
}

export const NOTHING: Staged = { drafts: [], edits: new Map(), deletes: new Map() }

/** Operations of one transaction. The service allows no more. */
export const OPERATIONS_MAX = 1000

let drafts = 0

export function newDraft(fields: Fields = {}): Draft {
  return { key: `draft-${++drafts}`, fields }
}

/** Stages the value of a cell. A value that equals the stored one is no change. */
export function stageCell(
  staged: Staged,
  target: { readonly draft: string } | { readonly row: Row },
  column: ColumnDefinition,
  value: unknown,
): Staged {
  if ('draft' in target) {
    const drafts = staged.drafts.map((draft) =>
      draft.key === target.draft
        ? { ...draft, fields: withField(draft.fields, column.name, value) }
        : draft,
    )
    return { ...staged, drafts }
  }
  const { id } = target.row
  const known = staged.edits.get(id)
  const base = known?.base ?? target.row
  const isSame = isEqual(column, base[column.name], value)
  if (isSame && !(column.name in (known?.fields ?? {}))) return staged
  const fields = withField(known?.fields ?? {}, column.name, isSame ? undefined : value)
  const edits = new Map(staged.edits)
  if (Object.keys(fields).length === 0) edits.delete(id)
  else edits.set(id, { base, fields })
  return { ...staged, edits }
}

function withField(fields: Fields, name: string, value: unknown): Fields {
  const { [name]: _, ...rest } = fields
  return value === undefined ? rest : { ...rest, [name]: value }
}

/** Stages the deletion of a record, or takes it back. A draft is removed. */
export function stageDelete(
  staged: Staged,
  targets: readonly ({ readonly draft: string } | { readonly row: Row })[],
): Staged {
  const gone = new Set(targets.flatMap((target) => ('draft' in target ? [target.draft] : [])))
  const deletes = new Map(staged.deletes)
  const rows = targets.flatMap((target) => ('row' in target ? [target.row] : []))
  const areAllDeleted = rows.length > 0 && rows.every(({ id }) => deletes.has(id))
  for (const row of rows) {
    if (areAllDeleted) deletes.delete(row.id)
    else deletes.set(row.id, row)
  }
  return { ...staged, drafts: staged.drafts.filter(({ key }) => !gone.has(key)), deletes }
}

export function countOf({ drafts, edits, deletes }: Staged): number {
  const changed = [...edits.keys()].filter((id) => !deletes.has(id)).length
  return drafts.length + changed + deletes.size
}

/** One operation, and the row that it belongs to. */
interface StagedOperation {
  readonly operation: Operation<AnySchema>
  /** The id of a record, or the key of a draft. */
  readonly row: string
}

/**
 * Returns the operations that save the changes. Each of them is refused if someone else has changed its
 * record since it was read.
 */
export function operationsOf(
  { name: table, columns }: Pick<TableDefinition, 'name' | 'columns'>,
  staged: Staged,
): readonly StagedOperation[] {
  const wire = (fields: Fields) =>
    Object.fromEntries(
      Object.entries(fields).map(([name, value]) => [
        name,
        toWire(
          columns.find((column) => column.name === name),
          value,
        ),
      ]),
    )
  const operations: StagedOperation[] = []
  for (const [id, { service }] of staged.deletes) {
    // A deletion takes no version, so an update without fields checks it in the same transaction.
    const check = { table, id, fields: {}, ifVersion: service.version }
    operations.push({ row: id, operation: { update: check } })
    operations.push({ row: id, operation: { delete: { table, id, failIfMissing: true } } })
  }
  for (const [id, { base, fields }] of staged.edits) {
    if (staged.deletes.has(id)) continue
    const update = { table, id, fields: wire(fields), ifVersion: base.service.version }
    operations.push({ row: id, operation: { update } })
  }
  // Drafts are shown with the newest first.
  for (const { key, fields } of staged.drafts.toReversed()) {
    const insert = {
      table,
      record: withoutNulls(wire(fields)),
      createOnly: fields.id !== undefined,
    }
    operations.push({ row: key, operation: { insert } as Operation<AnySchema> })
  }
  return operations
}

function withoutNulls(fields: Fields): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))
}

/** Keeps the changes of a record, on top of what someone else has stored. */
export function rebase(staged: Staged, current: Row): Staged {
  const edits = new Map(staged.edits)
  const edit = edits.get(current.id)
  if (edit !== undefined) edits.set(current.id, { ...edit, base: current })
  const deletes = new Map(staged.deletes)
  if (deletes.has(current.id)) deletes.set(current.id, current)
  return { ...staged, edits, deletes }
}

/** Gives up the changes of a record. */
export function discardRow(staged: Staged, id: string): Staged {
  const edits = new Map(staged.edits)
  const deletes = new Map(staged.deletes)
  edits.delete(id)
  deletes.delete(id)
  return { drafts: staged.drafts.filter(({ key }) => key !== id), edits, deletes }
}
