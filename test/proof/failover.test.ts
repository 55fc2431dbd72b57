import { rm } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { postgresProcesses, until } from '../support/process.js'
import { Proof } from '../support/proof/proof.js'
import { createProofDatabase, makeProofFolder, ProofService } from '../support/proof/service.js'
import { Round } from '../support/proof/writer.js'
import { AWAY_ROUNDS, ROUNDS_TIMEOUT_MS, SEED } from '../support/random.js'
import { freePort, type Member, onMember, startMember, startStandby } from '../support/standby.js'

/** Number of changes that must be acknowledged after the promotion before a round ends. */
const ACKNOWLEDGED_AFTERWARDS = 20

let folder: Awaited<ReturnType<typeof makeProofFolder>>
let ports: readonly [number, number]
let primary: Member
let standby: Member
let service: ProofService

beforeAll(async () => {
  folder = await makeProofFolder()
  ports = [await freePort(), await freePort()]
  primary = await startMember('one', { dataDir: dataDirOf('one'), port: ports[0] })
  standby = await startStandby('two', { primary, dataDir: dataDirOf('two'), port: ports[1] })
  await waitForStandby()
  const { user, password, database } = primary.postgres.connection
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join(',')
  service = new ProofService(path.join(folder.path, 'service'), {
    OFFSHOOT_DATABASE_URL: `postgresql://${user}:${password}@${hosts}/${database}?target_session_attrs=read-write`,
    OFFSHOOT_BACKGROUND_PAUSE_MS: '200',
  })
  await service.start()
  await createProofDatabase(service, service.workspaceId)
})
afterAll(async () => {
  await service?.kill()
  await primary?.postgres.stop()
  await standby?.postgres.stop()
  await folder.remove()
})

function dataDirOf(name: string): string {
  return path.join(folder.path, name)
}

/** Makes every commit wait for the standby. */
async function waitForStandby(): Promise<void> {
  await onMember(
    primary,
    `alter system set synchronous_standby_names = '${standby.name}'`,
    'select pg_reload_conf()',
  )
  await until(async () => {
    const rows = await onMember(
      primary,
      `select from pg_stat_replication where sync_state = 'sync' and state = 'streaming'`,
    )
    return rows.length === 1
  })
}

async function killPrimary(): Promise<void> {
  for (const pid of await postgresProcesses(primary.dataDir)) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It ended together with the first one.
    }
  }
}

/** Promotes the standby. Without the second setting it would wait for a standby that it does not have. */
async function promote(): Promise<void> {
  await onMember(standby, 'select pg_promote()')
  await onMember(
    standby,
    `alter system set synchronous_standby_names = ''`,
    'select pg_reload_conf()',
  )
  ;[primary, standby] = [standby, primary]
}

/** Makes the lost server a standby of the new primary. */
async function rebuildStandby(): Promise<void> {
  const { name, dataDir, port } = standby
  await standby.postgres.stop()
  await rm(dataDir, { recursive: true, force: true })
  standby = await startStandby(name, { primary, dataDir, port })
  await waitForStandby()
}

const postgresOf = async () => (await service.send('GET', '/health')).body.postgres

describe(`a service on a primary with a synchronous standby (seed ${SEED})`, () => {
  it('tells which server it uses, and how far the standby is behind', async () => {
    const state = await postgresOf()
    expect(state).toMatchObject({
      server: `127.0.0.1:${primary.port}`,
      isCluster: false,
      standbys: [{ name: standby.name, sync: 'sync', bytesBehind: expect.any(Number) }],
    })
    const metrics = await service.send('GET', '/metrics')
    const text = metrics.bytes.toString()
    expect(text).toContain(`offshoot_postgres_server{server="127.0.0.1:${primary.port}"} 1`)
    await until(async () => {
      const { bytes } = await service.send('GET', '/metrics')
      return /standby_bytes_behind\{standby="two",sync="sync"\} \d+/.test(bytes.toString())
    })
  })

  it('follows the promotion when the primary is killed: nothing acknowledged is lost, nothing is applied twice', {
    timeout: ROUNDS_TIMEOUT_MS,
  }, async () => {
    const proof = new Proof(SEED)
    const recoveries: number[] = []
    for (let number = 0; number < AWAY_ROUNDS; number++) {
      const round = new Round(service, { mayVanish: false })
      const faults = await proof.play([round], {
        check: service,
        async happen() {
          await proof.randomMoment(round)
          await killPrimary()
          await promote()
          const promotedAt = performance.now()
          const before = round.acknowledged
          await until(async () => round.acknowledged > before)
          recoveries.push(performance.now() - promotedAt)
          await until(async () => round.acknowledged >= before + ACKNOWLEDGED_AFTERWARDS)
        },
      })
      expect(faults, `seed ${SEED}`).toEqual([])
      expect((await postgresOf()).server).toBe(`127.0.0.1:${primary.port}`)
      expect(['unavailable', 'commit_unknown']).toEqual(
        expect.arrayContaining([...round.codes.keys()]),
      )
      await rebuildStandby()
    }
    const worst = Math.round(Math.max(...recoveries))
    console.log(`failover: serving within ${worst} ms of the promotion; ${proof.summary()}`)
  })

  it('leaves a primary that was replaced while it still runs', async () => {
    await promote()
    await until(async () => (await postgresOf())?.server === `127.0.0.1:${primary.port}`)
    const reply = await service.send('PUT', '/db/proof:main/tables/items/data/after', {
      body: { value: 1 },
    })
    expect(reply.status).toBe(201)
    const rows = await onMember(primary, 'select pg_is_in_recovery() as "isStandby"')
    expect(rows).toEqual([{ isStandby: false }])
  })
})
