import type { ColumnDefinition, TableDefinition } from '@offshoot/client'
import { useMutation } from '@tanstack/react-query'
import { useCallback, useEffect, useMemo, useState } from 'react'
import { cancelOperation, useLongWork } from '../../api/long-work.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useRights } from '../../api/session.js'
import { paths } from '../../app/paths.js'
import { Button, IconButton } from '../../ui/button.js'
import { Empty, ErrorNote } from '../../ui/feedback.js'
import { Grid } from '../../ui/grid/grid.js'
import { fromTabSeparated } from '../../ui/grid/tab-separated.js'
import type { CellPosition, CellRange, CellView, RowState } from '../../ui/grid/types.js'
import { GRID_ROWS_MAX } from '../../ui/grid/types.js'
import { Menu } from '../../ui/menu.js'
import { OperationProgress } from '../../ui/operation-progress.js'
import { Page } from '../../ui/page.js'
import { notify, notifyError } from '../../ui/toasts.js'
import { AsOf, AsOfNote } from './as-of.js'
import { ColumnHeader } from './column-header.js'
import { ColumnsMenu } from './columns-menu.js'
import { ConflictDialog } from './conflict-dialog.js'
import { CellEditor } from './editors.js'
import { ExportDialog } from './export-dialog.js'
import { FilterBar } from './filter-bar.js'
import { ImportDialog } from './import-dialog.js'
import { inOrder } from './preferences.js'
import { QueryCode } from './query-code.js'
import { RecordHistoryDialog } from './record-history.js'
import { namesToRead, SEARCH_ROWS_MAX, stateOf } from './row-pages.js'
import { type SetChange, SetDialog, setOf } from './set-dialog.js'
import {
  countOf,
  type Draft,
  newDraft,
  OPERATIONS_MAX,
  operationsOf,
  stageCell,
  stageDelete,
} from './staging.js'
import { usePreferences } from './use-preferences.js'
import { useRows } from './use-rows.js'
import { useSave } from './use-save.js'
import { useStaging } from './use-staging.js'
import { useView } from './use-view.js'
import {
  columnValue,
  defaultWidth,
  idColumn,
  isNumeric,
  longText,
  METADATA,
  parseText,
  type Row,
  shortText,
} from './values.js'
import { formatView, type SortTerm } from './view.js'

/** The answer to a change of all records that match a filter. */
type SetAnswer = { readonly updated?: number; readonly deleted?: number }

type Target = { readonly draft: Draft } | { readonly row: Row }

/** The rows of a table, with everything that can be done to them. */
export function DataGrid({ name, table }: { name: string; table: TableDefinition }) {
  const place = usePlace()
  const branch = useBranch()
  const rights = useRights()
  const [view, setView] = useView(paths.table(place, table.name))
  // The past cannot be changed.
  const canWrite = rights.canWrite && view.at === ''
  const [preferences, setPreferences] = usePreferences(name)
  const [dialog, setDialog] = useState<
    'import' | 'export' | 'update' | 'delete' | { readonly historyOf: Row }
  >()
  const [selection, setSelection] = useState<CellRange>({ top: 0, bottom: 0, left: 0, right: 0 })
  const { staged, canUndo, canRedo, change, undo, redo, clear } = useStaging(
    view.at === '' ? name : `${name} at ${view.at}`,
  )

  const all = useMemo(
    () => inOrder([idColumn(table), ...table.columns, ...METADATA], preferences.order),
    [table, preferences.order],
  )
  const columns = useMemo(
    () => all.filter(({ name: one }) => !preferences.hidden.includes(one)),
    [all, preferences.hidden],
  )
  const store = useRows(table.name, view, namesToRead(table, preferences.hidden))
  const { faults, conflicts, error, isSaving, save, settle, forget } = useSave({
    table,
    staged,
    onSaved: () => {
      clear()
      store.refresh()
    },
  })

  const [setFault, noteSetFault] = useState<unknown>(null)
  const endSet = (answer: SetAnswer) => {
    const count = answer.updated ?? answer.deleted ?? 0
    const word = answer.deleted === undefined ? 'changed' : 'deleted'
    notify(`${count.toLocaleString()} ${count === 1 ? 'row is' : 'rows are'} ${word}`)
    store.refresh()
  }
  const work = useLongWork<SetAnswer>((outcome) => {
    if ('error' in outcome) noteSetFault(outcome.error)
    else endSet(outcome.result)
  })
  const changeSet = async (wanted: SetChange) => {
    noteSetFault(null)
    const handle = branch.table(table.name)
    const records = setOf(view.filter)
    try {
      const answer = await work.run<SetAnswer>((onProgress) =>
        wanted === 'delete'
          ? handle.deleteMany(records, { onProgress })
          : handle.updateMany(records, wanted.set, { onProgress }),
      )
      endSet(answer)
    } catch (caught) {
      // The dialog shows it, too, unless it was closed meanwhile.
      noteSetFault(caught)
      throw caught
    }
  }

  // Someone may have changed rows while another window was in front.
  useEffect(() => {
    const look = () => document.visibilityState === 'visible' && store.refresh()
    document.addEventListener('visibilitychange', look)
    return () => document.removeEventListener('visibilitychange', look)
  }, [store])
  useEffect(() => {
    store.open()
    return () => store.close()
  }, [store])

  const draftCount = staged.drafts.length
  const known = store.knownRows
  const ahead = store.isComplete ? 0 : store.error === null ? 30 : 0
  const rowCount = draftCount + Math.min(GRID_ROWS_MAX, known + ahead)
  const targetOf = (row: number): Target | undefined => {
    const draft = staged.drafts[row]
    if (draft !== undefined) return { draft }
    const stored = store.get(row - draftCount)
    return stored === undefined ? undefined : { row: stored }
  }
  const valueAt = (row: number, column: ColumnDefinition): unknown => {
    const target = targetOf(row)
    if (target === undefined) return undefined
    if ('draft' in target) return target.draft.fields[column.name]
    const edit = staged.edits.get(target.row.id)
    return edit !== undefined && column.name in edit.fields
      ? edit.fields[column.name]
      : columnValue(target.row, column.name)
  }
  const keyOf = (target: Target) => ('draft' in target ? target.draft.key : target.row.id)
  const stageTarget = (target: Target) =>
    'draft' in target ? { draft: target.draft.key } : { row: target.row }
  const mayEdit = (target: Target | undefined, column: ColumnDefinition | undefined): boolean =>
    canWrite &&
    target !== undefined &&
    column !== undefined &&
    !column.name.startsWith('service.') &&
    column.computed === undefined &&
    (column.name !== 'id' || 'draft' in target)

  const rowState = (row: number): RowState => {
    const target = targetOf(row)
    if (target === undefined) return 'loading'
    if ('draft' in target) return 'new'
    const { id, service } = target.row
    const edit = staged.edits.get(id)
    if (conflicts.has(id)) return 'conflict'
    if (edit !== undefined && edit.base.service.version !== service.version) return 'conflict'
    if (staged.deletes.has(id)) return 'deleted'
    return edit === undefined ? undefined : 'changed'
  }
  const cell = (row: number, index: number): CellView => {
    const column = columns[index]
    const target = targetOf(row)
    if (column === undefined || target === undefined) return { content: '' }
    const value = valueAt(row, column)
    const fault = faults.get(keyOf(target))
    const isStaged =
      'row' in target && column.name in (staged.edits.get(target.row.id)?.fields ?? {})
    const isWrong = fault !== undefined && faultIsAbout(fault, column.name)
    const classes = [
      isStaged ? 'staged' : '',
      isWrong ? 'wrong' : '',
      MONO.has(column.type) || column.name === 'id' ? 'mono' : '',
    ].join(' ')
    if (value === null || value === undefined) {
      const placeholder = 'draft' in target ? placeholderOf(column) : ''
      return { content: placeholder, className: `${classes} nothing`, ...titleOf(fault, isWrong) }
    }
    const content = cellContent(column, value)
    return { content, className: classes, ...titleOf(fault, isWrong) }
  }

  const setCells = (cells: readonly (CellPosition & { readonly text: string })[]) => {
    let wrong = 0
    change((present) => {
      let next = present
      for (const { row, column: index, text } of cells) {
        const column = columns[index]
        const target = targetOf(row)
        if (column === undefined || target === undefined || !mayEdit(target, column)) continue
        const parsed = parseText({ ...column, notNull: false }, text)
        if ('fault' in parsed) wrong++
        else next = stageCell(next, stageTarget(target), column, parsed.value)
      }
      return next
    })
    if (wrong > 0)
      notify(`${wrong} ${wrong === 1 ? 'value does' : 'values do'} not fit, and was left out`)
  }
  const paste = ({ top, bottom, left, right }: CellRange, text: string) => {
    if (!canWrite) return
    const lines = fromTabSeparated(text)
    const [first] = lines
    const isSingle = lines.length === 1 && first?.length === 1
    if (isSingle) {
      const cells = []
      for (let row = top; row <= bottom; row++)
        for (let column = left; column <= right; column++)
          cells.push({ row, column, text: first?.[0] ?? '' })
      setCells(cells)
      return
    }
    if (lines.length > OPERATIONS_MAX) {
      notify(
        `${lines.length.toLocaleString()} rows are too many to paste. Import them as a CSV file`,
      )
      return
    }
    const isAtEnd = (row: number) => targetOf(row) === undefined
    const overflow: string[][] = []
    const cells: (CellPosition & { text: string })[] = []
    lines.forEach((line, down) => {
      if (isAtEnd(top + down)) overflow.push(line)
      else {
        const row = top + down
        cells.push(...line.map((one, right) => ({ row, column: left + right, text: one })))
      }
    })
    setCells(cells)
    if (overflow.length > 0) addPasted(overflow, left)
  }
  const addPasted = (lines: readonly (readonly string[])[], left: number) => {
    let wrong = 0
    const drafts = lines.map((line) => {
      const fields: Record<string, unknown> = {}
      line.forEach((text, right) => {
        const column = columns[left + right]
        if (column === undefined || text === '') return
        if (column.name.startsWith('service.') || column.computed !== undefined) return
        const parsed = parseText({ ...column, notNull: false }, text)
        if ('fault' in parsed) wrong++
        else fields[column.name] = parsed.value
      })
      return newDraft(fields)
    })
    change((present) => ({ ...present, drafts: [...drafts, ...present.drafts] }))
    notify(
      `${drafts.length} new ${drafts.length === 1 ? 'row' : 'rows'}${wrong > 0 ? `; ${wrong} values do not fit, and were left out` : ''}`,
    )
  }
  const selectedTargets = (): Target[] => {
    const targets: Target[] = []
    for (let row = selection.top; row <= selection.bottom; row++) {
      const target = targetOf(row)
      if (target !== undefined) targets.push(target)
    }
    return targets
  }
  const insert = (fields = {}) =>
    change((present) => ({ ...present, drafts: [newDraft(fields), ...present.drafts] }))
  const duplicate = () => {
    const copies = selectedTargets().map((target) => {
      const fields: Record<string, unknown> = {}
      for (const column of table.columns) {
        const value =
          'draft' in target
            ? target.draft.fields[column.name]
            : (staged.edits.get(target.row.id)?.fields[column.name] ?? target.row[column.name])
        const isCopied =
          !['file', 'file[]'].includes(column.type) &&
          column.unique !== true &&
          column.computed === undefined
        if (isCopied && value !== undefined && value !== null) fields[column.name] = value
      }
      return newDraft(fields)
    })
    change((present) => ({ ...present, drafts: [...copies, ...present.drafts] }))
  }
  const remove = () => change((present) => stageDelete(present, selectedTargets().map(stageTarget)))

  const isChangingSet = dialog === 'update' || dialog === 'delete'
  const present = formatView({ ...view, at: '' })
  const presentPath = `${paths.table(place, table.name)}${present === '' ? '' : `?${present}`}`
  const count = countOf(staged)
  const isTooMany = operationsOf(table, staged).length > OPERATIONS_MAX
  const selected = selection.bottom - selection.top + 1
  const selectedTarget = selected === 1 ? targetOf(selection.top) : undefined
  const selectedRow =
    selectedTarget !== undefined && 'row' in selectedTarget ? selectedTarget.row : undefined
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement)
      return
    const isControl = event.ctrlKey || event.metaKey
    const key = event.key.toLowerCase()
    if (isControl && key === 's') {
      if (count > 0 && !isSaving && !isTooMany) void save()
    } else if (isControl && key === 'z' && !event.shiftKey) undo()
    else if (isControl && (key === 'y' || (key === 'z' && event.shiftKey))) redo()
    else if (canWrite && isControl && key === 'd') duplicate()
    else if (canWrite && event.shiftKey && (key === 'delete' || key === 'backspace')) remove()
    else return
    event.preventDefault()
  }
  const toggleSort = (column: string, isAdded: boolean) => {
    const present = view.sort.find((term) => term.column === column)
    const next: SortTerm[] =
      present === undefined
        ? [{ column, direction: 'asc' }]
        : present.direction === 'asc'
          ? [{ column, direction: 'desc' }]
          : []
    const others = isAdded ? view.sort.filter((term) => term.column !== column) : []
    setView({ sort: [...others, ...next] })
  }
  const onView = useCallback(
    (first: number, last: number) =>
      store.view(Math.max(0, first - draftCount), Math.max(0, last - draftCount)),
    [store, draftCount],
  )
  const gridColumns = useMemo(
    () =>
      columns.map((column) => ({
        id: column.name,
        label: column.name,
        width: preferences.widths[column.name] ?? defaultWidth(column),
        isNumeric: isNumeric(column),
        hint: column.type,
      })),
    [columns, preferences.widths],
  )
  const isFiltered = view.filter !== undefined || view.search !== ''
  const isCutOff = view.search !== '' && store.isComplete && known >= SEARCH_ROWS_MAX
  const isEmpty = store.isComplete && known === 0 && draftCount === 0
  // Cells depend on all of these; a new object makes the rows render again.
  // biome-ignore lint/correctness/useExhaustiveDependencies: only the change matters.
  const version = useMemo(() => ({}), [store, store.version, staged, faults, conflicts, columns])
  return (
    <Page
      title={table.name}
      subtitle={
        isCutOff ? (
          `The best ${SEARCH_ROWS_MAX.toLocaleString()} matches`
        ) : (
          <Amount
            key={JSON.stringify(view)}
            known={known}
            isComplete={store.isComplete}
            isFiltered={isFiltered}
            {...(view.search === '' && {
              onCount: () => stateOf(branch, view.at).table(table.name).count(view.filter),
            })}
          />
        )
      }
      isFull
      actions={
        <>
          {canWrite && (
            <Button kind="primary" icon="plus" onClick={() => insert()}>
              Insert row
            </Button>
          )}
          {canWrite && (
            <Button icon="upload" onClick={() => setDialog('import')}>
              Import
            </Button>
          )}
          <AsOf at={view.at} onChange={(at) => setView({ at })} />
          <Button icon="download" onClick={() => setDialog('export')}>
            Export
          </Button>
          <QueryCode table={table} view={view} />
          <IconButton label="Read the rows again" icon="reset" onClick={() => store.refresh()} />
        </>
      }
    >
      {/* biome-ignore lint/a11y/noStaticElementInteractions: shortcuts of the page. */}
      <div className="data" onKeyDown={onKeyDown}>
        <AsOfNote at={view.at} path={presentPath} />
        <FilterBar
          columns={[idColumn(table), ...table.columns, ...METADATA]}
          view={view}
          onChange={setView}
        >
          <ColumnsMenu columns={all} hidden={preferences.hidden} onChange={setPreferences} />
          {canWrite && known > 0 && view.search === '' && (
            <Menu
              label="All rows"
              trigger={
                <Button icon="table">{view.filter === undefined ? 'All rows' : 'All found'}</Button>
              }
              items={[
                {
                  label: 'Change a column of all…',
                  icon: 'edit',
                  onSelect: () => setDialog('update'),
                },
                {
                  label: 'Delete all…',
                  icon: 'trash',
                  isDangerous: true,
                  onSelect: () => setDialog('delete'),
                },
              ]}
            />
          )}
          {rowCount > 0 && (canWrite || selectedRow !== undefined) && (
            <Menu
              label="Selected rows"
              trigger={
                <Button icon="more" className="selected-rows">
                  {selected === 1 ? 'Row' : `${selected.toLocaleString()} rows`}
                </Button>
              }
              items={[
                selectedRow !== undefined && {
                  label: 'History of the record',
                  icon: 'clock',
                  onSelect: () => setDialog({ historyOf: selectedRow }),
                },
                canWrite && {
                  label: 'Duplicate (Ctrl D)',
                  icon: 'copy',
                  startsGroup: true,
                  onSelect: duplicate,
                },
                canWrite && {
                  label: 'Delete or keep (Shift Delete)',
                  icon: 'trash',
                  isDangerous: true,
                  onSelect: remove,
                },
              ]}
            />
          )}
        </FilterBar>
        <ErrorNote error={store.error} onRetry={() => store.retry()} />
        <ErrorNote error={error} />
        <ErrorNote error={isChangingSet ? null : setFault} />
        <ErrorNote error={work.error} onRetry={work.forget} />
        {work.operation !== undefined && !isChangingSet && (
          <OperationProgress operation={work.operation} onCancel={cancelOperation} />
        )}
        {faults.size > 0 && (
          <div className="note danger" role="alert">
            <ul className="grow">
              {[...faults].slice(0, 8).map(([row, message]) => (
                <li key={row}>
                  <code>{row.startsWith('draft-') ? 'new row' : row}</code> {message}
                </li>
              ))}
              {faults.size > 8 && <li>and {faults.size - 8} more</li>}
            </ul>
          </div>
        )}
        {isEmpty ? (
          <Empty
            icon="table"
            title={isFiltered ? 'No row matches' : 'This table has no rows yet'}
            actions={
              isFiltered ? (
                <Button onClick={() => setView({ filter: undefined, search: '' })}>
                  Clear filter and search
                </Button>
              ) : (
                canWrite && (
                  <>
                    <Button kind="primary" icon="plus" onClick={() => insert()}>
                      Insert the first row
                    </Button>
                    <Button icon="upload" onClick={() => setDialog('import')}>
                      Import a CSV file
                    </Button>
                  </>
                )
              )
            }
          >
            {isFiltered
              ? 'Change the filter, or clear it to see all rows.'
              : 'Insert a row, import a file, or paste cells from a spreadsheet into a new row.'}
          </Empty>
        ) : (
          <Grid
            label={`Rows of ${table.name}`}
            columns={gridColumns}
            rowCount={rowCount}
            isOpenEnded={!store.isComplete}
            version={version}
            rowKey={(row) => {
              const target = targetOf(row)
              return target === undefined ? `row-${row}` : keyOf(target)
            }}
            rowState={rowState}
            rowLabel={(row) => String(row - draftCount + 1)}
            cell={cell}
            cellText={(row, index) => {
              const column = columns[index]
              return column === undefined ? '' : longText(column, valueAt(row, column))
            }}
            header={(index) => {
              const column = columns[index]
              return (
                column && (
                  <ColumnHeader
                    column={column}
                    sort={view.sort}
                    onSort={toggleSort}
                    onChange={setView}
                    onHide={() => setPreferences({ hidden: [...preferences.hidden, column.name] })}
                    onMove={(by) =>
                      setPreferences({
                        order: moved(
                          all.map(({ name: one }) => one),
                          columns,
                          column.name,
                          by,
                        ),
                      })
                    }
                  />
                )
              )
            }}
            sortOf={(index) => {
              const term = view.sort.find(({ column }) => column === columns[index]?.name)
              if (term === undefined) return undefined
              return term.direction === 'asc' ? 'ascending' : 'descending'
            }}
            onView={onView}
            onSelect={setSelection}
            onResize={(column, width) =>
              setPreferences({ widths: { ...preferences.widths, [column]: width } })
            }
            onPaste={paste}
            onClear={({ top, bottom, left, right }) => {
              const cells = []
              for (let row = top; row <= bottom; row++)
                for (let column = left; column <= right; column++)
                  cells.push({ row, column, text: '' })
              setCells(cells)
            }}
            {...(canWrite
              ? {
                  editor: ({ row, column: index, typed, onEnd }) => {
                    const column = columns[index]
                    const target = targetOf(row)
                    if (column === undefined || target === undefined || !mayEdit(target, column))
                      return (
                        <ReadOnlyCell
                          onEnd={onEnd}
                          text={column ? longText(column, valueAt(row, column)) : ''}
                        />
                      )
                    return (
                      <CellEditor
                        key={`${keyOf(target)} ${column.name}`}
                        column={column}
                        value={valueAt(row, column)}
                        typed={typed}
                        row={'row' in target ? target.row : undefined}
                        onChange={(value) =>
                          change((present) =>
                            stageCell(present, stageTarget(target), column, value),
                          )
                        }
                        onEnd={onEnd}
                        onStored={() => store.refresh()}
                      />
                    )
                  },
                }
              : {})}
          />
        )}
        {isCutOff && (
          <p className="faint">
            A search finds at most {SEARCH_ROWS_MAX.toLocaleString()} rows. Add a filter or another
            word to see others.
          </p>
        )}
        {known >= GRID_ROWS_MAX && (
          <p className="faint">
            Only the first {GRID_ROWS_MAX.toLocaleString()} rows can be scrolled through. Filter or
            sort to see others.
          </p>
        )}
        {(count > 0 || canRedo) && (
          <section className="unsaved" aria-label="Changes that are not saved">
            <strong className="grow" aria-live="polite">
              {count === 0
                ? 'No changes'
                : `${count.toLocaleString()} ${count === 1 ? 'row' : 'rows'} changed, not saved`}
            </strong>
            {isTooMany && (
              <span className="editor-wrong">
                One transaction saves at most {OPERATIONS_MAX} operations
              </span>
            )}
            <Button icon="undo" disabled={!canUndo} onClick={undo}>
              Undo
            </Button>
            {canRedo && <Button onClick={redo}>Redo</Button>}
            <Button
              disabled={count === 0}
              onClick={() => {
                forget()
                clear()
              }}
            >
              Discard
            </Button>
            <Button
              kind="primary"
              icon="check"
              isBusy={isSaving}
              disabled={count === 0 || isTooMany}
              onClick={() => void save()}
            >
              Save
            </Button>
          </section>
        )}
      </div>
      {conflicts.size > 0 && (
        <ConflictDialog
          table={table}
          staged={staged}
          conflicts={conflicts}
          onClose={forget}
          onChange={change}
          onSettled={(ids) => {
            settle(ids)
            store.refresh()
          }}
        />
      )}
      {typeof dialog === 'object' && (
        <RecordHistoryDialog
          table={table}
          row={dialog.historyOf}
          onRestored={() => store.refresh()}
          onClose={() => setDialog(undefined)}
        />
      )}
      {isChangingSet && (
        <SetDialog
          kind={dialog}
          table={table}
          filter={view.filter}
          running={work.operation}
          onApply={changeSet}
          onClose={() => setDialog(undefined)}
        />
      )}
      {dialog === 'import' && (
        <ImportDialog
          table={table}
          onClose={() => {
            setDialog(undefined)
            store.refresh()
          }}
        />
      )}
      {dialog === 'export' && (
        <ExportDialog
          table={table}
          columns={columns}
          view={view}
          onClose={() => setDialog(undefined)}
        />
      )}
    </Page>
  )
}

const MONO: ReadonlySet<string> = new Set(['json', 'object', 'vector', 'datetime', 'uuid', 'link'])

function cellContent(column: ColumnDefinition, value: unknown): React.ReactNode {
  if (column.type === 'bool') {
    return <span className={`tag ${value === true ? 'good' : ''}`}>{String(value)}</span>
  }
  if (column.type === 'multiple') {
    return (value as readonly string[]).slice(0, 20).map((item, index) => (
      // biome-ignore lint/suspicious/noArrayIndexKey: the same text may be there twice.
      <span key={index} className="tag chip-tag">
        {item.slice(0, 60)}
      </span>
    ))
  }
  if (column.type === 'link') {
    return <span className="link-cell">{shortText(column, value)}</span>
  }
  return shortText(column, value)
}

function placeholderOf(column: ColumnDefinition): string {
  if (column.name === 'id') return 'generated'
  if (column.computed !== undefined) return 'computed'
  if (column.defaultValue !== undefined) return column.defaultValue
  return column.notNull === true ? 'required' : ''
}

function faultIsAbout(fault: string, column: string): boolean {
  return fault.includes(`column [${column}]`) || fault.includes(`column [${column}.`)
}

function titleOf(fault: string | undefined, isWrong: boolean): { title?: string } {
  return isWrong && fault !== undefined ? { title: fault } : {}
}

/** Moves a column past its visible neighbour. */
function moved(
  all: readonly string[],
  shown: readonly ColumnDefinition[],
  name: string,
  by: -1 | 1,
): readonly string[] {
  const position = shown.findIndex((column) => column.name === name)
  const neighbour = shown[position + by]?.name
  if (neighbour === undefined) return all
  const rest = all.filter((one) => one !== name)
  const place = rest.indexOf(neighbour) + (by === 1 ? 1 : 0)
  return [...rest.slice(0, place), name, ...rest.slice(place)]
}

/** A cell that may not be changed; its text can still be selected and copied. */
function ReadOnlyCell({ text, onEnd }: { text: string; onEnd: (move: 'stay') => void }) {
  return (
    <span className="editor-inline">
      <input
        // biome-ignore lint/a11y/noAutofocus: the user has just opened this cell.
        autoFocus
        readOnly
        aria-label="Value, read-only"
        value={text}
        onFocus={(event) => event.currentTarget.select()}
        onBlur={() => onEnd('stay')}
        onKeyDown={(event) => {
          if (!['Escape', 'Enter', 'Tab'].includes(event.key)) return
          event.preventDefault()
          event.stopPropagation()
          onEnd('stay')
        }}
      />
    </span>
  )
}

/** How many rows there are, as far as they were read. All are counted on demand, because that reads all of them. */
function Amount({
  known,
  isComplete,
  isFiltered,
  onCount,
}: {
  known: number
  isComplete: boolean
  isFiltered: boolean
  onCount?: () => Promise<number>
}) {
  const counting = useMutation({ ...(onCount && { mutationFn: onCount }), onError: notifyError })
  const inWords = (count: number) =>
    `${count.toLocaleString()} ${count === 1 ? 'row' : 'rows'}${isFiltered ? ' found' : ''}`
  if (isComplete) return inWords(known)
  if (known === 0) return 'Reading'
  if (counting.isSuccess) return `${inWords(counting.data)} when they were counted`
  if (onCount === undefined) return `More than ${inWords(known)}`
  return (
    <span className="row">
      {`More than ${inWords(known)}`}
      <button
        type="button"
        className="link"
        disabled={counting.isPending}
        onClick={() => counting.mutate()}
      >
        {counting.isPending ? 'Counting' : 'Count all'}
      </button>
    </span>
  )
}
