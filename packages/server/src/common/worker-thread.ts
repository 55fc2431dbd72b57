import { type ResourceLimits, Worker } from 'node:worker_threads'

/** A job exceeded its time or memory. Its thread was ended. */
export class OverBudgetError extends Error {}

/** The messages between a job and the thread. */
export interface Conversation {
  /** Sends a message that is not answered. */
  tell(message: unknown): void
  /** Sends a message and waits for the answer; `Answer` is what the thread is known to send. */
  ask<Answer>(message: unknown): Promise<Answer>
}

/** First message of a thread: it has loaded. After that, it answers messages in order. */
export const READY = 'ready'

const OUT_OF_MEMORY = 'ERR_WORKER_OUT_OF_MEMORY'

/**
 * A thread for work that would block the event loop, one job at a time. If a job exceeds its time
 * budget or memory, the thread is ended and the next job gets a new one.
 */
export class WorkerThread {
  readonly #file: URL
  readonly #options: { budgetMs: number; resourceLimits: ResourceLimits }
  #running: { worker: Worker; ready: Promise<void> } | undefined

  constructor(file: URL, options: { budgetMs: number; resourceLimits: ResourceLimits }) {
    this.#file = file
    this.#options = options
  }

  /** Loads the thread, so that the first job does not have to wait for it. */
  async start(): Promise<void> {
    this.#running ??= this.#load()
    await this.#running.ready
  }

  async run<Result>(job: (conversation: Conversation) => Promise<Result>): Promise<Result> {
    await this.start()
    const worker = this.#running?.worker
    if (worker === undefined) throw new Error('the thread has ended')
    let fail: (error: Error) => void = () => undefined
    const failed = new Promise<never>((_, reject) => {
      fail = (error) => {
        // The thread may be in the middle of the failed job, so it is ended.
        this.#end(worker)
        reject(error)
      }
    })
    failed.catch(() => undefined)
    const onError = (error: Error & { code?: string }) =>
      fail(error.code === OUT_OF_MEMORY ? new OverBudgetError(error.message) : error)
    const onExit = () => fail(new Error('the thread has ended'))
    worker.once('error', onError).once('exit', onExit)
    const timer = setTimeout(
      () => fail(new OverBudgetError(`a job may take ${this.#options.budgetMs} ms`)),
      this.#options.budgetMs,
    )
    const conversation: Conversation = {
      tell: (message) => worker.postMessage(message),
      ask: <Answer>(message: unknown) =>
        Promise.race([
          failed,
          new Promise<Answer>((resolve) => {
            worker.once('message', resolve)
            worker.postMessage(message)
          }),
        ]),
    }
    try {
      return await job(conversation)
    } finally {
      clearTimeout(timer)
      worker.off('error', onError).off('exit', onExit)
    }
  }

  async close(): Promise<void> {
    const running = this.#running
    this.#running = undefined
    await running?.worker.terminate()
  }

  #load() {
    const worker = new Worker(this.#file, {
      resourceLimits: this.#options.resourceLimits,
      // Flags of the process, such as conditions of imports, are not meant for the thread.
      execArgv: [],
    })
    worker.unref()
    // Without a listener an error of the thread would end the process.
    worker.on('error', () => this.#end(worker))
    worker.on('exit', () => this.#end(worker))
    const ready = new Promise<void>((resolve, reject) => {
      worker.once('message', () => resolve())
      worker.once('error', reject)
      worker.once('exit', () => reject(new Error('the thread has ended')))
    })
    ready.catch(() => undefined)
    return { worker, ready }
  }

  #end(worker: Worker): void {
    if (this.#running?.worker === worker) this.#running = undefined
    void worker.terminate()
  }
}
