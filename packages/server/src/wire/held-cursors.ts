import type { ResultColumn } from '../data/sql/evaluate.js'
import type { RowSink } from '../data/sql/row-sink.js'
import type { CursorMovement } from './cursor-statement.js'
import { WireError } from './wire-error.js'

type Row = readonly (string | null)[]

/** Bytes that a value takes beside its content. */
const VALUE_BYTES = 50
/** Cursors of one connection. */
export const HELD_CURSORS_MAX = 20

interface HeldCursor {
  readonly columns: readonly ResultColumn[]
  readonly rows: readonly Row[]
  readonly bytes: number
  readonly isForward: boolean
  readonly isOfTransaction: boolean
  /** 0: before the first row. One more than the number of rows: behind the last one. */
  position: number
  /** The number of savepoints at its declaration. undefined: its transaction was committed. */
  depth: number | undefined
}

/**
 * The cursors of a connection whose rows are read when they are declared, and kept. Those WITH HOLD live on after their
 * transaction, which PostgreSQL cannot do for a session that is not held. Each statement on the catalogue runs by itself, and on a
 * cluster, a node answers the statements of a transaction one by one.
 */
export class HeldCursors {
  readonly #cursors = new Map<string, HeldCursor>()

  /** Bytes of the rows that are kept. */
  get bytes(): number {
    let bytes = 0
    for (const cursor of this.#cursors.values()) bytes += cursor.bytes
    return bytes
  }

  get names(): readonly string[] {
    return [...this.#cursors.keys()]
  }

  find(name: string): readonly ResultColumn[] | undefined {
    return this.#cursors.get(name)?.columns
  }

  /** Keeps the rows that `read` hands on as a cursor. */
  async declare(
    name: string,
    options: {
      isForward: boolean
      bytesMax: number
      depth: number | undefined
      /** Whether it ends with the transaction. */
      isOfTransaction?: boolean
    },
    read: (sink: RowSink) => Promise<void>,
  ): Promise<void> {
    if (this.#cursors.size >= HELD_CURSORS_MAX) {
      throw new WireError(
        '54000',
        `a connection can have at most ${HELD_CURSORS_MAX} cursors whose rows are kept`,
      )
    }
    const { isForward, bytesMax, depth, isOfTransaction = false } = options
    let columns: readonly ResultColumn[] = []
    let rows: Row[] = []
    let bytes = 0
    await read({
      // A quick statement may be run again.
      begin() {
        rows = []
        bytes = 0
      },
      describe(description) {
        columns = description.columns
      },
      row(row) {
        for (const value of row) bytes += VALUE_BYTES + (value?.length ?? 0)
        if (bytes <= bytesMax) rows.push(row)
        else rows = []
      },
      end() {
        if (bytes <= bytesMax) return
        throw new WireError(
          '54000',
          `a cursor whose rows are kept can have at most ${bytesMax} bytes of them`,
        )
      },
    })
    this.#cursors.set(name, {
      columns,
      rows,
      bytes,
      isForward,
      isOfTransaction,
      position: 0,
      depth,
    })
  }

  /** Moves a cursor, and hands on the rows that it has passed. */
  fetch(name: string, movement: CursorMovement, sink: RowSink): void {
    const cursor = this.#cursors.get(name)
    if (cursor === undefined) throw new Error('a cursor must be declared')
    const { rows, columns } = cursor
    const passed = passedBy(movement, { position: cursor.position, count: rows.length })
    const { direction, count } = movement
    const goesBack = direction === 'backward' ? count > 0 : direction === 'forward' && count < 0
    if (cursor.isForward && (goesBack || passed.to < cursor.position)) {
      throw new WireError('55000', 'cursor can only scan forward')
    }
    cursor.position = passed.to
    sink.begin({ source: undefined })
    sink.describe({ parameterTypeIds: [], columns })
    for (const place of passed.places()) sink.row(rows[place - 1] ?? [])
    sink.end({ kind: 'select', written: 0 })
  }

  close(name: string): void {
    this.#cursors.delete(name)
  }

  /** A transaction has ended. Its cursors go with it, unless it was committed. */
  end({ isKept }: { isKept: boolean }): void {
    for (const [name, cursor] of this.#cursors) {
      if (cursor.depth === undefined) continue
      if (isKept && !cursor.isOfTransaction) cursor.depth = undefined
      else this.#cursors.delete(name)
    }
  }

  /** A transaction has returned to a savepoint. `depth` is the number of savepoints that are left. */
  returnTo(depth: number): void {
    for (const [name, cursor] of this.#cursors) {
      if (cursor.depth !== undefined && cursor.depth >= depth) this.#cursors.delete(name)
    }
  }

  /** A savepoint was released. What came after it belongs to the one before. */
  release(depth: number): void {
    for (const cursor of this.#cursors.values()) {
      if (cursor.depth !== undefined) cursor.depth = Math.min(cursor.depth, depth)
    }
  }
}

/** Returns where a cursor goes, and the places of the rows that it returns on its way. */
function passedBy(
  { direction, count: asked }: CursorMovement,
  { position, count }: { position: number; count: number },
): { to: number; places(): Generator<number> } {
  const within = (place: number) => Math.max(0, Math.min(place, count + 1))
  if (direction === 'absolute' || direction === 'relative') {
    const from = direction === 'relative' ? position : asked < 0 ? count + 1 : 0
    return single(within(from + asked), count)
  }
  const step = direction === 'forward' ? asked : -asked
  if (step === 0) return single(position, count)
  const to = within(position + step)
  return {
    to,
    *places() {
      if (step > 0)
        for (let place = position + 1; place <= Math.min(to, count); place++) yield place
      else for (let place = position - 1; place >= Math.max(to, 1); place--) yield place
    },
  }
}

function single(to: number, count: number): ReturnType<typeof passedBy> {
  return {
    to,
    *places() {
      if (to >= 1 && to <= count) yield to
    },
  }
}
