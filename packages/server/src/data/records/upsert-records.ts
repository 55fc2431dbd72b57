import { AppError } from '@offshoot/contract/errors'
import { Turn } from '../../common/in-turns.js'
import { Fault } from '../../rows/columns/fault.js'
import type { InputRecord } from '../../rows/columns/record-encoder.js'
import { isFaults, type TableCodec } from '../../rows/columns/table-codec.js'
import type { WritableTable } from '../../rows/open-branch.js'
import { describeFaults, type InvalidRecord } from '../session/record-errors.js'
import type { Origin, Session } from '../session/session.js'
import { type NewId, newIds } from './new-ids.js'
import { originOfRecords } from './new-numbers.js'

export type UpsertKey = WritableTable['writer']['uniqueKeys'][number]

/** A record to upsert. */
export interface UpsertRow {
  readonly position: number
  readonly givenId: string | undefined
  /** undefined until the record was looked up by its column. */
  readonly id: string | undefined
  /** The id was generated for it. */
  readonly isNewId: boolean
  /** The record must not exist: it has an id, and was not found by its column. */
  readonly isNew: boolean
  /** A text for each physical column: those of a new record. */
  readonly values: readonly (string | null)[]
  /** The columns that are changed if the record exists. Records with the same fields have the same list. */
  readonly columns: readonly number[]
  /** Why the record cannot be inserted. */
  readonly missing: InvalidRecord | undefined
}

/** A record that is refused whatever the branch has. */
interface InvalidRow {
  readonly position: number
  readonly id: string | undefined
  readonly error: InvalidRecord
}

/** Returns the unique column or constraint that records are found by, or undefined for their id. */
export function findKey({ table, indexes, uniqueKeys }: TableCodec, by: string) {
  if (by === 'id') return undefined
  const column = indexes.get(by)
  const ofColumn = uniqueKeys.find(
    ({ name, columns }) => name === undefined && column !== undefined && columns[0] === column,
  )
  const key = ofColumn ?? uniqueKeys.find(({ name }) => name === by)
  if (key !== undefined) return key
  const place = `table [${table.name}]: column [${by}]`
  throw new AppError(
    'invalid_request',
    column === undefined
      ? `by: ${place}: column not found`
      : `by: ${place}: is not unique, so records cannot be found by it`,
  )
}

const REFUSED_FILE = new Fault('a file cannot be written by an upsert; only null is possible')

/** Fewer records are not worth a look at which of them are new. */
const LOOKED_UP_MIN = 100

/** One of this many ids is looked up first, and all others if enough of these are free. */
const SAMPLE_STEP = 16
const FREE_SHARE_MIN = 0.2

/** The records of one upsert, as they are written, however often that is tried. */
export class UpsertRecords {
  readonly rows: UpsertRow[] = []
  readonly invalid: InvalidRow[] = []
  readonly by: string
  /** undefined: records are found by their id. */
  readonly key: UpsertKey | undefined
  readonly #codec: TableCodec
  readonly #origin: Origin
  readonly #newId: NewId
  readonly #newIds = new Map<number, string>()
  readonly #shapes: ReadonlyMap<string, readonly number[]>
  readonly #columns = new Map<string, readonly number[]>()
  #latest: { fields: readonly string[]; columns: readonly number[] } = { fields: [], columns: [] }
  #free: ReadonlySet<string> = new Set()

  private constructor(
    codec: TableCodec,
    { by, origin, newId }: { by: string; origin: Origin; newId: NewId },
  ) {
    this.by = by
    this.key = findKey(codec, by)
    this.#codec = codec
    this.#origin = origin
    this.#newId = newId
    const shapes = new Map<string, number[]>()
    for (const [index, { path }] of codec.stored.physical.entries()) {
      const [name = ''] = path
      shapes.set(name, [...(shapes.get(name) ?? []), index])
    }
    this.#shapes = shapes
  }

  /**
   * Encodes records in turns. Meanwhile, PostgreSQL looks for those that are new, so that they can be inserted like those of a
   * bulk insert. That is no part of the transaction that writes them: there, a search for a missing id conflicts with inserts of
   * its neighbours.
   */
  static async read(
    session: Session,
    table: WritableTable,
    { by, given }: { by: string; given: readonly { value?: unknown; fault?: string }[] },
  ): Promise<UpsertRecords> {
    const values = given.map(({ value }) => value)
    const newId = await newIds(session, table, values)
    const origin = await originOfRecords(session, { table, records: values })
    const records = new UpsertRecords(table.codec, { by, origin, newId })
    const ids = records.key === undefined ? listIds(table.codec, values) : []
    const looking = ids.length < LOOKED_UP_MIN ? undefined : findFreeIds(session, table, ids)
    looking?.catch(() => undefined)
    const turn = new Turn()
    for (const [position, { value, fault }] of given.entries()) {
      records.#add(position, fault ?? records.#encode(value, position), value)
      if (turn.isOver) await turn.end()
    }
    if (looking !== undefined) records.#free = await looking
    return records
  }

  get count(): number {
    return this.rows.length + this.invalid.length
  }

  /** Whether a record can be inserted, and its id was free a moment ago. */
  seemsNew({ id, missing }: UpsertRow): boolean {
    return id !== undefined && missing === undefined && this.#free.has(id)
  }

  /** Treats all ids that were given as those of records that may exist. */
  forgetFree(): void {
    this.#free = new Set()
  }

  /** Returns the new id for a record, which stays the same if the record is written again. */
  newIdOf({ position }: UpsertRow): string {
    const id = this.#newIds.get(position) ?? this.#newId()
    this.#newIds.set(position, id)
    return id
  }

  #add(position: number, row: UpsertRow | InvalidRecord | string, value: unknown): void {
    if (typeof row !== 'string' && 'values' in row) {
      this.rows.push(row)
      return
    }
    const error = typeof row === 'string' ? { message: row } : row
    this.invalid.push({ position, id: idOf(value), error })
  }

  #encode(record: unknown, position: number): UpsertRow | InvalidRecord | string {
    const codec = this.#codec
    if (typeof record !== 'object' || record === null || Array.isArray(record)) {
      return 'invalid record: expected an object'
    }
    const { id: given } = record as InputRecord
    const givenId = given === undefined ? undefined : codec.encodeId(given)
    if (givenId instanceof Fault) return describeFaults(codec, [givenId])
    const isNewId = givenId === undefined && this.key === undefined
    const id = isNewId ? this.#newId() : givenId
    const values = codec.encodeRecord(record as InputRecord, this.#origin, () => REFUSED_FILE)
    const columns = this.#columnsOf(record as InputRecord)
    const row = { position, givenId, id, isNewId, isNew: false, columns }
    if (!isFaults(values)) return this.#withKey({ ...row, values, missing: undefined })
    // An existing record needs no more than the fields that change.
    const update = codec.encodeUpdate(record as InputRecord, this.#origin, () => REFUSED_FILE)
    if (isFaults(update)) return describeFaults(codec, update)
    const missing = describeFaults(codec, values)
    if (update.arithmetic.length > 0) return missing
    const known = codec.stored.physical.map((_, index) => {
      return update.values[update.columns.indexOf(index)] ?? null
    })
    return this.#withKey({ ...row, values: known, missing })
  }

  #withKey(row: UpsertRow): UpsertRow | string {
    const { physical } = this.#codec
    // A default value says nothing about a record that exists.
    const missing = this.key?.columns.find(
      (column) => row.values[column] === null || !row.columns.includes(column),
    )
    if (missing === undefined) return row
    const path = physical[missing]?.path.join('.')
    return `invalid record: column [${path}]: a value is required to find the record`
  }

  /** Most records have the same fields as the one before. The columns of each combination are looked up once. */
  #columnsOf(record: InputRecord): readonly number[] {
    const fields = Object.keys(record)
    const { fields: latest, columns } = this.#latest
    const isSame =
      fields.length === latest.length && fields.every((name, at) => name === latest[at])
    if (isSame) return columns
    const key = fields.join('\0')
    const found = this.#columns.get(key) ?? fields.flatMap((name) => this.#shapes.get(name) ?? [])
    this.#columns.set(key, found)
    this.#latest = { fields, columns: found }
    return found
  }
}

/** Finds ids that no record has. If it finds few among some, does not look for the others: that would cost more than it saves. */
async function findFreeIds(
  { branch }: Session,
  table: WritableTable,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  const some = ids.filter((_, index) => index % SAMPLE_STEP === 0)
  const free = await branch.findFreeIds(table, some)
  return free.size < some.length * FREE_SHARE_MIN ? free : branch.findFreeIds(table, ids)
}

function listIds(codec: TableCodec, records: readonly unknown[]): string[] {
  return records.flatMap((record) => {
    const { id } = (record ?? {}) as { id?: unknown }
    const text = id === undefined ? undefined : codec.encodeId(id)
    return typeof text === 'string' ? text : []
  })
}

/** Returns the id of an invalid record, if it has one. */
function idOf(record: unknown): string | undefined {
  const { id } = (record ?? {}) as { id?: unknown }
  return typeof id === 'string' ? id : undefined
}
