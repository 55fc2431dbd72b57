import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from '../support/process.js'
import {
  BACKEND_KILLED,
  EVERYTHING_KILLED,
  type Fault,
  POSTGRES_KILLED,
  SERVICE_KILLED,
  START_KILLED,
} from '../support/proof/faults.js'
import { Folding } from '../support/proof/folding.js'
import { Proof } from '../support/proof/proof.js'
import { createProofDatabase, makeProofFolder, ProofService } from '../support/proof/service.js'
import { Round } from '../support/proof/writer.js'
import { EXPLORES, ROUNDS, ROUNDS_TIMEOUT_MS, SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'

const FAULTS: readonly (readonly [weight: number, fault: Fault])[] = [
  [2, SERVICE_KILLED],
  [3, EVERYTHING_KILLED],
  [1, START_KILLED],
  [5, POSTGRES_KILLED],
  [6, BACKEND_KILLED],
]

/** The short form has each fault once. */
const faultOf = (number: number, random: Random): Fault =>
  (EXPLORES ? undefined : FAULTS[number]?.[1]) ?? random.weighted(FAULTS)

/** Merges of more rows are published as layers. The merges of the writers have more or fewer. */
const LOCKED_ROWS = 20

/** Merges of that kind that are interrupted. */
const MERGES_STRUCK = Math.ceil(ROUNDS / 4)
const MERGE_FAULTS = [SERVICE_KILLED, EVERYTHING_KILLED]

/** Probability that days pass between two rounds, so that unused content is removed. */
const DAYS_PASS = 0.3

let folder: Awaited<ReturnType<typeof makeProofFolder>>
let service: ProofService

beforeAll(async () => {
  folder = await makeProofFolder()
  service = new ProofService(folder.path, {
    OFFSHOOT_BACKGROUND_PAUSE_MS: '100',
    OFFSHOOT_LIMIT_MERGE_LOCKED_ROWS_MAX: String(LOCKED_ROWS),
    // Checkpoints are made by all merges, and collected all the time.
    OFFSHOOT_LIMIT_AUTOMATIC_CHECKPOINTS_MAX: '3',
  })
  await service.start()
  await createProofDatabase(service, service.workspaceId)
})
afterAll(() => folder.remove())

/**
 * Moves the timestamps of all content, of pinned states and of unpublished layers three days back. Nothing else depends on time
 * while no request runs.
 */
async function letDaysPass(): Promise<void> {
  // The collector deletes these rows in another order. Without the lock, both could wait for each other.
  await service.sql(`
    lock table offshoot.branches in share row exclusive mode;
    update offshoot.branches
    set deleted_at = deleted_at - interval '3 days'
    where deleted_at is not null`)
  await service.sql(`
    update offshoot_work.spares
    set kept_until = kept_until - interval '3 days'
    where definition = 'layer'`)
  await service.sql(`
    update offshoot.blobs
    set put_at = put_at - interval '3 days',
      checked_at = checked_at - interval '3 days',
      unused_since = unused_since - interval '3 days'`)
}

/** Returns states that were pinned for a merge that never ended, and the tables that belong to them. */
function findPins() {
  return service.sql(`
    select b.id
    from offshoot.branches b
    where b.deleted_at is not null
      and not exists (select from offshoot.branches f where f.parent_id = b.id)
      and not exists (select from offshoot.merges m where m.base_branch_id = b.id)
      and not exists (select from offshoot.checkpoints c where c.pin_id = b.id)
    union all
    select relname from pg_class where relkind = 'r' and relname like 'merge\\_%'
    union all
    select heap_id::text from offshoot_work.spares where definition = 'layer'`)
}

/**
 * Returns stored tables and files that the catalogue does not know. The collector could never
 * remove them.
 */
async function findLeaks(): Promise<string[]> {
  const tables = await service.sql(`
    select c.relname as name
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname ~ '^offshoot_db_' and c.relkind = 'r' and c.relname ~ '^(heap|past)_'
      and substring(c.relname from '\\d+$')::bigint not in (
        select id from offshoot.heaps union all select heap_id from offshoot_work.spares
      )`)
  const blobs = await service.sql(`select encode(sha256, 'hex') as name from offshoot.blobs`)
  const known = new Set(blobs.map(({ name }) => name))
  const files = await readdir(path.join(folder.path, 'files'), {
    recursive: true,
    withFileTypes: true,
  })
  const unknown = files.filter((entry) => entry.isFile() && !known.has(entry.name))
  return [...tables, ...unknown].map(({ name }) => String(name))
}

describe(`a service that is killed again and again (seed ${SEED})`, () => {
  const proof = new Proof(SEED)

  it('has everything it acknowledged, and nothing by halves', {
    timeout: ROUNDS_TIMEOUT_MS,
  }, async () => {
    const folding = new Folding(service, new Random(SEED))
    const play = async (fault: Fault, moment: (round: Round) => Promise<unknown>) => {
      const over = new AbortController()
      const folded = folding.run(over.signal)
      const round = new Round(service, fault)
      if (proof.random.chance(DAYS_PASS)) await letDaysPass()
      const faults = await proof
        .play([round], {
          check: service,
          async happen() {
            await moment(round)
            await fault.strike(service, proof.random)
          },
        })
        .finally(() => over.abort())
      await folded
      expect(faults, `round ${proof.rounds}, ${fault.name}, seed ${SEED}`).toEqual([])
    }
    for (let number = 0; number < ROUNDS; number++) {
      await play(faultOf(number, proof.random), (round) => proof.randomMoment(round))
    }
    let struck = 0
    while (struck < MERGES_STRUCK) {
      await play(proof.random.pick(MERGE_FAULTS), async () => {
        if (await proof.momentOfMerge(LOCKED_ROWS)) struck++
      })
    }
    const large = proof.merger.merged.filter(({ rows }) => rows > LOCKED_ROWS).length
    console.log(
      `killed: ${proof.summary()}, ${large} merges as layers and ${struck} interrupted, ${folding.folds} folds`,
    )
    expect(large).toBeGreaterThan(0)
    expect(folding.folds).toBeGreaterThan(0)
    expect(proof.acknowledged).toBeGreaterThan(ROUNDS)
    expect(proof.unknown).toBeGreaterThan(ROUNDS)
  })

  it('has nothing that is forgotten, and removes what nobody needs', async () => {
    await letDaysPass()
    await until(async () => (await findPins()).length === 0)
    await until(async () => (await findLeaks()).length === 0)
    await until(
      async () =>
        (await service.sql("select from offshoot.work where kind = 'sweep'")).length === 0,
    )
    for (let count = 0; count < 2; count++) {
      await letDaysPass()
      const due = `
        select from offshoot.blobs
        where checked_at < now() - interval '2 days' or unused_since < now() - interval '2 days'`
      await until(async () => (await service.sql(due)).length === 0)
    }
    const round = new Round(service, { mayVanish: false })
    expect(await proof.play([round], { check: service, happen: async () => undefined })).toEqual([])
    expect(await service.kill('SIGTERM')).toBeUndefined()
  })
})
