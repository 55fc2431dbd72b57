import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from '../support/process.js'
import {
  CONNECTIONS_CUT,
  FAST_RESTART,
  type Fault,
  IMMEDIATE_RESTART,
} from '../support/proof/faults.js'
import { Proof } from '../support/proof/proof.js'
import { createProofDatabase, makeProofFolder, ProofService } from '../support/proof/service.js'
import { Round } from '../support/proof/writer.js'
import { AWAY_ROUNDS, ROUNDS_TIMEOUT_MS, SEED } from '../support/random.js'

/** Number of changes that must be acknowledged after the outage before a round ends. */
const ACKNOWLEDGED_AFTERWARDS = 20

let folder: Awaited<ReturnType<typeof makeProofFolder>>
let service: ProofService
let proof: Proof

beforeAll(async () => {
  folder = await makeProofFolder()
  service = new ProofService(folder.path, { OFFSHOOT_BACKGROUND_PAUSE_MS: '200' })
  await service.start()
  await createProofDatabase(service, service.workspaceId)
  proof = new Proof(SEED)
})
afterAll(() => folder.remove())

async function playAll(fault: Fault): Promise<{ codes: Set<string>; recoveryMs: number }> {
  const codes = new Set<string>()
  const recoveries: number[] = []
  for (let number = 0; number < AWAY_ROUNDS; number++) {
    const round = new Round(service, fault)
    const faults = await proof.play([round], {
      check: service,
      async happen() {
        await proof.randomMoment(round)
        const startedAt = performance.now()
        await fault.strike(service, proof.random)
        const before = round.acknowledged
        await until(async () => round.acknowledged >= before + ACKNOWLEDGED_AFTERWARDS)
        recoveries.push(performance.now() - startedAt)
      },
    })
    expect(faults, `${fault.name}, seed ${SEED}`).toEqual([])
    expect(service.isRunning).toBe(true)
    for (const code of round.codes.keys()) codes.add(code)
  }
  return { codes, recoveryMs: Math.max(...recoveries) }
}

describe(`a service whose PostgreSQL goes away under load (seed ${SEED})`, () => {
  it.each([CONNECTIONS_CUT, FAST_RESTART, IMMEDIATE_RESTART])(
    'answers 503 with Retry-After, loses nothing and goes on by itself when $name',
    { timeout: ROUNDS_TIMEOUT_MS },
    async (fault) => {
      const { codes, recoveryMs } = await playAll(fault)
      console.log(`${fault.name}: back within ${Math.round(recoveryMs)} ms; ${proof.summary()}`)
      expect(['unavailable', 'commit_unknown']).toEqual(expect.arrayContaining([...codes]))
    },
  )
})
