import type { SqlArrays } from '@offshoot/client'
import { useMemo, useState } from 'react'
import { Grid } from '../../ui/grid/grid.js'

const NUMERIC: ReadonlySet<string> = new Set([
  'int2',
  'int4',
  'int8',
  'float4',
  'float8',
  'numeric',
])
const SHOWN_LENGTH_MAX = 200

/** The rows of a statement, in the grid that shows tables. */
export function SqlResult({ result }: { result: SqlArrays }) {
  const { rows, columns, total, warning } = result
  const [widths, setWidths] = useState<Readonly<Record<string, number>>>({})
  const shown = useMemo(
    () =>
      columns.map(({ name, type }, index) => ({
        // A result may have several columns with the same name.
        id: `${index}-${name}`,
        label: name,
        hint: type,
        width: widths[`${index}-${name}`] ?? Math.min(320, Math.max(120, 60 + name.length * 9)),
        isNumeric: NUMERIC.has(type),
      })),
    [columns, widths],
  )
  const words = `${total.toLocaleString()} ${total === 1 ? 'row' : 'rows'}`
  return (
    <>
      <p role="status" className="faint">
        {columns.length === 0 ? `${words} written` : words}
        {warning !== undefined && ` · ${warning}`}
      </p>
      {columns.length > 0 && (
        <Grid
          label="Result"
          columns={shown}
          rowCount={rows.length}
          version={result}
          rowKey={String}
          cell={(row, column) => {
            const value = rows[row]?.[column]
            if (value === null || value === undefined) {
              return { content: 'null', className: 'nothing' }
            }
            const text = textOf(value)
            return {
              content: text.slice(0, SHOWN_LENGTH_MAX),
              ...(typeof value === 'object' ? { className: 'mono' } : {}),
            }
          }}
          cellText={(row, column) => textOf(rows[row]?.[column] ?? '')}
          onResize={(column, width) => setWidths({ ...widths, [column]: width })}
        />
      )}
    </>
  )
}

function textOf(value: unknown): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
