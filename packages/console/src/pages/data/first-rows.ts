import type { TableDefinition } from '@offshoot/client'
import { clientOf, type Place } from '../../api/clients.js'
import type { SourcePage } from '../../ui/grid/page-store.js'
import { readPreferences } from './preferences.js'
import { FIRST_PAGE_SIZE, namesToRead, pageReader } from './row-pages.js'
import type { Row } from './values.js'
import { parseView, type View } from './view.js'

/** Rows that were asked for longer ago are read again. */
const AGE_MS_MAX = 60_000

interface FirstRows {
  readonly question: string
  readonly askedAt: number
  readonly promise: Promise<SourcePage<Row>>
  /** Undefined until it arrives. */
  page?: SourcePage<Row>
}

let first: FirstRows | undefined

/**
 * Reads the rows that the page of a table shows first, while the code of the page is still loading. `search` is
 * the query of the address.
 */
export async function askFirstRows(
  place: Place,
  table: TableDefinition,
  search: string,
): Promise<void> {
  const view = parseView(search)
  // The table may have had other columns then.
  if (view.at !== '') return
  const { hidden } = readPreferences(tableKey(place, table.name))
  const columns = namesToRead(table, hidden)
  const read = pageReader(clientOf(place).branch(), table.name, { view, columns })
  const rows: FirstRows = {
    question: questionOf(place, table.name, view, columns),
    askedAt: Date.now(),
    promise: read(undefined, FIRST_PAGE_SIZE),
  }
  first = rows
  rows.page = await rows.promise
}

/**
 * Returns the rows that were asked for before the page was there, once, if they are the ones that it shows; a
 * promise if they have not arrived yet.
 */
export function takeFirstRows(
  ...question: Parameters<typeof questionOf>
): SourcePage<Row> | Promise<SourcePage<Row>> | undefined {
  const taken = first
  first = undefined
  if (taken === undefined || taken.question !== questionOf(...question)) return undefined
  return Date.now() - taken.askedAt < AGE_MS_MAX ? (taken.page ?? taken.promise) : undefined
}

/** The name under which a table of a branch is known on this device. */
export function tableKey({ workspace, database, branch }: Place, table: string): string {
  return [workspace, database, branch, table].join('/')
}

function questionOf(
  place: Place,
  table: string,
  view: View,
  columns: readonly string[] | undefined,
): string {
  return JSON.stringify([tableKey(place, table), view, columns])
}
