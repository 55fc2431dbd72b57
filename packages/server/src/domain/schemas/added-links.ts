import type { ColumnType, IdType } from '@offshoot/contract/schema'
import type { StoredColumn, StoredTable } from '../../rows/columns/stored-schema.js'

/** The types of columns whose values can be ids, with the types of these. */
export const ID_TYPE_OF: Readonly<Partial<Record<ColumnType, IdType>>> = {
  int: 'int',
  uuid: 'uuid',
  text: 'string',
  string: 'string',
}

export type LinkTarget = Required<StoredColumn>['link'] | { readonly missing: string }

/**
 * The links that a migration adds. A link refers to the table that has the name when the column is
 * added, even if that table is renamed later. If no table has the name yet, the link refers to the
 * next table that gets it.
 */
export class AddedLinks {
  /** The columns that refer to a table, by its id. */
  readonly #bound = new Map<number, number[]>()
  readonly #waiting = new Map<string, number[]>()

  add(columnId: number, name: string, table: StoredTable | undefined): void {
    if (table) append(this.#bound, table.id, [columnId])
    else append(this.#waiting, name, [columnId])
  }

  tableNamed(table: StoredTable): void {
    const waiting = this.#waiting.get(table.name)
    if (!waiting) return
    this.#waiting.delete(table.name)
    append(this.#bound, table.id, waiting)
  }

  tableRemoved(table: StoredTable): void {
    const bound = this.#bound.get(table.id)
    if (!bound) return
    this.#bound.delete(table.id)
    append(this.#waiting, table.name, bound)
  }

  /** Returns the target of each added link, by column id. `idTypeOf` returns the type of the ids of a table. */
  targets(idTypeOf: (tableId: number) => StoredTable['idType']): Map<number, LinkTarget> {
    const targets = new Map<number, LinkTarget>()
    for (const [tableId, columnIds] of this.#bound) {
      const idType = idTypeOf(tableId)
      const target = { tableId, ...(idType && { idType }) }
      for (const columnId of columnIds) targets.set(columnId, target)
    }
    for (const [missing, columnIds] of this.#waiting) {
      for (const columnId of columnIds) targets.set(columnId, { missing })
    }
    return targets
  }
}

function append<Key>(lists: Map<Key, number[]>, key: Key, values: readonly number[]): void {
  const list = lists.get(key)
  if (list) for (const value of values) list.push(value)
  else lists.set(key, [...values])
}
