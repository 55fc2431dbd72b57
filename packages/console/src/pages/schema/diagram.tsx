import type { TableDefinition } from '@offshoot/client'
import { Link } from 'wouter'
import { usePlace } from '../../api/place.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { BOX_WIDTH, type Box, COLUMNS_SHOWN, HEAD, LINE, layOut } from './layout.js'

const NAME_LENGTH_MAX = 20

/** Tables as boxes, links as lines from a column to its table. */
export function Diagram({ tables }: { tables: readonly TableDefinition[] }) {
  const place = usePlace()
  const boxes = layOut(tables)
  const width = Math.max(...boxes.map(({ x }) => x + BOX_WIDTH), 0) + 28
  const height = Math.max(...boxes.map(({ y, height }) => y + height), 0) + 28
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a large diagram is scrolled with the keyboard.
    <section className="diagram" tabIndex={0} aria-label="Diagram of the links between tables">
      <svg width={width} height={height}>
        <title>{describe(tables)}</title>
        <defs>
          <marker
            id="arrow"
            viewBox="0 0 8 8"
            refX="7"
            refY="4"
            markerWidth="7"
            markerHeight="7"
            orient="auto"
          >
            <path d="M1 1l6 3-6 3" />
          </marker>
        </defs>
        {boxes.flatMap((box) => linksOf(box, boxes))}
        {boxes.map(({ table, x, y, height: boxHeight }) => (
          <g key={table.name} transform={`translate(${x} ${y})`}>
            <rect width={BOX_WIDTH} height={boxHeight} rx={6} />
            <Link href={href(paths.table(place, table.name))} aria-label={`Table ${table.name}`}>
              <rect className="head" width={BOX_WIDTH} height={HEAD} rx={6} />
              <text className="title" x={10} y={18}>
                {clip(table.name, 28)}
              </text>
            </Link>
            {table.columns.slice(0, COLUMNS_SHOWN).map((column, index) => (
              <g key={column.name} transform={`translate(0 ${HEAD + index * LINE})`}>
                <text x={10} y={15}>
                  {clip(column.name, NAME_LENGTH_MAX)}
                </text>
                <text className="type" x={BOX_WIDTH - 10} y={15} textAnchor="end">
                  {column.type}
                </text>
              </g>
            ))}
            {table.columns.length > COLUMNS_SHOWN && (
              <text className="type" x={10} y={HEAD + COLUMNS_SHOWN * LINE + 15}>
                {table.columns.length - COLUMNS_SHOWN} more
              </text>
            )}
          </g>
        ))}
      </svg>
    </section>
  )
}

function linksOf(box: Box, boxes: readonly Box[]) {
  return box.table.columns.flatMap((column, index) => {
    const target = boxes.find(({ table }) => table.name === column.link?.table)
    if (target === undefined) return []
    const line = Math.min(index, COLUMNS_SHOWN)
    const from = { x: box.x + BOX_WIDTH, y: box.y + HEAD + line * LINE + 10 }
    const isRight = target.x > box.x
    const to = { x: isRight ? target.x : target.x + BOX_WIDTH, y: target.y + HEAD / 2 }
    const bend = isRight ? Math.max(40, (to.x - from.x) / 2) : 60
    const path = `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${isRight ? to.x - bend : to.x + bend} ${to.y} ${to.x} ${to.y}`
    return [<path key={`${box.table.name}.${column.name}`} d={path} markerEnd="url(#arrow)" />]
  })
}

function clip(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text
}

function describe(tables: readonly TableDefinition[]): string {
  const links = tables.flatMap(({ name, columns }) =>
    columns.flatMap((column) =>
      column.link === undefined ? [] : [`${name}.${column.name} links to ${column.link.table}`],
    ),
  )
  return links.length === 0 ? 'Tables without links' : links.join('; ')
}
