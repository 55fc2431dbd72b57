import type { ColumnDefinition, TableDefinition } from '@offshoot/client'
import { useRef, useState } from 'react'
import { useBranch, usePlace } from '../../api/place.js'
import { Button } from '../../ui/button.js'
import { Dialog } from '../../ui/dialog.js'
import { ErrorNote } from '../../ui/feedback.js'
import { Field } from '../../ui/field.js'
import { saveBlob } from '../../ui/save-blob.js'
import { csvLine, lineOf } from './export-lines.js'
import { pageReader, readAll, SEARCH_ROWS_MAX } from './row-pages.js'
import type { View } from './view.js'

const PAGE_SIZE = 1000

/** Writes the rows of the view, in their order, to a CSV or NDJSON file. */
export function ExportDialog({
  table,
  columns,
  view,
  onClose,
}: {
  table: TableDefinition
  columns: readonly ColumnDefinition[]
  view: View
  onClose: () => void
}) {
  const branch = useBranch()
  const { branch: branchName } = usePlace()
  const [format, setFormat] = useState<'csv' | 'ndjson'>('csv')
  const [count, setCount] = useState<number>()
  const [error, setError] = useState<unknown>(null)
  const abort = useRef<AbortController>(undefined)
  const isRunning = count !== undefined
  const run = async () => {
    const controller = new AbortController()
    abort.current = controller
    setError(null)
    setCount(0)
    try {
      // A blob of parts: the browser moves large ones out of memory.
      let content = new Blob([format === 'csv' ? csvLine(columns.map(({ name }) => name)) : ''])
      let rows = 0
      const { signal } = controller
      const read = pageReader(branch, table.name, { view, columns: undefined, signal })
      for await (const records of readAll(read, PAGE_SIZE)) {
        const lines = records.map((record) => lineOf(record, columns, format))
        content = new Blob([content, lines.join('')])
        rows += records.length
        setCount(rows)
      }
      saveBlob(content, `${table.name}-${branchName}.${format}`)
      onClose()
    } catch (caught) {
      if (!controller.signal.aborted) setError(caught)
      setCount(undefined)
    }
  }
  return (
    <Dialog
      title={`Export ${table.name}`}
      description={`${whichRows(view)}, in the order of the grid, with the visible columns.`}
      onClose={() => {
        abort.current?.abort()
        onClose()
      }}
    >
      <Field label="Format">
        <select
          value={format}
          disabled={isRunning}
          onChange={(event) => setFormat(event.target.value as 'csv' | 'ndjson')}
        >
          <option value="csv">CSV: for spreadsheets</option>
          <option value="ndjson">NDJSON: one JSON record per line, as imports take it</option>
        </select>
      </Field>
      <ErrorNote error={error} />
      <div className="row end">
        {isRunning && (
          <span className="grow" role="status">
            {count.toLocaleString()} rows read
          </span>
        )}
        <Button
          onClick={() => {
            abort.current?.abort()
            onClose()
          }}
        >
          Cancel
        </Button>
        <Button kind="primary" icon="download" isBusy={isRunning} onClick={() => void run()}>
          Export
        </Button>
      </div>
    </Dialog>
  )
}

function whichRows({ filter, search }: View): string {
  if (search !== '') {
    const most = SEARCH_ROWS_MAX.toLocaleString()
    return `The rows that the search finds${filter === undefined ? '' : ' and that match the filter'}, at most ${most}`
  }
  return filter === undefined ? 'All rows' : 'The rows that match the filter'
}
