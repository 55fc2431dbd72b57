import { afterEach, describe, expect, it } from 'vitest'
import { OverBudgetError, WorkerThread } from './worker-thread.js'

/** Answers with what it was sent; some messages make it fail. */
const SOURCE = `
  import { parentPort } from 'node:worker_threads'
  parentPort.on('message', (message) => {
    if (message === 'loop') for (;;);
    if (message === 'throw') throw new Error('a fault in the thread')
    if (message === 'exit') process.exit(1)
    if (message === 'grow') for (const kept = []; ; ) kept.push(new Array(1000).fill({}))
    parentPort.postMessage(message)
  })
  parentPort.postMessage('ready')`

const threads: WorkerThread[] = []

function create(source = SOURCE): WorkerThread {
  const thread = new WorkerThread(new URL(`data:text/javascript,${encodeURIComponent(source)}`), {
    budgetMs: 5_000,
    resourceLimits: { maxOldGenerationSizeMb: 32 },
  })
  threads.push(thread)
  return thread
}

afterEach(async () => {
  await Promise.all(threads.splice(0).map((thread) => thread.close()))
})

const echo = (thread: WorkerThread, message: string) =>
  thread.run(({ ask }) => ask<string>(message))

describe('a thread', () => {
  it('answers the messages of a job', async () => {
    const thread = create()
    const answers = await thread.run(async ({ ask }) => [await ask('one'), await ask('two')])
    expect(answers).toEqual(['one', 'two'])
  })

  it.each(['loop', 'grow'])('ends with a job that takes too much: %s', async (message) => {
    const thread = create()
    await expect(echo(thread, message)).rejects.toThrow(OverBudgetError)
    expect(await echo(thread, 'next')).toBe('next')
  })

  it.each([
    ['throw', 'a fault in the thread'],
    ['exit', 'the thread has ended'],
  ])('fails the job and not the process: %s', async (message, reason) => {
    const thread = create()
    await expect(echo(thread, message)).rejects.toThrow(reason)
    expect(await echo(thread, 'next')).toBe('next')
  })

  it('fails a job when it cannot be loaded', async () => {
    await expect(echo(create('throw new Error("not loaded")'), 'x')).rejects.toThrow('not loaded')
  })

  it('fails the job at hand when it is closed', async () => {
    const thread = create()
    await thread.start()
    const job = echo(thread, 'loop')
    await new Promise(setImmediate)
    await thread.close()
    await expect(job).rejects.toThrow('the thread has ended')
  })
})
