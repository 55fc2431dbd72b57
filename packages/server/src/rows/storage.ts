import { SharedCache } from '../common/shared-cache.js'
import type { Database } from '../postgres/database.js'
import { Extensions } from '../postgres/extension.js'
import type { Transaction } from '../postgres/run-transaction.js'
import { type Sql, sql } from '../postgres/sql.js'
import type { Statement } from '../postgres/statement.js'
import type { Work } from '../postgres/work.js'
import { collectGates } from './gates/gate.js'
import { type AloneOptions, Gates } from './gates/gates.js'
import { absorbLayers, absorbNext } from './heaps/absorb.js'
import { collectHeap } from './heaps/collect.js'
import { DeepFolds, foldNext } from './heaps/folds.js'
import { collectSpares, SPARES_MAX, SpareHeaps } from './heaps/spare-heaps.js'
import { collectVersions } from './heaps/versions.js'
import { collectSchema } from './layout/database-schema.js'
import { type ForkOutcome, toForkOutcome } from './layout/fork.js'
import { analyzeGrownHeaps } from './layout/heap-statistics.js'
import { type BranchRows, shallowLayoutSql, toShallowLayout } from './layout/layout.js'
import { LoadedRows } from './merging/loaded-rows.js'
import { OpenBranch, type SchemaTables, type SharedByBranches } from './open-branch.js'
import type { TableRead } from './reading/table-read.js'
import type { Guard } from './running/guard.js'
import { Moments } from './running/moments.js'
import { SharedCalls } from './running/shared-calls.js'

const READS_MAX = 20_000
/** Estimated length of the statements of all compiled reads, in characters. */
const READS_LENGTH_MAX = 64 * 1024 * 1024
const STATEMENTS_MAX = 20_000
/** Length of all statements that write, in characters. */
const STATEMENTS_LENGTH_MAX = 32 * 1024 * 1024

/** The rows of all branches on one server, and everything that this process remembers about them. */
export class Storage implements SharedByBranches {
  readonly database: Database
  readonly extensions: Extensions
  readonly gates: Gates
  readonly moments = new Moments()
  readonly spares: SpareHeaps
  readonly folds: DeepFolds
  readonly sharedCalls: SharedCalls
  /** The background work on rows. Each does one step, and returns true if there may be more to do. */
  readonly background = {
    fold: (work: Work): Promise<unknown> => foldNext(this.database, work),
    absorb: () => absorbNext(this),
    collectHeaps: () => collectHeap(this.database),
    collectSpares: () => collectSpares(this.database),
    collectSchemas: () => collectSchema(this.database),
    collectGates: () => collectGates(this.database),
    collectVersions: () => collectVersions(this.database),
  }
  readonly reads = new SharedCache<TableRead>({
    max: READS_MAX,
    maxSize: READS_LENGTH_MAX,
    sizeOf: ({ length }) => length,
  })
  readonly statements = new SharedCache<Statement>({
    max: STATEMENTS_MAX,
    maxSize: STATEMENTS_LENGTH_MAX,
    sizeOf: ({ text }) => text.length,
  })

  /** `spareHeapsMax` limits the spare heaps that this process creates in each database of users. */
  constructor(database: Database, { spareHeapsMax = SPARES_MAX }: { spareHeapsMax?: number } = {}) {
    this.database = database
    this.extensions = new Extensions(database)
    this.gates = new Gates(database)
    this.spares = new SpareHeaps(this.gates, spareHeapsMax)
    this.folds = new DeepFolds(database)
    this.sharedCalls = new SharedCalls(this)
  }

  /** Opens a branch for the requests of a key. */
  open(guard: Guard, schema: SchemaTables): OpenBranch {
    return new OpenBranch(this, guard, schema)
  }

  /** Runs a transaction with the exclusive gates of branches, see `Gates`. */
  runAlone<Result>(
    branchIds: readonly string[],
    body: (transaction: Transaction) => Promise<Result>,
    options?: AloneOptions,
  ): Promise<Result> {
    return this.gates.runAlone(branchIds, body, options)
  }

  /**
   * Runs a statement of `forkSql` behind the gate of the source, in a single round trip. With `opens`, returns the rows of
   * the fork, unless it inherits from many others.
   */
  async fork(
    statement: Sql,
    { sourceId, branchId, opens }: { sourceId: string; branchId: string; opens: boolean },
  ): Promise<{ outcome: ForkOutcome; rows: BranchRows | undefined }> {
    const [forked = [], [found] = []] = await this.gates.runStatementsAlone(
      [sourceId],
      [statement, ...(opens ? [sql`select (${shallowLayoutSql(sql`${branchId}`)})::text`] : [])],
    )
    const rows = toShallowLayout(JSON.parse(found?.[0] ?? '[]'))
    return { outcome: toForkOutcome(forked), rows }
  }

  /** Collects statistics of the heaps of branches that have doubled since it was last done. Waits for nobody. */
  analyzeGrown(databaseId: string, branchIds: readonly string[]): Promise<void> {
    return analyzeGrownHeaps(this.database, { databaseId, branchIds })
  }

  /** Creates an empty table for the records that a bulk load has inserted. It must be dropped in the end. */
  createLoadedRows(place: { databaseId: string; tableId: number }): Promise<LoadedRows> {
    return LoadedRows.create(this.database, place)
  }

  /** Moves the rows of all layers of a branch to its heaps, in small steps. */
  absorb(branchId: string): Promise<void> {
    return absorbLayers(this, branchId)
  }
}
