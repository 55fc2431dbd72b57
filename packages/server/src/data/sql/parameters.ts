import type { Parameter } from '../../postgres/statement.js'
import { arrayLiteral, checkText } from '../../rows/columns.js'
import { invalidSql } from './invalid-sql.js'

/** Converts parameters to texts of PostgreSQL: arrays to array literals, and objects to JSON. */
export function encodeParameters(values: readonly unknown[]): Parameter[] {
  return values.map((value, index) => {
    const text = textOf(value)
    const fault = text === null ? undefined : checkText(text)
    if (fault !== undefined) throw invalidSql(`parameter $${index + 1}: ${fault.message}`)
    return text
  })
}

function textOf(value: unknown): Parameter {
  if (value === null || value === undefined) return null
  if (typeof value === 'string') return value
  if (Array.isArray(value)) {
    return value.some((item) => Array.isArray(item))
      ? nested(value)
      : arrayLiteral(value.map(textOf))
  }
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

/** Writes an array literal. Nested arrays are not quoted, all other elements are. */
function nested(values: readonly unknown[]): string {
  const parts = values.map((value) =>
    Array.isArray(value) ? textOf(value) : arrayLiteral([textOf(value)]).slice(1, -1),
  )
  return `{${parts.join(',')}}`
}
