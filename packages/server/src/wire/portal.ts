import type { ResultColumn } from '../data/sql/evaluate.js'
import { contentOf } from '../dialect/nodes.js'
import type { CatalogueRows } from './catalogue/catalogue.js'
import type { ClientStatement } from './client-statement.js'
import type { RowStream } from './row-stream.js'
import { WireError } from './wire-error.js'

/** Bytes that a value takes beside its content. */
const VALUE_BYTES = 100

/** A statement that a client has prepared. */
export interface Prepared {
  /** undefined: the text is empty. */
  readonly statement: ClientStatement | undefined
  readonly declaredIds: readonly number[]
  /** The columns of its result, once they are certain. */
  columns?: readonly ResultColumn[]
}

/** A prepared statement with its values. */
export interface Portal {
  readonly prepared: Prepared
  /** The client waits for the columns. They are certain when the statement runs. */
  isDescribing: boolean
  readonly values: readonly { readonly bytes: Buffer | null; readonly format: number }[]
  readonly formats: readonly number[]
  /** What the portal has returned so far, if it was executed. */
  stream?: RowStream | CatalogueRows
  /** The cursor that has its rows. */
  cursor?: string
  /** For EXECUTE: the portal of the statement that was prepared. */
  executed?: Portal
  /** The first word of what the client is told at the end, if it is another than that of a query. */
  verb?: 'FETCH'
}

/** How a portal is executed. */
export interface Execution {
  /** 0: all. */
  readonly rowsMax: number
  /** The statement is one of a simple query. */
  readonly isSimple: boolean
}

const PLANNED_KINDS: ReadonlySet<string | undefined> = new Set(['query', 'catalogue', 'branches'])

/** Whether PostgreSQL would plan a statement. The columns of others, such as FETCH, can be different each time. */
export const isPlanned = (statement: ClientStatement | undefined): boolean =>
  PLANNED_KINDS.has(statement?.kind)

/** Throws if a statement has other columns than before: its client may have been told those. */
export function requireSameColumns(
  { statement, columns: known }: Prepared,
  columns: readonly ResultColumn[],
): void {
  if (known === undefined || known === columns || !isPlanned(statement)) return
  if (JSON.stringify(known) === JSON.stringify(columns)) return
  throw new WireError('0A000', 'cached plan must not change result type', {
    // Clients prepare the statement again if the error is from there.
    routine: 'RevalidateCachedQuery',
  })
}

/** Returns the columns that a client is told. undefined: the statement returns no rows, not even rows without columns. */
export function toldColumns(
  { statement }: Prepared,
  columns: readonly ResultColumn[],
): readonly ResultColumn[] | undefined {
  if (columns.length > 0) return columns
  const isQuery = contentOf(statement?.node, 'SelectStmt') !== undefined
  const fetch = contentOf(statement?.node, 'FetchStmt')
  return isQuery || (fetch !== undefined && !fetch.ismove) ? columns : undefined
}

/** Bytes of the values and the rows of a portal. */
export function portalBytes({ values, stream, executed }: Portal): number {
  const rows = (stream?.bytes ?? 0) + (executed === undefined ? 0 : portalBytes(executed))
  return values.reduce((sum, { bytes }) => sum + VALUE_BYTES + (bytes?.length ?? 0), rows)
}
