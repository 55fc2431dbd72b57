import { createReadStream } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import type { ColumnDefinition, ColumnType, SchemaOperation } from '@offshoot/client'
import { parse } from 'csv-parse'
import { action, createCommand } from '../shared/command.js'
import { emptyRecord, flatColumns, readCell, setAt, TypeInference } from '../shared/csv-values.js'
import { EXIT, UsageError } from '../shared/failure.js'
import { notice, Progress, printJson } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { withBranch } from '../shared/target.js'
import { describeOperation } from './diff.js'

interface ImportFlags {
  readonly json?: boolean
  readonly table: string
  readonly format?: string
  readonly create?: boolean
  readonly partial?: boolean
  readonly yes?: boolean
}

type Row = Record<string, unknown>

/** Rows that are read to find the types of a new table. */
const SAMPLE_ROWS = 10_000
const FORMATS = ['csv', 'ndjson', 'json'] as const
type Format = (typeof FORMATS)[number]

/** `offshoot import`: inserts the records of a file. */
export const importCommand = () =>
  withBranch(
    createCommand('import', 'insert the records of a CSV, NDJSON or JSON file', [
      'offshoot import people.csv --table people --create',
      'offshoot import people.ndjson --table people',
    ]),
  )
    .argument('<file>', 'the file; its name ends in .csv, .ndjson or .json')
    .requiredOption('--table <name>', 'table to insert into')
    .option('--format <format>', 'csv, ndjson or json; default: by the name of the file')
    .option('--create', 'create the table, with columns and types found in the file')
    .option('--partial', 'insert all valid records even if others are refused')
    .option('--yes', 'do not ask')
    .action(
      action<ImportFlags, [string]>(async (target, flags, file) => {
        const format = formatOf(file, flags.format)
        const { size } = await stat(file).catch((error: Error) => {
          throw new UsageError(`cannot read [${file}]: ${error.message}`)
        })
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
          const columns = await inferColumns(file, format)
          const operations = createTable(flags.table, columns)
          for (const operation of operations) notice(`  ${describeOperation(operation)}`)
          await requireConsent('The table will be created as shown.', flags.yes)
          await branch.applySchema(operations)
          table = { name: flags.table, columns }
        }
        const progress = new Progress('Imported')
        const bytes = { read: 0 }
        const records = readRecords(file, format, { columns: table.columns, bytes })
        const result = await branch.table(flags.table).insertMany(records, {
          mode: flags.partial ? 'partial' : 'atomic',
          onProgress: ({ inserted }) => progress.update(inserted, bytes.read / size),
        })
        progress.end(result.inserted)
        if (flags.json) printJson(result)
        for (const { line, message } of result.errors.slice(0, 10)) {
          notice(`  record ${line}: ${message}`)
        }
        if (result.failed > 0) notice(`${result.failed} records were refused.`)
        return result.failed > 0 ? EXIT.failed : EXIT.done
      }),
    )

function formatOf(file: string, given: string | undefined): Format {
  const name = given ?? /\.(\w+)$/.exec(file)?.[1]?.toLowerCase()
  const format = name === 'jsonl' ? 'ndjson' : FORMATS.find((known) => known === name)
  if (format !== undefined) return format
  throw new UsageError(`the format of [${file}] is not known: use --format csv, ndjson or json`)
}

function createTable(table: string, columns: readonly ColumnDefinition[]): SchemaOperation[] {
  return [{ addTable: { table } }, ...columns.map((column) => ({ addColumn: { table, column } }))]
}

/** Reads a part of a file, and finds a type for each column. */
async function inferColumns(file: string, format: Format): Promise<ColumnDefinition[]> {
  const types = new Map<string, TypeInference | ColumnType>()
  let rows = 0
  for await (const row of sampleOf(file, format)) {
    for (const [name, value] of Object.entries(row)) {
      if (name === 'id' || value === null) continue
      if (typeof value === 'string' && format === 'csv') {
        const known = types.get(name) ?? new TypeInference()
        if (known instanceof TypeInference) known.add(value)
        types.set(name, known)
      } else types.set(name, widest(types.get(name) as ColumnType | undefined, typeOf(value)))
    }
    if (++rows === SAMPLE_ROWS) break
  }
  if (rows === 0) throw new UsageError(`[${file}] has no records`)
  return [...types].map(([name, type]) => {
    if (!/^[a-zA-Z0-9_~-]{1,255}$/.test(name)) {
      throw new UsageError(
        `column [${name}]: a column of a new table has letters, digits and _ - ~ in its name`,
      )
    }
    return { name, type: type instanceof TypeInference ? type.type : type }
  })
}

function typeOf(value: unknown): ColumnType {
  if (typeof value === 'boolean') return 'bool'
  if (typeof value === 'number') return Number.isSafeInteger(value) ? 'int' : 'float'
  if (typeof value === 'string') {
    const inference = new TypeInference()
    inference.add(value)
    // A text that looks like a number is a text in JSON.
    return ['datetime', 'email', 'text'].includes(inference.type) ? inference.type : 'string'
  }
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return 'multiple'
  return 'json'
}

function widest(left: ColumnType | undefined, right: ColumnType): ColumnType {
  if (left === undefined || left === right) return right
  const both = new Set([left, right])
  if (both.has('int') && both.has('float')) return 'float'
  const texts = ['email', 'datetime', 'string', 'text']
  if (texts.includes(left) && texts.includes(right)) return both.has('text') ? 'text' : 'string'
  return 'json'
}

async function* sampleOf(file: string, format: Format): AsyncGenerator<Row> {
  if (format === 'csv') yield* csvRows(createReadStream(file))
  else if (format === 'ndjson') yield* ndjsonRows(createReadStream(file))
  else yield* await jsonRows(file)
}

/** Reads the records of a file. `bytes.read` follows the progress. */
async function* readRecords(
  file: string,
  format: Format,
  options: { columns: readonly ColumnDefinition[]; bytes: { read: number } },
): AsyncGenerator<Row> {
  if (format === 'json') {
    yield* await jsonRows(file)
    return
  }
  const input = createReadStream(file, { highWaterMark: 1024 * 1024 })
  input.on('data', (chunk) => {
    options.bytes.read += chunk.length
  })
  if (format === 'ndjson') {
    yield* ndjsonRows(input)
    return
  }
  const types = new Map(flatColumns(options.columns).map(({ name, type }) => [name, type]))
  for await (const row of csvRows(input)) {
    const record: Row = emptyRecord()
    for (const [name, text] of Object.entries(row)) {
      const value = readCell(text as string, types.get(name) ?? 'string')
      if (value !== undefined) setAt(record, name, value)
    }
    yield record
  }
}

async function* csvRows(input: Readable): AsyncGenerator<Row> {
  const parser = input.pipe(parse({ columns: true, bom: true, skip_empty_lines: true }))
  input.on('error', (error) => parser.destroy(error))
  try {
    yield* parser
  } catch (error) {
    throw new UsageError(`the file is not valid CSV: ${(error as Error).message}`)
  } finally {
    input.destroy()
  }
}

async function* ndjsonRows(input: Readable): AsyncGenerator<Row> {
  const lines = createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })
  let number = 0
  try {
    for await (const line of lines) {
      number++
      if (line.trim() !== '') yield parseRow(line, `line ${number}`)
    }
  } finally {
    input.destroy()
  }
}

async function jsonRows(file: string): Promise<Row[]> {
  const rows: unknown = parseAny(await readFile(file, 'utf8'), file)
  if (!Array.isArray(rows)) throw new UsageError(`[${file}]: expected a list of records`)
  return rows as Row[]
}

function parseRow(text: string, where: string): Row {
  const row = parseAny(text, where)
  if (typeof row === 'object' && row !== null && !Array.isArray(row)) return row as Row
  throw new UsageError(`${where}: expected a record`)
}

function parseAny(text: string, where: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new UsageError(`${where}: not valid JSON: ${(error as Error).message}`)
  }
}
