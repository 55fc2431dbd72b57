import { createWriteStream } from 'node:fs'
import type { Writable } from 'node:stream'
import type { ColumnType } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import {
  emptyRecord,
  flatColumns,
  ownValue,
  setAt,
  valueAt,
  writeCell,
} from '../shared/csv-values.js'
import { documentOf, isPlain, numbersOf, parseMarked } from '../shared/documents.js'
import { UsageError } from '../shared/failure.js'
import { notice, Progress, stdoutWriter } from '../shared/output.js'
import { withBranch } from '../shared/target.js'

interface ExportFlags {
  readonly table: string
  readonly format: string
  readonly output?: string
  readonly filter?: string
  readonly at?: string
}

/** Records per request: the largest page. */
const PAGE_SIZE = 1000

type Row = Readonly<Record<string, unknown>>

/** `offshoot export`: writes the records of a table. */
export const exportCommand = () =>
  withBranch(
    createCommand('export', 'write the records of a table as CSV, NDJSON or JSON', [
      'offshoot export --table people --format csv > people.csv',
      `offshoot export --table people --format ndjson --filter '{"age": {"$ge": 18}}'`,
    ]),
  )
    .requiredOption('--table <name>', 'table to read')
    .option('--format <format>', 'csv, ndjson or json', 'ndjson')
    .option('-o, --output <file>', 'file to write; default: standard output')
    .option('--filter <json>', 'only records that match this filter')
    .option('--at <checkpoint>', 'the records as they were: id or name of a checkpoint, or a time')
    .action(
      action<ExportFlags, []>(async (target, { table, format, output, filter, at }) => {
        const present = await target.branch()
        const branch = at === undefined ? present : present.at(at)
        const { tables } = await branch.schema()
        const definition = tables.find(({ name }) => name === table)
        if (definition === undefined) {
          throw new UsageError(`branch [${branch.name}] has no table [${table}]`)
        }
        const all = flatColumns(definition.columns)
        const isFile = ({ type }: Column) => type === 'file' || type === 'file[]'
        for (const { name } of all.filter(isFile)) notice(`Left out: ${name} (files)`)
        const columns: Column[] = [
          { name: 'id', type: 'string' },
          ...all.filter((column) => !isFile(column)),
        ]
        const form = await formOf(format, columns)
        const out = output === undefined ? stdoutWriter('data') : createWriteStream(output)
        const progress = new Progress('Exported')
        const query = branch.table(table).query({
          size: PAGE_SIZE,
          ...(columns.some(({ type }) => type === 'json') ? { parse: parseMarked } : {}),
          ...(filter === undefined ? {} : { filter: parseFilter(filter) }),
        })
        let rows = 0
        await write(out, form.start)
        for await (const page of query.pages()) {
          const records = page.records as readonly unknown[] as readonly Row[]
          await write(out, form.rows(records, rows === 0))
          rows += records.length
          progress.update(rows)
        }
        await write(out, form.end)
        await new Promise<void>((resolve, reject) => {
          out.once('error', reject)
          out.end(resolve)
        })
        progress.end(rows)
        return 0
      }),
    )

interface Column {
  readonly name: string
  readonly type: ColumnType
}

interface Form {
  readonly start: string
  readonly end: string
  rows(records: readonly Row[], isFirst: boolean): string
}

async function formOf(format: string, columns: readonly Column[]): Promise<Form> {
  const jsonOf = (record: Row) => JSON.stringify(importable(record, columns))
  switch (format) {
    case 'csv': {
      // Loaded on demand: few commands write CSV.
      const { stringify } = await import('csv-stringify/sync')
      return {
        start: stringify([columns.map(({ name }) => name)]),
        end: '',
        rows: (records) =>
          stringify(
            records.map((record) => columns.map((column) => cellOf(record, column))),
            { quoted_match: EMPTY_TEXT },
          ),
      }
    }
    case 'ndjson':
      return {
        start: '',
        end: '',
        rows: (records) => records.map((record) => `${jsonOf(record)}\n`).join(''),
      }
    case 'json':
      return {
        start: '[',
        end: '\n]\n',
        rows: (records, isFirst) => {
          const texts = records.map((record) => `\n  ${jsonOf(record)}`)
          return (isFirst || texts.length === 0 ? '' : ',') + texts.join(',')
        },
      }
    default:
      throw new UsageError(`format [${format}] is not known: use csv, ndjson or json`)
  }
}

/** An empty text has quotes, because an empty cell without them has no value. */
const EMPTY_TEXT = /^$/

function cellOf(record: Row, column: Column): string | undefined {
  const value = valueAt(record, column)
  if (column.type === 'json') return value === undefined ? undefined : documentOf(value)
  return writeCell(numbersOf(value))
}

/**
 * Returns a record as it can be imported: without metadata and files, and with links as ids. Columns without a value are
 * null, because an import gives those that are left out their defaults.
 */
function importable(record: Row, columns: readonly Column[]): Row {
  const result = emptyRecord()
  for (const column of columns) {
    const [outer = '', ...inner] = column.name.split('.')
    if (inner.length > 0) {
      // An object as a whole has a value or none.
      result[outer] ??= ownValue(record, outer) === undefined ? null : emptyRecord()
      const value = importableValue(record, column)
      if (value !== null) setAt(result, column.name, value)
    } else result[outer] = importableValue(record, column)
  }
  return result
}

function importableValue(record: Row, column: Column): unknown {
  const value = valueAt(record, column)
  if (value === undefined) return null
  if (column.type !== 'json') return numbersOf(value)
  return isPlain(value) ? value : documentOf(value)
}

function parseFilter(text: string): object {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new UsageError(`--filter: not valid JSON: ${(error as Error).message}`)
  }
}

function write(out: Writable, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    out.write(text, (error) => (error ? reject(error) : resolve()))
  })
}
