import { AppError } from '@offshoot/contract/errors'
import type { JsonText } from '../../common/write-json.js'
import { runBounded } from '../../postgres/bounds.js'
import type { Queryable } from '../../postgres/database.js'
import { runWithin } from '../../postgres/run-transaction.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import { type Call, toCall } from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { keepAnswer } from '../records/idempotency.js'
import type { Session } from '../session/session.js'
import { lacksRights } from './as-reader.js'
import type { CopyLoad } from './copy-load.js'
import { describeInside } from './describe-sql.js'
import type { Description, ResultColumn } from './evaluate.js'
import type { OpenSql } from './evaluators.js'
import { type RunStatement, requireSchemaChange } from './prepare-sql.js'
import { cursorForm, type ResultForm } from './result-forms.js'
import type { RowSink } from './row-sink.js'
import { fetchInside, MissingStorageError, runSqlInside } from './run-sql.js'
import { type ChangeOptions, changeSchemaWithin } from './schema/change-schema.js'
import { type ParsedSchema, parseSchema } from './schema/parse-schema.js'
import type { SqlContext } from './sql-context.js'
import type { SqlEngine } from './sql-engine.js'

/*
 * A transaction that a client keeps open between its statements. It holds the gate of the branch together with other
 * writers, and a connection of its own kind. A change of the schema needs the gate alone, until the transaction ends.
 */

/**
 * A transaction gets storage for all tables of a schema that has no more: it cannot get any when it has begun, because
 * that needs the branch alone.
 */
const TABLES_MAX = 200

export interface HoldOptions {
  /** The transaction cannot write, and keeps nobody waiting. */
  readonly isReadOnly: boolean
  /** The transaction begins with a change of the schema. */
  readonly isAlone: boolean
  /** Called when others wait for the transaction. */
  onWaited(): void
}

interface SqlRequest {
  readonly statement: RunStatement
  readonly form: ResultForm
  readonly change: ChangeOptions
  /** The COPY that the statement is a part of. */
  readonly load?: CopyLoad | undefined
}

/** A statement about savepoints. `depth` is the number of savepoints before the one it names. */
export interface SavepointStep {
  readonly kind: 'save' | 'release' | 'return'
  readonly name: string
  readonly depth: number
}

type Branch = Session['branch']
/** A transaction that writes. */
type HeldWrites = Parameters<Parameters<Branch['hold']>[0]>[0]

/** A schema that the transaction sees, and the writes since it does. */
interface Stretch {
  readonly session: Session
  readonly transaction: OpenTransaction
  /** Keeps the links of the writes. */
  settle(): Promise<void>
}

export type HoldContext = SqlContext &
  Pick<SqlEngine, 'blockingWatch'> & {
    /** Returns the session as a transaction sees it that has changed the schema. */
    reopen(session: Session, reads: Queryable): Promise<Session>
  }

/** A transaction of a client. */
class SqlTransaction {
  readonly #context: HoldContext
  readonly #role: string | undefined
  /** Whether the transaction has had cursors, which keep what they have collected. */
  #hasCursors = false
  /** undefined: the transaction only reads. */
  readonly #held: HeldWrites | undefined
  #stretch: Stretch
  /** What the transaction saw at its savepoints. */
  readonly #saved: Stretch[] = []

  constructor(
    context: HoldContext,
    options: { role: string | undefined; transaction: OpenTransaction; held?: HeldWrites },
  ) {
    this.#context = context
    this.#role = options.role
    this.#held = options.held
    const { session } = context
    this.#stretch =
      options.held === undefined
        ? { session, transaction: options.transaction, settle: async () => undefined }
        : stretchOf(session, options.held)
  }

  /** The branch as the transaction sees it. */
  get session(): Session {
    return this.#stretch.session
  }

  /** Runs a statement, and returns its result. */
  async run(own: SqlContext, request: SqlRequest): Promise<string> {
    const parsed = await parseSchema([request.statement.statement])
    if (parsed !== undefined) return this.#changeSchema(own, request, parsed)
    const { session, transaction } = this.#stretch
    const result = await this.#readable(() =>
      runSqlInside({ ...own, session }, this.#open, request),
    )
    await request.load?.keep(session, transaction)
    return result
  }

  /** Keeps the answer of a request that is executed once. */
  keepAnswer(own: SqlContext, answer: JsonText): Promise<void> {
    const { session, transaction } = this.#stretch
    return keepAnswer(transaction, { ...own, session }, answer)
  }

  /** Creates a cursor. `words` precede its query, which is the statement. */
  async declare(
    own: SqlContext,
    request: { statement: RunStatement; words: Sql; sink: Pick<RowSink, 'describe'> },
  ): Promise<void> {
    const { session } = this.#stretch
    const { statement, words, sink } = request
    const form = cursorForm(words, sink)
    await this.#readable(() => runSqlInside({ ...own, session }, this.#open, { statement, form }))
    this.#hasCursors = true
  }

  /** Reads rows of a cursor. */
  async fetch(
    own: SqlContext,
    request: { fetch: Sql; columns: readonly ResultColumn[]; sink: RowSink },
  ): Promise<void> {
    const { session } = this.#stretch
    await this.#readable(() => fetchInside({ ...own, session }, this.#open, request))
  }

  /** Runs a statement about cursors. */
  async control(statement: Sql): Promise<void> {
    await this.#stretch.transaction.run([{ ...toCall(statement), isUnnamed: true }])
  }

  get #open(): OpenSql {
    const { transaction } = this.#stretch
    return { transaction, role: this.#role, countsOn: this.#hasCursors }
  }

  /** Describes a statement with the schema that the transaction has made. */
  describe(own: SqlContext, statement: RunStatement): Promise<Description> {
    const { session } = this.#stretch
    return this.#readable(() => describeInside({ ...own, session }, this.#open, statement))
  }

  async savepoint({ kind, name, depth }: SavepointStep): Promise<void> {
    const words = { save: sql`savepoint`, release: sql`release`, return: sql`rollback to` }[kind]
    await this.control(sql`${words} ${ident(name)}`)
    const saved = this.#saved[depth]
    if (kind === 'return' && saved !== undefined) this.#stretch = saved
    this.#saved.length = kind === 'return' ? depth + 1 : depth
    if (kind === 'save') this.#saved.push(this.#stretch)
  }

  /** Keeps links: before the transaction is committed, or when its client asks for it. What follows is looked at again. */
  settle(): Promise<void> {
    return this.#stretch.settle()
  }

  async #changeSchema(own: SqlContext, request: SqlRequest, parsed: ParsedSchema): Promise<string> {
    const held = this.#held
    const { session, settle } = this.#stretch
    const context = { ...own, session }
    requireSchemaChange(context, [request.statement])
    if (held === undefined) throw new Error('a transaction that only reads must be refused before')
    const { client } = held
    const { database, bounds } = context
    return runBounded({ database, client, bounds, canLose: true }, async () => {
      await held.becomeAlone()
      // The links of earlier writes are those of the schema that they were written by.
      await settle()
      const result = await runWithin(database, client, async (transaction) => {
        const change = { ...request.change, parsed }
        const made = await changeSchemaWithin(context, transaction, change)
        const reopened = await this.#context.reopen(session, transaction)
        this.#stretch = stretchOf(reopened, await reopened.branch.goOn(client))
        return made
      })
      return request.form.change(result)
    })
  }

  /** Renews the privileges of the role that reads, if that is why a statement has failed. */
  async #readable<Result>(work: () => Promise<Result>): Promise<Result> {
    try {
      return await work()
    } catch (error) {
      const { schemaName } = this.session.branch
      if (!(await lacksRights(this.#context, schemaName, error))) throw error
      await this.#context.readers.renew(schemaName)
      throw new AppError('retry_limit', 'the privileges of the database were renewed', {
        cause: error,
      })
    }
  }
}

function stretchOf(session: Session, held: Parameters<Branch['watchLinks']>[0]): Stretch {
  const { transaction, settle } = session.branch.watchLinks(held)
  return {
    session,
    transaction,
    async settle() {
      const { lacking } = await settle()
      if (lacking !== undefined) throw new MissingStorageError([lacking])
    },
  }
}

/** Runs a transaction as long as `body` does. If that throws, the transaction is rolled back. */
export async function holdTransaction(
  context: HoldContext,
  { isReadOnly, isAlone, onWaited }: HoldOptions,
  body: (transaction: SqlTransaction) => Promise<void>,
): Promise<void> {
  const { session, readers, bounds } = context
  const { branch, schema } = session
  if (!isReadOnly && schema.tableNames.length <= TABLES_MAX) {
    const tables = schema.tableNames.map((name) => session.table(name))
    // Another transaction may have created the storage, and is open already: it should not be ended for nothing.
    if (tables.some(({ writer }) => writer === undefined)) await branch.runReads([])
    await branch.makeWritable(tables)
  }
  const role = await readers.find(branch.schemaName)
  const { workspaceId } = session.access
  const connections = {
    connect: () =>
      context.connections.connect(workspaceId, { lane: 'open', signal: bounds.signal }),
  }
  const hold = async (given: OpenTransaction, givenHeld?: HeldWrites) => {
    const { processID } = given.client as unknown as { processID: number }
    const stopWatching = context.blockingWatch.watch(processID, onWaited)
    let isOver = false
    // The connection belongs to somebody else afterwards.
    const whileOpen = <Own extends OpenTransaction>(own: Own): Own => ({
      ...own,
      run(calls: readonly Call[]) {
        if (isOver) throw new Error('a statement has outlived its transaction')
        return own.run(calls)
      },
    })
    const held = givenHeld && whileOpen(givenHeld)
    const transaction = held ?? whileOpen(given)
    const inside = new SqlTransaction(context, { role, transaction, ...(held && { held }) })
    try {
      await body(inside)
      await inside.settle()
    } finally {
      isOver = true
      stopWatching()
    }
  }
  if (isReadOnly) await branch.runSnapshot(hold, { connections, isSerial: true })
  else await branch.hold((held) => hold(held, held), { connections, isAlone, onWaited })
}
