import { appendFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { amount, SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { createTestService, type TestService } from '../support/service.js'
import { countWork } from '../support/work.js'

/*
 * Branches that merge and pull for years must not need more catalogue rows or disk than after a month.
 * OFFSHOOT_TEST_CURVE sets a file for all measurements.
 */

const ROUNDS = amount('MERGES', { short: 60, long: 1000 })
const CURVE = process.env.OFFSHOOT_TEST_CURVE
/** The long form has as many branches as a team. */
const BRANCHES = ROUNDS >= 1000 ? 20 : 5
const RECORDS = 40
const MEASUREMENTS = ROUNDS >= 1000 ? 20 : 6
/** A branch is deleted and forked again once in so many rounds. */
const LIFE_ROUNDS = 50
/** The background does a bounded amount of work at a time, so it runs as often as beside a busy team. */
const BACKGROUND_ROUNDS = 50
/** Turns of the background before a measurement. Folding may request sweeps, and sweeps further ones. */
const TURNS = 3
const TIMEOUT_MS = 300_000 + ROUNDS * 5000

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

/** Rows and bytes that the history of a database occupies. */
interface Size {
  readonly branches: number
  readonly merges: number
  readonly schemas: number
  readonly migrations: number
  readonly heaps: number
  /** Requests to the background that are not done. */
  readonly pending: number
  /** Rows of all versions that are stored. */
  readonly versions: number
  readonly relations: number
  readonly catalogueBytes: number
  readonly rowBytes: number
}

async function measure(): Promise<Size> {
  const { database } = service
  // Space of deleted rows is reused from now on, as it is after a visit of autovacuum.
  await database.query(sql`vacuum`)
  const [counts] = await database.query<Omit<Size, 'versions'>>(sql`
    select
      (select count(*)::integer from offshoot.branches) as branches,
      (select count(*)::integer from offshoot.merges) as merges,
      (select count(*)::integer from offshoot.schemas) as schemas,
      (select count(*)::integer from offshoot.migrations) as migrations,
      (select count(*)::integer from offshoot.heaps) as heaps,
      (select count(*)::integer from offshoot.work where database_id > 0) as pending,
      (select count(*)::integer from pg_class) as relations,
      (select sum(pg_total_relation_size(oid))::double precision from pg_class
        where relnamespace in ('offshoot'::regnamespace, 'pg_catalog'::regnamespace)
          and relkind = 'r') as "catalogueBytes",
      (select coalesce(sum(pg_total_relation_size(oid)), 0)::double precision from pg_class
        where relkind = 'r' and relname ~ '^(heap|past)_') as "rowBytes"`)
  if (counts === undefined) throw new Error('an aggregate must return a row')
  const [rows] = await database.query<{ versions: number }>(sql`
    select coalesce(sum((xpath('/row/n/text()', query_to_xml(
      format('select count(*) as n from %s', c.oid::regclass), false, true, '')))[1]::text::integer), 0)::integer
      as versions
    from pg_class c
    where c.relkind = 'r' and c.relname ~ '^(heap|past)_'`)
  return { ...counts, versions: rows?.versions ?? 0 }
}

const branchName = (number: number): string => `b${number}`
const recordId = (number: number): string => `r${number}`

async function runRound(branches: TestBranches, random: Random, round: number): Promise<void> {
  const name = branchName(random.below(BRANCHES))
  const other = branchName(random.below(BRANCHES))
  await branches.patch(name, 'items', recordId(random.below(RECORDS)), { price: round })
  await branches.merge(name, { strategy: 'theirs' })
  await branches.pull(other, { strategy: 'theirs' })
  if (round % LIFE_ROUNDS !== 0) return
  await branches.delete(other)
  await branches.fork(other)
}

describe('the storage of branches that merge and pull', () => {
  it(
    `does not grow with the number of rounds (seed ${SEED})`,
    async () => {
      const random = new Random(SEED)
      const branches = await TestBranches.create(service, 'years', {
        items: [{ name: 'price', type: 'int' }],
      })
      const records = Array.from({ length: RECORDS }, (_, number) => ({ id: recordId(number) }))
      await branches.bulk('main', 'items', records)
      for (let number = 0; number < BRANCHES; number++) await branches.fork(branchName(number))
      const sizes: Size[] = []
      for (let round = 1; round <= ROUNDS; round++) {
        await runRound(branches, random, round)
        if (round % BACKGROUND_ROUNDS === 0) await runBackground(service)
        if (round % Math.ceil(ROUNDS / MEASUREMENTS) !== 0) continue
        for (let turn = 0; turn < TURNS; turn++) await runBackground(service)
        const size = await measure()
        sizes.push(size)
        if (CURVE !== undefined) await appendFile(CURVE, `${JSON.stringify({ round, ...size })}\n`)
      }
      const half = Math.floor(sizes.length / 2)
      const largest = (part: readonly Size[], key: keyof Size) =>
        Math.max(...part.map((size) => size[key]))
      for (const size of sizes) {
        expect(size.pending).toBe(0)
        // Each pair of branches has a base.
        expect(size.merges).toBeLessThanOrEqual((BRANCHES + 1) ** 2)
        // Each merge keeps one state, and each branch the state that it was forked from.
        expect(size.branches).toBeLessThanOrEqual(size.merges + 3 * BRANCHES)
        expect(size.versions).toBeLessThanOrEqual((size.branches + BRANCHES) * RECORDS)
      }
      for (const key of ['schemas', 'migrations'] as const) {
        expect(largest(sizes.slice(half), key), key).toBe(largest(sizes.slice(0, half), key))
      }
      for (const key of ['catalogueBytes', 'rowBytes'] as const) {
        const [before, after] = [
          largest(sizes.slice(0, half), key),
          largest(sizes.slice(half), key),
        ]
        expect(after, key).toBeLessThan(1.25 * before)
      }
    },
    TIMEOUT_MS,
  )
})

describe('the compaction of history', () => {
  it('is done once for a database in a round, and again in the next one', async () => {
    const { database } = service
    const branches = await TestBranches.create(service, 'rounds', {
      items: [{ name: 'value', type: 'int' }],
    })
    await branches.fork('dev')
    await branches.put('dev', 'items', 'a', { value: 1 })
    await branches.merge('dev')
    await runBackground(service)
    await branches.put('dev', 'items', 'a', { value: 2 })
    await branches.merge('dev')
    // As if there were a merge during each compaction.
    await database.query(sql`create sequence offshoot.test_compactions`)
    await database.query(sql`
      create function offshoot.test_merge() returns trigger language plpgsql as $$ begin
        perform nextval('offshoot.test_compactions');
        insert into offshoot.work (kind, database_id) values (old.kind, old.database_id);
        return null;
      end $$`)
    await database.query(sql`
      create trigger test_merge after delete on offshoot.work
      for each row when (old.kind = 'compact') execute function offshoot.test_merge()`)
    try {
      for (let round = 1; round <= 2; round++) {
        expect(await runBackground(service)).toBe(false)
        const [row] = await database.query(sql`
          select last_value::integer as count from offshoot.test_compactions`)
        expect(row?.count).toBe(round)
      }
    } finally {
      await database.query(sql`drop function offshoot.test_merge cascade`)
    }
    await runBackground(service)
    expect(await countWork(database, 'compact')).toBe(0)
  })
})
