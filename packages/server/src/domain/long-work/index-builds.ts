import { AppError } from '@offshoot/contract/errors'
import type { Progress } from '@offshoot/contract/operations'
import { newOperationId } from '../../common/ids.js'
import type { Database } from '../../postgres/database.js'
import { BEAT_MS, cancelled } from './long-work.js'
import {
  cancelBuild,
  endOperation,
  findBuildProgress,
  findHeapPlace,
  insertOperation,
  type Outcome,
  updateProgress,
} from './queries.js'

const INTERRUPTED = 'the build of the index was interrupted; it begins again by itself'

/** A build by a backend: of the index of a column, whose rows are in a heap. */
interface Build {
  readonly databaseId: string
  readonly heapId: string
  readonly name: string
  readonly backendId: number
}

/** Shows each build of an index as an operation, with the progress that PostgreSQL reports. */
export function showBuilds(database: Database) {
  return async ({ databaseId, heapId, name, backendId }: Build) => {
    const place = await findHeapPlace(database, heapId)
    if (place === undefined) return UNWATCHED
    const step = `column [${name}] of table [${place.tableName}]`
    const build = new ShownBuild(database, { backendId, step })
    await database.queryAside(
      insertOperation({
        ...{ id: build.id, kind: 'index', databaseId, branchName: place.branchName },
        progress: { step, done: 0, total: 1 },
        startedAt: new Date(),
      }),
    )
    build.follow()
    return build
  }
}

/** The heap is gone, and its build fails. */
const UNWATCHED = { isCancelled: false, end: async () => undefined }

/** `again`: the build has not ended, and will begin again. */
type BuildOutcome = 'ready' | 'again' | { readonly failure: string }

interface BuildProgress {
  readonly phase: string
  readonly done: number
  readonly total: number
}

class ShownBuild {
  readonly id = newOperationId()
  readonly #database: Database
  readonly #backendId: number
  readonly #step: string
  #beat: NodeJS.Timeout | undefined
  isCancelled = false

  constructor(database: Database, { backendId, step }: { backendId: number; step: string }) {
    this.#database = database
    this.#backendId = backendId
    this.#step = step
  }

  /** Notes the progress until the build ends. */
  follow(): void {
    this.#beat = setInterval(() => this.#tell().catch(() => undefined), BEAT_MS).unref()
  }

  async #tell(): Promise<void> {
    const [reported] = await this.#database.queryAside<BuildProgress>(
      findBuildProgress(this.#backendId),
    )
    const { phase, done, total } = reported ?? { phase: 'waiting', done: 0, total: 1 }
    const progress: Progress = { step: `${this.#step}: ${phase}`, done, total }
    const rows = await this.#database.queryAside(updateProgress({ id: this.id, progress }))
    if (rows.length > 0) return
    const cancel = cancelBuild({ id: this.id, backendId: this.#backendId })
    // The backend may stop before the answer comes.
    this.isCancelled = true
    this.isCancelled = (await this.#database.queryAside(cancel)).length > 0
  }

  async end(outcome: BuildOutcome): Promise<void> {
    clearInterval(this.#beat)
    // If it cannot be stored, the operation counts as interrupted after a while.
    await this.#database
      .queryAside(endOperation(this.id, this.#outcomeOf(outcome)))
      .catch(() => undefined)
  }

  #outcomeOf(outcome: BuildOutcome): Outcome {
    if (outcome === 'ready') return { state: 'done', result: {} }
    if (this.isCancelled) return this.#failed('cancelled', cancelled())
    if (outcome === 'again') {
      return this.#failed('failed', new AppError('operation_interrupted', INTERRUPTED))
    }
    const message = `${this.#step}: cannot be indexed: ${outcome.failure}`
    return this.#failed('failed', new AppError('invalid_schema', message))
  }

  #failed(
    state: 'failed' | 'cancelled',
    { code, message, status }: AppError,
  ): Extract<Outcome, { error: unknown }> {
    return { state, error: { id: this.id, message, code, status } }
  }
}
