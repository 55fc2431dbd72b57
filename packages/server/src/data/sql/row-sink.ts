import type pg from 'pg'
import type { RowForward, TextRow } from '../../postgres/statement.js'
import type { Description, RowReceiver } from './evaluate.js'
import type { SchemaPlan } from './schema/plan-schema.js'
import type { StatementPlan } from './statement-plan.js'

/** The result of statements that change the schema. */
export type SchemaChanged = Pick<SchemaPlan, 'tags' | 'notices' | 'types'>

/** Receives the result of a statement while it runs. */
export interface RowSink {
  /**
   * Called before the statement runs, which it can do more than once. `source` is the connection that rows come from, which
   * can be paused. undefined: the statement ends soon, and may then be run again.
   */
  begin(options: { source: pg.ClientBase | undefined }): void
  /** Called before the rows, with what they are. */
  describe(description: Description): void
  row(row: TextRow): void
  /** Receives rows as messages instead, from connections that can hand them on. undefined: all are texts. */
  readonly forward?: RowForward | undefined
  /** Receives the ids of records that the statement has written. */
  readonly onWritten?: ((ids: readonly string[]) => void) | undefined
  /** `written` is the number of records that a statement has written, and undefined for a query. */
  end(
    result:
      | {
          kind: Exclude<StatementPlan['kind'], 'with' | 'setval'>
          written: number
          notices?: readonly string[]
        }
      /** The statement has changed the schema. */
      | ({ kind: 'schema' } & SchemaChanged),
  ): void
}

/** Receives rows that nobody asks for. */
export const NO_ROWS: RowSink = { begin() {}, describe() {}, row() {}, end() {} }

export const receiverOf = (sink: RowSink): RowReceiver => ({
  receiveRow: (row) => sink.row(row),
  forward: sink.forward,
})

/** Tells a sink that a quick statement begins, perhaps not for the first time. */
export const beginAgain = (sink: RowSink, description: Description) => () => {
  sink.begin({ source: undefined })
  sink.describe(description)
}

/** A sink does not keep more rows of a quick statement. It runs again as a long one, whose rows are not kept. */
export class TooManyRowsError extends Error {
  constructor() {
    super('the rows of a quick statement take too much memory')
  }
}
