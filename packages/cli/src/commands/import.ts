import { stat } from 'node:fs/promises'
import {
  type AnySchema,
  type ColumnDefinition,
  type ColumnType,
  type Fault,
  InsertManyError,
  type SchemaOperation,
  type Table,
} from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import {
  emptyRecord,
  flatColumns,
  isEmptyCell,
  readCell,
  setAt,
  TypeInference,
} from '../shared/csv-values.js'
import { documentOf, isPlain, markedNumber } from '../shared/documents.js'
import { EXIT, UsageError } from '../shared/failure.js'
import { notice, Progress, printJson } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { type FileRow, FORMATS, type Format, type Row, readRows } from '../shared/read-rows.js'
import { withBranch } from '../shared/target.js'
import { describeOperation } from './diff.js'

interface ImportFlags {
  readonly json?: boolean
  readonly table: string
  readonly format?: string
  readonly create?: boolean
  readonly partial?: boolean
  readonly upsert?: boolean
  readonly by?: string
  readonly skipExisting?: boolean
  readonly yes?: boolean
}

/** Rows that are read to find the types of a new table. */
const SAMPLE_ROWS = 10_000
const FAULTS_SHOWN = 10

/** `offshoot import`: inserts the records of a file. */
export const importCommand = () =>
  withBranch(
    createCommand('import', 'insert the records of a CSV, NDJSON or JSON file', [
      'offshoot import people.csv --table people --create',
      'offshoot import people.ndjson --table people',
      'offshoot import people.csv --table people --by email',
    ]),
  )
    .argument('<file>', 'the file; its name ends in .csv, .ndjson or .json')
    .requiredOption('--table <name>', 'table to insert into')
    .option('--format <format>', 'csv, ndjson or json; default: by the name of the file')
    .option('--create', 'create the table, with columns and types found in the file')
    .option('--upsert', 'replace existing records that have the id of a record of the file')
    .option(
      '--by <column>',
      'change the records that have the same value in this unique column, constraint or id, and insert the others',
    )
    .option('--skip-existing', 'leave out records whose id exists')
    .option('--partial', 'insert all valid records even if others are refused')
    .option('--yes', 'do not ask')
    .action(
      action<ImportFlags, [string]>(async (target, flags, file) => {
        const format = formatOf(file, flags.format)
        requireOneMode(flags)
        const info = await stat(file).catch((error: Error) => {
          throw new UsageError(`cannot read [${file}]: ${error.message}`)
        })
        const isFile = info.isFile()
        const branch = await target.branch()
        const { tables } = await branch.schema()
        let table = tables.find(({ name }) => name === flags.table)
        notice(
          `Importing ${file} into ${target.databaseName}:${branch.name}, table ${flags.table}, on ${target.url}`,
        )
        if (table === undefined) {
          if (!flags.create) {
            throw new UsageError(
              `branch [${branch.name}] has no table [${flags.table}]; create it with --create`,
            )
          }
          if (!isFile) throw new UsageError(`--create: [${file}] cannot be read twice`)
          const columns = await inferColumns(file, format)
          const operations = createTable(flags.table, columns)
          for (const operation of operations) notice(`  ${describeOperation(operation)}`)
          await requireConsent('The table will be created as shown.', flags.yes)
          await branch.applySchema(operations)
          table = { name: flags.table, columns }
        }
        const toRecord =
          format === 'csv' ? recordOfCells(table.columns) : recordOfValues(table.columns)
        const source = { file, format, toRecord: withoutComputed(table.columns, toRecord) }
        const rows = { ...flags, size: info.size, isFile }
        const handle = branch.table(flags.table)
        return flags.by === undefined
          ? importRows(handle, source, rows)
          : upsertRows(handle, source, { ...rows, by: flags.by })
      }),
    )

interface Source {
  readonly file: string
  readonly format: Format
  /** Makes the record of a row. */
  readonly toRecord: (row: FileRow) => Row
}

async function importRows(
  table: Table<AnySchema, string>,
  source: Source,
  flags: ImportFlags & { size: number; isFile: boolean },
): Promise<number> {
  const progress = new Progress('Imported', 'Sent')
  const interrupt = new Interrupt(flags)
  let bytes = 0
  let settled = { sent: 0, inserted: 0, failed: 0 }
  const entries: string[] = []
  const read = async function* () {
    interrupt.isRead = false
    bytes = 0
    const rows = readRows(source.file, source.format, (more) => {
      bytes += more
    })
    for await (const row of rows) {
      if (interrupt.isStopped) break
      yield source.toRecord(row)
    }
    interrupt.isRead = true
  }
  try {
    // A pipe can be read only once, so its records cannot be sent again after a lost connection.
    const result = await table.insertMany(flags.isFile ? read : read(), {
      mode: flags.partial ? 'partial' : 'atomic',
      existing: flags.upsert ? 'replace' : flags.skipExisting ? 'skip' : 'refuse',
      signal: interrupt.signal,
      onEntry: (entry) => entries.push(entry),
      onProgress: (now) => {
        settled = now
        progress.update(now.sent, bytes / flags.size)
      },
    })
    progress.end(result.inserted + result.updated)
    if (flags.json) printJson(result)
    await reportFaults(source, flags, result.errors)
    if (result.updated > 0) {
      notice(`${result.inserted} were new, ${result.updated} have replaced existing records.`)
    }
    if (result.skipped > 0) notice(`${result.skipped} were skipped, because their ids exist.`)
    if (result.failed > 0) {
      notice(`${result.failed} ${result.failed === 1 ? 'record was' : 'records were'} refused.`)
    }
    if (entries.length > 0 && result.updated === 0) notice(howToRevert(entries))
    if (interrupt.isStopped) {
      notice(`Stopped after ${settled.sent} records. All that were valid are stored.`)
      return EXIT.interrupted
    }
    return result.failed > 0 ? EXIT.failed : EXIT.done
  } catch (error) {
    progress.clear()
    if (error instanceof InsertManyError) {
      notice(`offshoot: ${error.message}`)
      await reportFaults(source, flags, error.errors ?? [])
      notice(adviceAfter(error, flags))
      return error.code === 'cancelled' ? EXIT.interrupted : EXIT.failed
    }
    if (flags.partial && settled.inserted > 0) {
      const { sent, inserted } = settled
      notice(`Of the first ${sent} records, ${inserted} were inserted; no others were.`)
    } else if (error instanceof UsageError) notice('Nothing was inserted.')
    throw error
  } finally {
    interrupt.close()
  }
}

/** Commands that are shown to take back an import. */
const REVERTS_SHOWN = 5

/** Says how to take back an import. A partial one is an entry of the log for each batch. */
function howToRevert(entries: readonly string[]): string {
  const shown = entries.slice(0, REVERTS_SHOWN).map((entry) => `offshoot revert ${entry}`)
  const more = entries.length - shown.length
  const rest = more === 0 ? '' : `, and so on for ${more} more that offshoot log lists`
  return `To take it back: ${shown.join(', ')}${rest}`
}

/** Records of a request, which is a transaction. */
const UPSERTED_AT_ONCE = 2000

/** Changes the records that a column identifies, and inserts the others. A refused record does not affect the others. */
async function upsertRows(
  table: Table<AnySchema, string>,
  source: Source,
  flags: ImportFlags & { by: string; size: number; isFile: boolean },
): Promise<number> {
  const progress = new Progress('Imported', 'Sent')
  const counts = { inserted: 0, updated: 0, unchanged: 0, failed: 0 }
  const errors: Fault[] = []
  let bytes = 0
  let sent = 0
  const send = async (records: readonly Row[]) => {
    const { results } = await table.upsertMany(records, { by: flags.by })
    results.forEach((result, index) => {
      counts[result.outcome]++
      if (result.outcome === 'failed') {
        errors.push({ index: sent + index, message: result.error.message })
      }
    })
    sent += records.length
    progress.update(sent, bytes / flags.size)
  }
  let waiting: Row[] = []
  const rows = readRows(source.file, source.format, (more) => {
    bytes += more
  })
  try {
    for await (const row of rows) {
      if (waiting.push(source.toRecord(row)) < UPSERTED_AT_ONCE) continue
      await send(waiting)
      waiting = []
    }
    if (waiting.length > 0) await send(waiting)
  } catch (error) {
    progress.clear()
    if (sent > 0) {
      notice(`Of the first ${sent} records, all that were valid are stored; no others are.`)
    }
    throw error
  }
  progress.end(sent - counts.failed)
  if (flags.json) printJson({ ...counts, errors })
  await reportFaults(source, flags, errors)
  notice(
    `New: ${counts.inserted}, changed: ${counts.updated}, the same as before: ${counts.unchanged}, refused: ${counts.failed}.`,
  )
  return counts.failed > 0 ? EXIT.failed : EXIT.done
}

function adviceAfter(
  { isCertain, settled, errors }: InsertManyError,
  { partial }: ImportFlags,
): string {
  if (partial) {
    return `  To continue: import the records from number ${settled + 1} on. Records with an id that is stored are refused.`
  }
  if (isCertain && errors?.some(({ message }) => /column \[id\]: is not unique/.test(message))) {
    return '  To change the records that exist, use --by id or --upsert. To leave them out, use --skip-existing.'
  }
  if (isCertain) return '  Correct the cause, and import the file again.'
  return '  Look whether the records are there. If they have ids, import again with --skip-existing.'
}

/** Shows the first refused records, by their lines in the file. */
async function reportFaults(
  { file, format }: Source,
  { isFile }: { isFile: boolean },
  faults: readonly Fault[],
): Promise<void> {
  const shown = faults.slice(0, FAULTS_SHOWN)
  const last = Math.max(-1, ...shown.map(({ index }) => index))
  const wanted = new Set(shown.map(({ index }) => index))
  const lines = new Map<number, number | undefined>()
  // The lines of all records would not fit into memory, so the file is read again.
  if (isFile && last >= 0) {
    let index = 0
    for await (const { line } of readRows(file, format)) {
      if (wanted.has(index)) lines.set(index, line)
      if (++index > last) break
    }
  }
  for (const { index, message } of shown) {
    const line = lines.get(index)
    notice(`  ${line === undefined ? `record ${index + 1}` : `line ${line}`}: ${message}`)
  }
  if (faults.length > shown.length) notice(`  and ${faults.length - shown.length} more`)
}

/** Ends an import on Ctrl-C such that it is known what is stored, if that is possible. */
class Interrupt {
  readonly #controller = new AbortController()
  readonly #isPartial: boolean
  readonly #onSignal = () => this.#stop()
  /** Whether all records were read. */
  isRead = false
  /** Whether no more records should be read. */
  isStopped = false
  #isAsked = false

  constructor({ partial = false }: ImportFlags) {
    this.#isPartial = partial
    process.on('SIGINT', this.#onSignal)
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  close(): void {
    process.off('SIGINT', this.#onSignal)
  }

  #stop(): void {
    const canWait = this.#isPartial || this.isRead
    if (this.#isAsked || !canWait) {
      this.#controller.abort()
      return
    }
    this.#isAsked = true
    if (this.#isPartial) this.isStopped = true
    notice('\nWaiting for the service to store what was sent. Press Ctrl-C again to stop waiting.')
  }
}

/** Leaves out the values of computed columns, which the service calculates itself, and says so. */
function withoutComputed(
  columns: readonly ColumnDefinition[],
  toRecord: Source['toRecord'],
): Source['toRecord'] {
  const computed = columns.filter((column) => column.computed !== undefined)
  if (computed.length === 0) return toRecord
  const announced = new Set<string>()
  return (row) => {
    const record = toRecord(row)
    for (const { name } of computed) {
      if (!Object.hasOwn(record, name)) continue
      delete record[name]
      if (!announced.has(name)) notice(`Left out: ${name} (computed)`)
      announced.add(name)
    }
    return record
  }
}

/** Makes records of the values of JSON rows. Long numbers keep their digits where columns do. */
function recordOfValues(columns: readonly ColumnDefinition[]): Source['toRecord'] {
  const types = new Map(flatColumns(columns).map(({ name, type }) => [name, type]))
  const read = (value: unknown, name: string): unknown => {
    const type = types.get(name)
    // The service takes a number of more than 15 digits as one that may have been rounded.
    if (type === 'decimal' && typeof value === 'number') return String(value)
    if (type === 'json') return isPlain(value) || value === null ? value : readDocument(value)
    const number = markedNumber(value)
    if (number !== undefined) {
      return type === 'decimal' ? number : type === 'int' ? readCell(number, type) : Number(number)
    }
    if (typeof value !== 'object' || value === null) return value
    if (Array.isArray(value)) return value.map((item) => read(item, ''))
    const members = emptyRecord()
    for (const [key, member] of Object.entries(value)) members[key] = read(member, `${name}.${key}`)
    return members
  }
  const hasDecimal = [...types.values()].includes('decimal')
  return ({ row, isMarked = false }) => {
    if (!isMarked && !hasDecimal) return row
    const record = emptyRecord()
    for (const [name, value] of Object.entries(row)) record[name] = read(value, name)
    return record
  }
}

/** A text is sent as it is: the service reads it as JSON. */
function readDocument(value: unknown): unknown {
  const number = markedNumber(value)
  return number ?? (typeof value === 'string' ? value : documentOf(value))
}

/** Makes records of the texts of CSV rows. */
function recordOfCells(columns: readonly ColumnDefinition[]): Source['toRecord'] {
  const types = new Map(flatColumns(columns).map(({ name, type }) => [name, type]))
  const canBeNull = new Set(
    columns
      .filter(({ notNull, type }) => notNull !== true && type !== 'file' && type !== 'file[]')
      .map(({ name }) => name),
  )
  return ({ row }) => {
    const record: Row = emptyRecord()
    for (const [name, cell] of Object.entries(row)) {
      const type = types.get(name) ?? 'string'
      const text = cell as string | null
      if (!isEmptyCell(text, type)) setAt(record, name, readCell(text, type))
      // A column that is left out gets its default. An object whose cells are all empty has no value.
      else {
        const [outer = ''] = name.split('.')
        if (canBeNull.has(outer)) record[outer] ??= null
      }
    }
    return record
  }
}

function requireOneMode({ upsert, by, skipExisting, partial }: ImportFlags): void {
  const given = [
    ...(upsert ? ['--upsert'] : []),
    ...(by === undefined ? [] : ['--by']),
    ...(skipExisting ? ['--skip-existing'] : []),
    ...(partial ? ['--partial'] : []),
  ]
  if (given.length > 1) throw new UsageError(`${given.join(' and ')} exclude each other`)
}

function formatOf(file: string, given: string | undefined): Format {
  const name = given ?? /\.(\w+)$/.exec(file)?.[1]?.toLowerCase()
  const format = name === 'jsonl' ? 'ndjson' : FORMATS.find((known) => known === name)
  if (format !== undefined) return format
  throw new UsageError(`the format of [${file}] is not known: use --format csv, ndjson or json`)
}

function createTable(table: string, columns: readonly ColumnDefinition[]): SchemaOperation[] {
  return [{ addTable: { table } }, ...columns.map((column) => ({ addColumn: { table, column } }))]
}

/** Finds the type of a column of a file. */
interface ColumnInference {
  add(value: unknown): void
  readonly definition: Pick<ColumnDefinition, 'type' | 'decimal'>
}

/** Reads a part of a file, and finds a type for each column. */
async function inferColumns(file: string, format: Format): Promise<ColumnDefinition[]> {
  const columns = new Map<string, ColumnInference>()
  let rows = 0
  for await (const { row } of readRows(file, format)) {
    for (const [name, value] of Object.entries(row)) {
      if (name === 'id') continue
      const known = columns.get(name)
      const column = known ?? (format === 'csv' ? new TypeInference() : new ValueInference())
      if (known === undefined) columns.set(name, column)
      column.add(value)
    }
    if (++rows === SAMPLE_ROWS) break
  }
  if (rows === 0) throw new UsageError(`[${file}] has no records`)
  return [...columns].map(([name, { definition }]) => {
    if (!/^[a-zA-Z0-9_~-]{1,255}$/.test(name)) {
      throw new UsageError(
        `column [${name}]: a column of a new table has letters, digits and _ - ~ in its name`,
      )
    }
    return { name, ...definition }
  })
}

/** Finds the narrowest type that fits all values of a column in JSON. */
class ValueInference implements ColumnInference {
  /** undefined: there are no values. */
  #type: ColumnType | 'number' | undefined
  readonly #numbers = new TypeInference('numbers')

  add(value: unknown): void {
    if (value === null) return
    const number = typeof value === 'number' ? String(value) : markedNumber(value)
    if (number !== undefined) this.#numbers.add(number)
    this.#type = widest(this.#type, number === undefined ? typeOf(value) : 'number')
  }

  get definition(): ColumnInference['definition'] {
    const type = this.#type ?? 'string'
    return type === 'number' ? this.#numbers.definition : { type }
  }
}

function typeOf(value: unknown): ColumnType {
  if (typeof value === 'boolean') return 'bool'
  if (typeof value === 'string') {
    const inference = new TypeInference()
    inference.add(value)
    // A text that looks like a number is a text in JSON.
    return ['datetime', 'date', 'time', 'uuid', 'email', 'text'].includes(inference.type)
      ? inference.type
      : 'string'
  }
  if (
    Array.isArray(value) &&
    value.every((item) => typeof item === 'string' && markedNumber(item) === undefined)
  )
    return 'multiple'
  return 'json'
}

const TEXT_TYPES: readonly string[] = [
  'email',
  'datetime',
  'date',
  'time',
  'uuid',
  'string',
  'text',
]

function widest<Type extends string>(
  left: Type | undefined,
  right: Type,
): Type | 'json' | 'string' | 'text' {
  if (left === undefined || left === right) return right
  if (TEXT_TYPES.includes(left) && TEXT_TYPES.includes(right)) {
    return left === 'text' || right === 'text' ? 'text' : 'string'
  }
  return 'json'
}
