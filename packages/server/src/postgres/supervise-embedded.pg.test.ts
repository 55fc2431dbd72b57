import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { endAll, postgresProcesses, until } from '../../../../test/support/process.js'
import { superviseEmbedded } from './supervise-embedded.js'

let dataDir: string
beforeAll(async () => {
  dataDir = await realpath(await mkdtemp(path.join(tmpdir(), 'offshoot-supervise-')))
})
afterAll(async () => {
  await endAll([dataDir])
  await rm(dataDir, { recursive: true, force: true })
})

describe('superviseEmbedded', () => {
  it('starts PostgreSQL again when it ends by itself, and says where it is now', async () => {
    const connections: object[] = []
    const errors: string[] = []
    const supervised = await superviseEmbedded({
      dataDir,
      onStart: (connection) => connections.push(connection),
      log: { info: () => undefined, error: (_details, line) => errors.push(line) },
    })
    expect(connections).toHaveLength(1)
    const [postmaster = 0] = await postgresProcesses(dataDir)
    process.kill(postmaster, 'SIGKILL')
    await until(async () => connections.length === 2)
    expect(errors).toEqual(['the embedded PostgreSQL ended unexpectedly; restarting it'])
    expect((await postgresProcesses(dataDir))[0]).not.toBe(postmaster)
    await supervised.stop()
    expect(await postgresProcesses(dataDir)).toEqual([])
  })

  it('leaves nothing running when it is stopped while it starts PostgreSQL again', async () => {
    let died = false
    const supervised = await superviseEmbedded({
      dataDir,
      onStart: () => undefined,
      log: {
        info: () => undefined,
        error: () => {
          died = true
        },
      },
    })
    const [postmaster = 0] = await postgresProcesses(dataDir)
    process.kill(postmaster, 'SIGKILL')
    await until(async () => died)
    await supervised.stop()
    // Long enough for a start that was not waited for.
    await delay(500)
    expect(await postgresProcesses(dataDir)).toEqual([])
  })
})
