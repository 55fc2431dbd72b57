import type { TableDefinition } from '@offshoot/client'

export const BOX_WIDTH = 220
export const HEAD = 28
export const LINE = 20
const GAP_X = 90
const GAP_Y = 28
/** Columns of a table that the diagram shows. */
export const COLUMNS_SHOWN = 14
/** A layer that is higher than this is split. */
const LAYER_HEIGHT_MAX = 1400

export interface Box {
  readonly table: TableDefinition
  readonly x: number
  readonly y: number
  readonly height: number
}

/**
 * Places tables in layers: a table is to the right of those that link to it, as far as links do not go round in
 * circles.
 */
export function layOut(tables: readonly TableDefinition[]): readonly Box[] {
  const layers: TableDefinition[][] = []
  for (const table of tables) {
    const layer = depthOf(table, tables)
    layers[layer] = [...(layers[layer] ?? []), table]
  }
  const boxes: Box[] = []
  let x = GAP_Y
  for (const layer of layers) {
    if (layer === undefined) continue
    let y = GAP_Y
    for (const table of layer) {
      const height = heightOf(table)
      if (y > GAP_Y && y + height > LAYER_HEIGHT_MAX) {
        x += BOX_WIDTH + GAP_X
        y = GAP_Y
      }
      boxes.push({ table, x, y, height })
      y += height + GAP_Y
    }
    x += BOX_WIDTH + GAP_X
  }
  return boxes
}

function heightOf({ columns }: TableDefinition): number {
  const more = columns.length > COLUMNS_SHOWN ? 1 : 0
  return HEAD + (Math.min(columns.length, COLUMNS_SHOWN) + more) * LINE + 6
}

/** The longest chain of links that ends at a table, without going round in circles. */
function depthOf(table: TableDefinition, tables: readonly TableDefinition[]): number {
  const depths = new Map<string, number>()
  const visit = (name: string, path: ReadonlySet<string>): number => {
    const known = depths.get(name)
    if (known !== undefined) return known
    const inside = new Set([...path, name])
    let depth = 0
    for (const { name: other, columns } of tables) {
      const links = columns.some(({ link }) => link?.table === name)
      if (links && !inside.has(other)) depth = Math.max(depth, visit(other, inside) + 1)
    }
    depths.set(name, depth)
    return depth
  }
  return visit(table.name, new Set())
}
