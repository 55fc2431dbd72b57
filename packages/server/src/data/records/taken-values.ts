import type { UpsertKey, UpsertRow } from './upsert-records.js'

/** A record that was refused because another one has its values of a unique key. */
interface Waiting {
  readonly row: UpsertRow
  readonly key: UpsertKey
  /** The id of the record that has the values. */
  readonly holder: string
}

/** The text of the values that a record gives to all columns of a key. undefined: it does not, or one is null. */
export function textOf({ values, columns }: UpsertRow, key: UpsertKey): string | undefined {
  const texts: string[] = []
  for (const column of key.columns) {
    const text = values[column] ?? null
    if (text === null || !columns.includes(column)) return undefined
    texts.push(text)
  }
  return JSON.stringify(texts)
}

/** Returns whether a record changes the values of a key, if these are the given ones. */
export function givesUp(row: UpsertRow, key: UpsertKey, text: string | undefined): boolean {
  return key.columns.some((column) => row.columns.includes(column)) && textOf(row, key) !== text
}

/**
 * The records of a request that were refused because of values that others have. To write all together helps only those for
 * which the request has a record that gives up the values: the other one, or the same one again.
 */
export class TakenValues {
  readonly #waiting = new Map<number, Waiting>()
  readonly #rows: readonly UpsertRow[]
  #byId: ReadonlyMap<string, readonly UpsertRow[]> | undefined

  /** `rows` are all records of the request, with their ids. */
  constructor(rows: readonly UpsertRow[]) {
    this.#rows = rows
  }

  get isEmpty(): boolean {
    return this.#waiting.size === 0
  }

  add(waiting: Waiting): void {
    this.#waiting.set(waiting.row.position, waiting)
  }

  has(position: number): boolean {
    return this.#waiting.has(position)
  }

  /** Lists the positions of records that cannot get their values, if those of other positions are refused in any case. */
  listLost(isRefused: (position: number) => boolean): number[] {
    const lost = new Set<number>()
    const after = new Map<string, Waiting[]>()
    const own = new Map<string, Waiting[]>()
    for (const waiting of this.#waiting.values()) {
      addTo(after, waiting.holder, waiting)
      addTo(own, waiting.row.id ?? '', waiting)
    }
    const rowsOf = this.#rowsById()
    const isFree = ({ row, key, holder }: Waiting) => {
      const text = textOf(row, key)
      const mayChange = (other: UpsertRow) =>
        !isRefused(other.position) && !lost.has(other.position) && givesUp(other, key, text)
      // The request can have the record itself again, with other values.
      const again = rowsOf.get(row.id ?? '') ?? []
      return (
        (rowsOf.get(holder) ?? []).some(mayChange) ||
        again.some((other) => other.position > row.position && mayChange(other))
      )
    }
    let looked: Waiting[] = [...this.#waiting.values()]
    while (looked.length > 0) {
      const found = looked.filter((each) => !lost.has(each.row.position) && !isFree(each))
      for (const { row } of found) lost.add(row.position)
      looked = found.flatMap(({ row: { id = '' } }) => [
        ...(after.get(id) ?? []),
        ...(own.get(id) ?? []),
      ])
    }
    return [...lost]
  }

  #rowsById(): ReadonlyMap<string, readonly UpsertRow[]> {
    if (this.#byId !== undefined) return this.#byId
    const byId = new Map<string, UpsertRow[]>()
    for (const row of this.#rows) addTo(byId, row.id ?? '', row)
    this.#byId = byId
    return byId
  }
}

function addTo<Item>(lists: Map<string, Item[]>, key: string, item: Item): void {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [item])
  else list.push(item)
}
