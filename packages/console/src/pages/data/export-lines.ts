import type { ColumnDefinition } from '@offshoot/client'
import Papa from 'papaparse'
import { columnValue, longText, type Row } from './values.js'

/** Returns the line of a row in a file. */
export function lineOf(
  row: Row,
  columns: readonly ColumnDefinition[],
  format: 'csv' | 'ndjson',
): string {
  if (format === 'csv')
    return csvLine(columns.map((column) => longText(column, columnValue(row, column.name))))
  const values = columns.map((column) => [column.name, importable(column, row)])
  return `${JSON.stringify(Object.fromEntries(values))}\n`
}

/**
 * Returns a value as an import takes it. A column without a value is null, because one that is left out gets its default. A
 * document that is a text or null is a JSON text.
 */
function importable({ name, type }: ColumnDefinition, row: Row): unknown {
  const value = columnValue(row, name)
  if (value === undefined) return null
  return type === 'json' && (typeof value === 'string' || value === null)
    ? JSON.stringify(value)
    : value
}

export function csvLine(cells: string[]): string {
  return `${Papa.unparse([cells])}\r\n`
}
