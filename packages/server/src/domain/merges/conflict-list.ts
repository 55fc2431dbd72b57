import { AppError } from '@offshoot/contract/errors'
import type { MergeConflict } from '@offshoot/contract/merge-conflicts'
import { RECORD_ID_PATTERN } from '@offshoot/contract/names'

/** Maximum size of the listed conflicts as JSON. The first conflict of a page is always listed. */
const CONFLICTS_BYTES_MAX = 4 * 1024 * 1024

/** The page of conflicts that a request asks for. */
export interface ConflictPage {
  readonly size: number
  readonly after?: string | undefined
}

/**
 * A part of the list: the conflicts of the schemas, or one kind of conflicts of a table. The parts of a merge
 * are in a fixed order, and so are the conflicts of a part.
 */
export interface ConflictSection {
  /** The id of the table, or 0 for the schemas. */
  readonly tableId: number
  readonly part: 'schema' | 'rows' | 'unique' | 'null' | 'limit' | 'check' | 'link'
}

/** A conflict, and the position after which the list continues. */
interface PlacedConflict {
  readonly conflict: MergeConflict
  readonly position: string
}

/** Reads conflicts of a section in their order, starting after a position: at most `limit`. */
type ReadConflicts = (
  after: string | undefined,
  limit: number,
) => AsyncIterable<PlacedConflict> | Iterable<PlacedConflict>

interface Cursor extends ConflictSection {
  readonly position: string
}

/** The conflicts of a merge. All of them are counted, and a page of them is listed. */
export class ConflictList {
  readonly listed: MergeConflict[] = []
  readonly #counts = new Map<string, number>()
  readonly #tokens = new Map<string, string>()
  readonly #size: number
  /** The end of the previous page, until the section is reached in which it is. */
  #start: Cursor | undefined
  #end: Cursor | undefined
  #bytesLeft = CONFLICTS_BYTES_MAX
  #isFull = false
  #hasMore = false

  constructor({ size, after }: ConflictPage) {
    this.#size = size
    this.#start = after === undefined ? undefined : readCursor(after)
  }

  get count(): number {
    let count = 0
    for (const ofTable of this.#counts.values()) count += ofTable
    return count
  }

  /** The numbers of conflicts by table name, and the tokens of their records. */
  get tables(): { name: string; conflicts: number; token?: string }[] {
    return [...this.#counts].map(([name, conflicts]) => {
      const token = this.#tokens.get(name)
      return { name, conflicts, ...(token === undefined ? {} : { token }) }
    })
  }

  /** The cursor of the next page. undefined: this is the last page. */
  get cursor(): string | undefined {
    // A page that lists nothing has no end.
    return this.#hasMore && this.#end !== undefined ? writeCursor(this.#end) : undefined
  }

  /** Counts conflicts of a table. */
  add(tableName: string, count: number): void {
    if (count > 0) this.#counts.set(tableName, (this.#counts.get(tableName) ?? 0) + count)
  }

  /** Counts conflicts of records of a table. `token` stands for all that the table has. */
  addRecords(tableName: string, count: number, token: string | undefined): void {
    this.add(tableName, count)
    if (count > 0 && token !== undefined) this.#tokens.set(tableName, token)
  }

  /** Lists the conflicts of a section, as far as they belong to the page. */
  async list(section: ConflictSection, read: ReadConflicts): Promise<void> {
    let after: string | undefined
    if (this.#start !== undefined) {
      const { tableId, part, position } = this.#start
      if (tableId !== section.tableId || part !== section.part) return
      after = position
      this.#start = undefined
    }
    if (this.#hasMore) return
    // One conflict more than there is room for tells whether there is a next page.
    const limit = this.#isFull ? 1 : this.#size - this.listed.length + 1
    for await (const { conflict, position } of read(after, limit)) {
      if (this.#isFull || !this.#hasRoom(conflict)) {
        this.#hasMore = true
        return
      }
      this.listed.push(conflict)
      this.#end = { ...section, position }
    }
  }

  #hasRoom(conflict: MergeConflict): boolean {
    this.#bytesLeft -= Buffer.byteLength(JSON.stringify(conflict))
    const isFirst = this.listed.length === 0
    this.#isFull =
      this.listed.length >= this.#size || (this.#bytesLeft < 0 && !isFirst) || this.#size === 0
    return !this.#isFull
  }

  /** Throws if the end of the previous page is in a section that the merge does not have. */
  requireStarted(): void {
    if (this.#start !== undefined) throw invalidCursor()
  }
}

/** Returns the fields of an answer about conflicts. */
export function conflictFields({
  listed,
  count,
  tables,
  cursor,
}: Pick<ConflictList, 'listed' | 'count' | 'tables' | 'cursor'>) {
  return {
    conflicts: [...listed],
    conflictCount: count,
    conflictTables: tables,
    ...(cursor === undefined ? {} : { cursor }),
  }
}

const CURSOR_PATTERN = /^(\d{1,15}):(schema|rows|unique|null|check|link):(.+)$/s
const POSITION_PATTERN = /^\d{1,9}$/
const ID_PATTERN = new RegExp(RECORD_ID_PATTERN)

function readCursor(text: string): Cursor {
  const match = CURSOR_PATTERN.exec(text)
  if (match === null) throw invalidCursor()
  const [, tableId = '', part = '', position = ''] = match
  const pattern = part === 'rows' ? ID_PATTERN : POSITION_PATTERN
  if (!pattern.test(position)) throw invalidCursor()
  return { tableId: Number(tableId), part: part as ConflictSection['part'], position }
}

function writeCursor({ tableId, part, position }: Cursor): string {
  return `${tableId}:${part}:${position}`
}

function invalidCursor(): AppError {
  return new AppError(
    'invalid_request',
    'body: field [page.after]: is not the cursor of a page of conflicts of this merge',
  )
}

/** Returns a reader of conflicts that are in memory. Positions are the numbers of conflicts so far. */
export function readList(
  conflicts: readonly MergeConflict[],
): (after: string | undefined, limit: number) => Iterable<PlacedConflict> {
  return (after, limit) => {
    const start = Number(after ?? 0)
    return placed(conflicts.slice(start, start + limit), start)
  }
}

/** Gives conflicts their positions. `offset` is the number of conflicts before them. */
export function placed(conflicts: readonly MergeConflict[], offset: number): PlacedConflict[] {
  return conflicts.map((conflict, index) => ({ conflict, position: String(offset + index + 1) }))
}
