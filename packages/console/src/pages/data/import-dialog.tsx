import {
  type ColumnDefinition,
  InsertManyError,
  OffshootError,
  type SchemaOperation,
  type TableDefinition,
} from '@offshoot/client'
import { useQueryClient } from '@tanstack/react-query'
import { useRef, useState } from 'react'
import { keys } from '../../api/answers.js'
import { useBranch, usePlace } from '../../api/place.js'
import { goTo } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { Dialog } from '../../ui/dialog.js'
import { ErrorNote } from '../../ui/feedback.js'
import { Field, TextField } from '../../ui/field.js'
import { TableHead } from '../../ui/table-head.js'
import {
  type CsvSample,
  cellOf,
  columnName,
  exactNumber,
  guessColumn,
  readRows,
  readSample,
  recordOf,
  SAMPLE_ROWS,
} from './csv-file.js'
import { insertRows, upsertRows } from './store-rows.js'
import { idColumn } from './values.js'

/** Faults that are listed. */
const FAULTS_SHOWN = 100
const SAMPLE_SHOWN = 20

/** Where the cells of a column of the file go. */
type Mapping = { readonly to: string } | { readonly create: ColumnDefinition } | undefined

/** Columns that the import adds to the table. */
function createdBy(mappings: readonly Mapping[]): readonly ColumnDefinition[] {
  return mappings.flatMap((mapping) =>
    mapping !== undefined && 'create' in mapping ? [mapping.create] : [],
  )
}

interface Fault {
  readonly row: number
  readonly message: string
}

interface Progress {
  /** The part of the file that is imported, from 0 to 1. */
  readonly share: number
  readonly inserted: number
  readonly updated: number
  readonly failed: number
  readonly isDone: boolean
}

const START: Progress = { share: 0, inserted: 0, updated: 0, failed: 0, isDone: false }

/** The ways to find the record of a row: by the id, by a unique column, or by a unique constraint. */
function keysOf(table: TableDefinition | undefined, given: readonly string[]): readonly string[] {
  const unique = (table?.columns ?? []).filter((column) => column.unique).map(({ name }) => [name])
  const rules = (table?.constraints ?? []).flatMap((rule) =>
    'unique' in rule ? [[rule.name, ...rule.unique]] : [],
  )
  const isGiven = (columns: readonly string[]) => columns.every((name) => given.includes(name))
  return [
    ...['id', ...unique.flat()].filter((name) => given.includes(name)),
    ...rules.filter(([, ...columns]) => isGiven(columns)).flatMap(([name = '']) => name),
  ]
}

/** The name of a table that a file gets. */
const tableName = (file: File) =>
  file.name.replace(/\.\w+$/, '').replace(/[^\p{L}\p{N}_~-]+/gu, '_')

/** Imports a CSV file: a preview with types and faults first, then all rows. Without a table, it makes one. */
export function ImportDialog({ table, onClose }: { table?: TableDefinition; onClose: () => void }) {
  const branch = useBranch()
  const place = usePlace()
  const queries = useQueryClient()
  const [file, setFile] = useState<File>()
  const [sample, setSample] = useState<CsvSample>()
  const [mappings, setMappings] = useState<readonly Mapping[]>([])
  const [progress, setProgress] = useState<Progress>()
  const [newName, setNewName] = useState('')
  const name = table?.name ?? newName
  /** How the record of a row is found; empty if all rows are new. */
  const [by, setBy] = useState('')
  const [faults, setFaults] = useState<readonly Fault[]>([])
  const [error, setError] = useState<unknown>(null)
  const abort = useRef<AbortController>(undefined)
  const known = [
    idColumn(table),
    ...(table?.columns ?? []).filter(
      ({ type, computed }) => !type.startsWith('file') && computed === undefined,
    ),
  ]
  const columnOf = (mapping: Mapping): ColumnDefinition | undefined => {
    if (mapping === undefined) return undefined
    if ('create' in mapping) return mapping.create
    return known.find(({ name }) => name === mapping.to)
  }
  const targets = mappings.map(columnOf)
  const names = targets.flatMap((column) => (column === undefined ? [] : [column.name]))
  const found = keysOf(table, names)
  const isKey = found.includes(by)
  const open = async (chosen: File) => {
    setFile(chosen)
    setError(null)
    setFaults([])
    setProgress(undefined)
    try {
      const read = await readSample(chosen)
      setSample(read)
      setNewName(tableName(chosen))
      setMappings(
        read.header.map((heading, index) => {
          const name = columnName(heading, index)
          const same = known.find(
            (column) => column.name.toLowerCase() === heading.toLowerCase() || column.name === name,
          )
          if (same !== undefined) return { to: same.name }
          const guessed = guessColumn(read.rows.map((row) => row[index] ?? ''))
          return { create: { name, ...guessed } }
        }),
      )
    } catch (caught) {
      setError(caught)
    }
  }
  const run = async () => {
    if (file === undefined) return
    const controller = new AbortController()
    abort.current = controller
    setError(null)
    setFaults([])
    setProgress(START)
    const wrong: Fault[] = []
    let failed = 0
    let stored = { inserted: 0, updated: 0, failed: 0 }
    let readShare = 0
    const note = (fault: Fault) => {
      failed++
      if (wrong.length < FAULTS_SHOWN) wrong.push(fault)
    }
    // The service counts the records that it gets, so this finds their rows in the file.
    const rows: number[] = []
    async function* records(chosen: File) {
      let row = 1
      for await (const { cells, share } of readRows(chosen)) {
        row++
        readShare = share
        const { record, faults: found } = recordOf(cells, targets)
        if (found.length > 0) note({ row, message: found.join('; ') })
        else {
          rows.push(row)
          yield record
        }
      }
    }
    try {
      const edits: SchemaOperation[] = [
        ...(table === undefined ? [{ addTable: { table: name } }] : []),
        ...createdBy(mappings).map((column) => ({ addColumn: { table: name, column } })),
      ]
      if (edits.length > 0) {
        await branch.applySchema(edits)
        await queries.invalidateQueries({ queryKey: keys.schema(place) })
      }
      const options = {
        signal: controller.signal,
        onProgress: (now: typeof stored) => {
          stored = now
          // Rows that were read are sent and answered later.
          const share = (readShare * (now.inserted + now.updated + now.failed)) / rows.length
          setProgress({ ...now, share, failed: failed + now.failed, isDone: false })
        },
      }
      const target = branch.table(name)
      const result = isKey
        ? await upsertRows(target, records(file), { ...options, by })
        : await insertRows(target, records(file), options)
      for (const { index, message } of result.errors) {
        if (wrong.length < FAULTS_SHOWN) wrong.push({ row: rows[index] ?? 0, message })
      }
      const { inserted, updated } = result
      setProgress({ share: 1, inserted, updated, failed: failed + result.failed, isDone: true })
    } catch (caught) {
      // After a cancellation, only a doubt about what is stored is worth a message.
      const isDoubtful = caught instanceof InsertManyError && !caught.isCertain
      if (!controller.signal.aborted || isDoubtful) setError(caught)
      for (const { index, message } of caught instanceof OffshootError
        ? (caught.errors ?? [])
        : []) {
        wrong.push({ row: rows[index] ?? 0, message })
      }
      setProgress({ ...stored, share: 1, failed: failed + stored.failed, isDone: true })
    }
    setFaults(wrong.toSorted((left, right) => left.row - right.row))
    await queries.invalidateQueries({ queryKey: keys.branch(place) })
  }
  const isTwice = names.some((name, index) => names.indexOf(name) !== index)
  const close = () => {
    abort.current?.abort()
    onClose()
  }
  const isRunning = progress !== undefined && !progress.isDone
  return (
    <Dialog
      title={table === undefined ? 'Import a new table' : `Import into ${table.name}`}
      description="A CSV file whose first line has the names of the columns."
      onClose={close}
      wide
    >
      <label className="field">
        <span>File</span>
        <input
          type="file"
          accept=".csv,.tsv,.txt,text/csv"
          disabled={isRunning}
          onChange={(event) => {
            const chosen = event.target.files?.[0]
            if (chosen !== undefined) void open(chosen)
          }}
        />
      </label>
      {sample !== undefined && progress === undefined && table === undefined && (
        <TextField
          label="Name of the table"
          hint="Letters, digits and _ - ~"
          maxLength={255}
          spellCheck={false}
          value={newName}
          onChange={setNewName}
        />
      )}
      {sample !== undefined &&
        progress === undefined &&
        found.length > 0 &&
        table !== undefined && (
          <Field
            label="Rows that exist"
            hint={
              isKey
                ? 'Columns that the file does not have stay as they are.'
                : 'A row whose id or unique value exists is left out.'
            }
          >
            <select value={isKey ? by : ''} onChange={(event) => setBy(event.target.value)}>
              <option value="">insert all rows as new ones</option>
              {found.map((key) => (
                <option key={key} value={key}>
                  change those with the same {key}
                </option>
              ))}
            </select>
          </Field>
        )}
      {sample !== undefined && progress === undefined && (
        <Sample
          sample={sample}
          known={known}
          mappings={mappings}
          targets={targets}
          onMap={(index, mapping) =>
            setMappings(mappings.map((one, other) => (other === index ? mapping : one)))
          }
        />
      )}
      {isTwice && <p className="editor-wrong">Two columns of the file go to the same column.</p>}
      <ErrorNote error={error} />
      {isRunning && (
        <div className="row">
          <progress className="grow" aria-label="Part of the file" value={progress.share} />
          <span>{Math.floor(progress.share * 100)} %</span>
        </div>
      )}
      {progress !== undefined && (
        <p role="status">
          {progress.inserted.toLocaleString()} rows imported
          {progress.updated > 0 && `, ${progress.updated.toLocaleString()} changed`}
          {progress.failed > 0 && `, ${progress.failed.toLocaleString()} left out`}
          {progress.isDone ? '.' : ' so far'}
        </p>
      )}
      {faults.length > 0 && (
        <div className="import-sample">
          <table className="facts">
            <TableHead titles={['Line', 'What is wrong']} />
            <tbody>
              {faults.map(({ row, message }) => (
                <tr key={`${row} ${message}`}>
                  <td>{row}</td>
                  <td>{message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <div className="row end">
        <Button onClick={close}>{progress?.isDone ? 'Close' : 'Cancel'}</Button>
        {progress?.isDone && table === undefined && (
          <Button kind="primary" onClick={() => goTo(paths.table(place, name))}>
            Open {name}
          </Button>
        )}
        {!progress?.isDone && (
          <Button
            kind="primary"
            icon="upload"
            isBusy={isRunning}
            disabled={sample === undefined || names.length === 0 || isTwice || name === ''}
            onClick={() => void run()}
          >
            Import
          </Button>
        )}
      </div>
    </Dialog>
  )
}

/** Digits after the point of exact numbers, unless the file shows another number of them. */
const SCALE = 2
const NEW_TYPES: readonly ColumnDefinition['type'][] = [
  'string',
  'text',
  'int',
  'float',
  'decimal',
  'bool',
  'datetime',
  'date',
  'time',
  'uuid',
  'email',
  'multiple',
  'json',
]

/** The first rows of the file, with a choice above each column, and the cells that do not fit. */
function Sample({
  sample,
  known,
  mappings,
  targets,
  onMap,
}: {
  sample: CsvSample
  known: readonly ColumnDefinition[]
  mappings: readonly Mapping[]
  targets: readonly (ColumnDefinition | undefined)[]
  onMap: (index: number, mapping: Mapping) => void
}) {
  const created = createdBy(mappings)
  const wrong = sample.rows.filter((row) => recordOf(row, targets).faults.length > 0).length
  return (
    <>
      <p className={wrong > 0 ? 'editor-wrong' : 'faint'} role="status">
        {wrong === 0
          ? `All of the first ${sample.rows.length} rows fit.`
          : `${wrong} of the first ${sample.rows.length} rows do not fit, and will be left out.`}
        {sample.rows.length === SAMPLE_ROWS && ' The rest is checked during the import.'}
      </p>
      {created.length > 0 && (
        <p>
          The table gets {created.length === 1 ? 'a new column' : 'new columns'}:{' '}
          {created.map(({ name, type }) => `${name} (${type})`).join(', ')}
        </p>
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it is scrolled with the keyboard. */}
      <section className="import-sample" tabIndex={0} aria-label="First rows of the file">
        <table className="facts">
          <thead>
            <tr>
              <th>Line</th>
              {sample.header.map((heading, index) => {
                const mapping = mappings[index]
                const chosen =
                  mapping === undefined
                    ? ''
                    : 'to' in mapping
                      ? `to ${mapping.to}`
                      : `new ${mapping.create.type}`
                return (
                  // biome-ignore lint/suspicious/noArrayIndexKey: headings may be there twice.
                  <th key={index}>
                    <div className="clip">{heading || `column ${index + 1}`}</div>
                    <select
                      aria-label={`Target of ${heading}`}
                      value={chosen}
                      onChange={(event) => {
                        const [kind, ...rest] = event.target.value.split(' ')
                        const value = rest.join(' ')
                        if (kind === 'to') onMap(index, { to: value })
                        else if (kind === 'new') {
                          const type = value as ColumnDefinition['type']
                          const definition = type === 'decimal' ? exactNumber(SCALE) : { type }
                          const name = columnName(heading, index)
                          onMap(index, { create: { name, ...definition } })
                        } else onMap(index, undefined)
                      }}
                    >
                      <option value="">leave out</option>
                      <optgroup label="Column of the table">
                        {known.map(({ name, type }) => (
                          <option key={name} value={`to ${name}`}>
                            {name} ({type})
                          </option>
                        ))}
                      </optgroup>
                      <optgroup label={`New column ${columnName(heading, index)}`}>
                        {NEW_TYPES.map((type) => (
                          <option key={type} value={`new ${type}`}>
                            new: {type}
                          </option>
                        ))}
                      </optgroup>
                    </select>
                  </th>
                )
              })}
            </tr>
          </thead>
          <tbody>
            {sample.rows.slice(0, SAMPLE_SHOWN).map((row, line) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: rows of a file have no identity.
              <tr key={line}>
                <td className="number faint">{line + 2}</td>
                {sample.header.map((_, index) => {
                  const column = targets[index]
                  const text = row[index] ?? ''
                  const parsed = column === undefined ? { value: '' } : cellOf(column, text)
                  const fault = 'fault' in parsed ? parsed.fault : undefined
                  return (
                    <td
                      // biome-ignore lint/suspicious/noArrayIndexKey: cells have no identity.
                      key={index}
                      className={fault === undefined ? '' : 'wrong'}
                      title={fault ?? text.slice(0, 500)}
                    >
                      {text.slice(0, 100)}
                    </td>
                  )
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  )
}
