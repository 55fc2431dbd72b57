import type {
  ColumnChanges,
  ColumnDefinition,
  SchemaOperation,
  TableDefinition,
} from '@offshoot/client'
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { useSearch } from 'wouter'
import { keys } from '../../api/answers.js'
import { cancelOperation, useLongWork } from '../../api/long-work.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useBranchDetails } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { goTo } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { Empty, ErrorNote, Loading } from '../../ui/feedback.js'
import { OperationProgress } from '../../ui/operation-progress.js'
import { Page } from '../../ui/page.js'
import { notify } from '../../ui/toasts.js'
import { AddConstraintDialog } from './constraint-dialog.js'
import { Diagram } from './diagram.js'
import {
  AddColumnDialog,
  AddTableDialog,
  AlterColumnDialog,
  HistoryDialog,
  NameDialog,
} from './edit-dialogs.js'
import { History } from './history.js'
import { ReviewDialog } from './review-dialog.js'
import './schema.css'
import { TableCard } from './table-card.js'

const VIEWS = { tables: 'Tables', diagram: 'Diagram', history: 'History' } as const
type View = keyof typeof VIEWS

type Edit =
  | { readonly kind: 'addTable' }
  | { readonly kind: 'renameTable'; readonly table: string }
  | { readonly kind: 'addColumn'; readonly table: string }
  | { readonly kind: 'renameColumn'; readonly table: string; readonly column: string }
  | { readonly kind: 'alterColumn'; readonly table: string; readonly column: ColumnDefinition }
  | { readonly kind: 'addConstraint'; readonly table: TableDefinition }
  | { readonly kind: 'history'; readonly table: TableDefinition }
  | { readonly kind: 'review' }

/** Edits that are not applied yet, by branch. They stay while other pages are shown. */
const waiting = new Map<string, readonly SchemaOperation[]>()

/** The tables and columns of a branch. Edits are collected, previewed, and applied as one migration. */
export function SchemaPage() {
  const place = usePlace()
  const branch = useBranch()
  const queries = useQueryClient()
  const { canWrite } = useRights()
  const details = useBranchDetails(place)
  const name = keys.branch(place).join('/')
  const [operations, setOperations] = useState(() => waiting.get(name) ?? [])
  const [edit, setEdit] = useState<Edit>()
  const [fault, setFault] = useState<unknown>(null)
  const chosen = new URLSearchParams(useSearch()).get('view') ?? 'tables'
  const view: View = chosen in VIEWS ? (chosen as View) : 'tables'
  // Not below the key of the branch: the preview of edits that were just applied must not be asked for again.
  const previewKey = (edits: readonly SchemaOperation[]) => ['preview', name, edits]
  const preview = useQuery({
    queryKey: previewKey(operations),
    queryFn: ({ signal }) => branch.previewSchema(operations, { signal }),
    enabled: operations.length > 0,
    placeholderData: keepPreviousData,
  })
  const set = (next: readonly SchemaOperation[]) => {
    waiting.set(name, next)
    setOperations(next)
    setFault(null)
  }
  /** Adds operations if the service accepts them; otherwise the dialog shows why not. */
  const add = async (...added: readonly SchemaOperation[]) => {
    const next = [...operations, ...added]
    const answer = await branch.previewSchema(next)
    queries.setQueryData(previewKey(next), answer)
    set(next)
  }
  const end = async () => {
    set([])
    notify('The schema was changed')
    await queries.invalidateQueries({ queryKey: keys.branch(place) })
  }
  const work = useLongWork((outcome) => {
    if ('error' in outcome) setFault(outcome.error)
    else void end()
  })
  const apply = async ({ allowDataLoss }: { readonly allowDataLoss: boolean }) => {
    setFault(null)
    try {
      await work.run(async (onProgress) => {
        await branch.applySchema(operations, { allowDataLoss, onProgress })
        await end()
      })
    } catch (error) {
      // The dialog shows it, too, unless it was closed meanwhile.
      setFault(error)
      throw error
    }
  }
  /** Returns what prevents a change of a column, without making it. */
  const tryColumn = async (table: string, column: string, changes: ColumnChanges) => {
    const next = [...operations, { alterColumn: { table, column, ...changes } }]
    return (await branch.previewSchema(next)).problems ?? []
  }
  const stored = details.data?.schema.tables ?? []
  const isChanged = operations.length > 0
  const tables = isChanged ? (preview.data?.updated.tables ?? stored) : stored
  const names = tables.map((table) => table.name)
  return (
    <Page
      title="Schema"
      subtitle={details.isSuccess ? `${stored.length} tables on ${place.branch}` : 'Reading'}
      actions={
        <>
          {(Object.keys(VIEWS) as View[]).map((one) => (
            <Button
              key={one}
              aria-pressed={one === view}
              onClick={() =>
                goTo(one === 'tables' ? paths.schema(place) : `${paths.schema(place)}?view=${one}`)
              }
            >
              {VIEWS[one]}
            </Button>
          ))}
          {canWrite && (
            <Button kind="primary" icon="plus" onClick={() => setEdit({ kind: 'addTable' })}>
              New table
            </Button>
          )}
        </>
      }
    >
      <ErrorNote error={details.error} onRetry={() => void details.refetch()} />
      <ErrorNote error={isChanged ? preview.error : null} />
      {edit?.kind !== 'review' && (
        <>
          {work.operation !== undefined && (
            <OperationProgress operation={work.operation} onCancel={cancelOperation} />
          )}
          <ErrorNote error={fault} />
        </>
      )}
      <ErrorNote error={work.error} onRetry={work.forget} />
      {details.isPending && <Loading lines={8} />}
      {view === 'history' && <History />}
      {view !== 'history' && details.isSuccess && tables.length === 0 && (
        <Empty
          icon="schema"
          title="No tables yet"
          actions={
            canWrite && (
              <Button kind="primary" icon="plus" onClick={() => setEdit({ kind: 'addTable' })}>
                Create the first table
              </Button>
            )
          }
        >
          A table has an id and typed columns. A column of type link connects it with another table.
        </Empty>
      )}
      {view === 'diagram' && tables.length > 0 && <Diagram tables={tables} />}
      {view === 'tables' && (
        <div className="schema-tables">
          {tables.map((table) => (
            <TableCard
              key={table.name}
              table={table}
              stored={stored.find((one) => one.name === table.name)}
              canWrite={canWrite}
              onAddColumn={() => setEdit({ kind: 'addColumn', table: table.name })}
              onAddConstraint={() => setEdit({ kind: 'addConstraint', table })}
              onHistory={() => setEdit({ kind: 'history', table })}
              onRename={() => setEdit({ kind: 'renameTable', table: table.name })}
              onRenameColumn={(column) =>
                setEdit({ kind: 'renameColumn', table: table.name, column })
              }
              onAlterColumn={(column) =>
                setEdit({ kind: 'alterColumn', table: table.name, column })
              }
              onRemove={(operation) => add(operation)}
            />
          ))}
        </div>
      )}
      {isChanged && (
        <section className="unsaved pending" aria-label="Edits that are not applied">
          <strong className="grow">
            {operations.length} {operations.length === 1 ? 'edit' : 'edits'}, not applied
          </strong>
          <Button icon="undo" onClick={() => set(operations.slice(0, -1))}>
            Undo
          </Button>
          <Button onClick={() => set([])}>Discard</Button>
          <Button
            kind="primary"
            disabled={work.isUnderWay}
            onClick={() => setEdit({ kind: 'review' })}
          >
            Review and apply
          </Button>
        </section>
      )}
      {edit?.kind === 'addTable' && (
        <AddTableDialog
          onClose={() => setEdit(undefined)}
          onSubmit={(addTable) => add({ addTable })}
          onDone={(table) => setEdit({ kind: 'addColumn', table })}
        />
      )}
      {edit?.kind === 'renameTable' && (
        <NameDialog
          title={`Rename ${edit.table}`}
          action="Rename"
          name={edit.table}
          onClose={() => setEdit(undefined)}
          onSubmit={(newName) => add({ renameTable: { oldName: edit.table, newName } })}
        />
      )}
      {edit?.kind === 'renameColumn' && (
        <NameDialog
          title={`Rename ${edit.table}.${edit.column}`}
          action="Rename"
          name={edit.column}
          onClose={() => setEdit(undefined)}
          onSubmit={(newName) =>
            add({ renameColumn: { table: edit.table, oldName: edit.column, newName } })
          }
        />
      )}
      {edit?.kind === 'addColumn' && (
        <AddColumnDialog
          table={edit.table}
          tables={names}
          onClose={() => setEdit(undefined)}
          onSubmit={(column) => add({ addColumn: { table: edit.table, column } })}
        />
      )}
      {edit?.kind === 'addConstraint' && (
        <AddConstraintDialog
          table={edit.table}
          onClose={() => setEdit(undefined)}
          onSubmit={(constraint) => add({ addConstraint: { table: edit.table.name, constraint } })}
        />
      )}
      {edit?.kind === 'history' && (
        <HistoryDialog
          table={edit.table}
          onClose={() => setEdit(undefined)}
          onSubmit={(history) => add({ alterTable: { table: edit.table.name, history } })}
        />
      )}
      {edit?.kind === 'alterColumn' && (
        <AlterColumnDialog
          table={edit.table}
          column={edit.column}
          tables={names}
          onTry={(changes) => tryColumn(edit.table, edit.column.name, changes)}
          onClose={() => setEdit(undefined)}
          onSubmit={(changes) =>
            add({ alterColumn: { table: edit.table, column: edit.column.name, ...changes } })
          }
        />
      )}
      {edit?.kind === 'review' && (
        <ReviewDialog
          operations={operations}
          dataLoss={preview.data?.dataLoss ?? []}
          problems={preview.data?.problems ?? []}
          running={work.operation}
          onClose={() => setEdit(undefined)}
          onApply={apply}
        />
      )}
    </Page>
  )
}
