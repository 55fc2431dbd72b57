import { rename, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from '../support/process.js'
import { checkLedger } from '../support/proof/check.js'
import { EVERYTHING_KILLED } from '../support/proof/faults.js'
import {
  type Branch,
  type Changes,
  type Found,
  Ledger,
  type Row,
  type Rows,
} from '../support/proof/ledger.js'
import { Proof } from '../support/proof/proof.js'
import { createProofDatabase, makeProofFolder, ProofService } from '../support/proof/service.js'
import { newRow, Round } from '../support/proof/writer.js'
import { SEED } from '../support/random.js'

const row = (value: number, version = 0): Row => newRow({ value }, version)
const rows = (...entries: [string, Row][]): Rows =>
  new Map(entries.map(([id, entry]) => [`items/${id}`, entry]))
const found = (entries: Rows, total = 0): Found => ({ rows: entries, total })

/** Builds a ledger of several writers, with the answers that they received. */
class Story {
  readonly ledger = new Ledger()

  done(writer: string, changes: Changes, adds = 0): this {
    const line = this.ledger.line(writer)
    line.end(line.begin(changes, adds))
    return this
  }

  unanswered(writer: string, changes: Changes, adds = 0): this {
    this.ledger.line(writer).begin(changes, adds)
    return this
  }

  /** Adds a fork taken between `from` (by default now) and now. */
  fork(from = performance.now()): Branch {
    const inherited = { from, until: performance.now(), seen: undefined }
    const state = { inherited, own: new Map(), hasVersions: true }
    const branch: Branch = { name: 'fork', state, pending: undefined }
    this.ledger.branches.set('fork', branch)
    return branch
  }
}

describe('the ledger', () => {
  const transfer = rows(['a-1', row(1)], ['a-2', row(2)])

  it('accepts what was acknowledged, and all or nothing of what was not', () => {
    for (const there of [rows(['a-0', row(0)]), rows(['a-0', row(0)], ...entriesOf(transfer))]) {
      const { ledger } = new Story()
        .done('a', rows(['a-0', row(0)]), 1)
        .unanswered('a', transfer, 1)
      expect(ledger.checkMain(found(there, there.size === 1 ? 1 : 2))).toEqual([])
    }
  })

  it.each([
    [
      'an acknowledged record that is lost',
      rows(['a-0', row(0)], ['a-1', row(1)]),
      1,
      /1 lost: items\/a-2/,
    ],
    [
      'a record with another value',
      rows(['a-0', row(0)], ['a-1', row(1)], ['a-2', row(9)]),
      1,
      /a-2 must be/,
    ],
    [
      'a record with another version',
      rows(['a-0', row(0)], ['a-1', row(1, 1)], ['a-2', row(2)]),
      1,
      /a-1 must be/,
    ],
    [
      'a record too many',
      rows(['a-0', row(0)], ...entriesOf(transfer), ['a-3', row(3)]),
      1,
      /1 too many: items\/a-3/,
    ],
    [
      'a record of nobody',
      rows(['a-0', row(0)], ...entriesOf(transfer), ['b-0', row(3)]),
      1,
      /records of nobody: b/,
    ],
    [
      'a total that is behind',
      rows(['a-0', row(0)], ...entriesOf(transfer)),
      0,
      /the total is 0, and must be 1/,
    ],
  ])('notices %s', (_name, there, total, fault) => {
    const { ledger } = new Story().done('a', rows(['a-0', row(0)])).done('a', transfer, 1)
    expect(ledger.checkMain(found(there, total)).join('\n')).toMatch(fault)
  })

  it('notices a half of what was not acknowledged', () => {
    const { ledger } = new Story().done('a', rows(['a-0', row(0)])).unanswered('a', transfer)
    const faults = ledger.checkMain(found(rows(['a-0', row(0)], ['a-1', row(1)])))
    expect(faults.join('\n')).toMatch(/1 too many: items\/a-1\n.*half there/)
  })

  it('notices something of what was refused', () => {
    const { ledger } = new Story().done('a', rows(['a-0', row(0)]))
    const line = ledger.line('a')
    line.drop(line.begin(transfer))
    const faults = ledger.checkMain(found(rows(['a-0', row(0)], ...entriesOf(transfer))))
    expect(faults.join('\n')).toMatch(/2 too many/)
  })

  it('notices a fork without what was there, with what came later, or with a half', () => {
    const before = rows(['a-0', row(0)])
    for (const there of [rows(), rows(['a-0', row(0)], ['a-1', row(1)]), transfer]) {
      const story = new Story().done('a', before)
      const branch = story.fork()
      story.done('a', transfer)
      story.ledger.checkMain(found(rows(['a-0', row(0)], ...entriesOf(transfer))))
      expect(story.ledger.checkBranch(branch, found(there)).join('\n')).toMatch(
        /none of the moments/,
      )
    }
  })

  it('notices a fork that has something, but not what was over before that began', () => {
    const story = new Story()
    const startedAt = performance.now() - 1
    story.done('a', rows(['a-0', row(0)]))
    const first = performance.now()
    while (performance.now() === first);
    story.done('b', rows(['b-0', row(0)]))
    const branch = story.fork(startedAt)
    story.ledger.checkMain(found(rows(['a-0', row(0)], ['b-0', row(0)])))
    const faults = story.ledger.checkBranch(branch, found(rows(['b-0', row(0)])))
    expect(faults).toEqual([
      'fork: a: lacks what was over before something it has began: items/a-0',
    ])
  })

  it('does not mistake what was added and removed for what is missing', () => {
    const story = new Story().done('a', rows(['a-0', row(0)]))
    const startedAt = performance.now() - 1000
    story.done('a', rows(['a-1', row(1)])).done('a', new Map([['items/a-1', undefined]]))
    const first = performance.now()
    while (performance.now() === first);
    story.done('b', rows(['b-0', row(0)]))
    const branch = story.fork(startedAt)
    const there = rows(['a-0', row(0)], ['b-0', row(0)])
    expect(story.ledger.checkMain(found(there))).toEqual([])
    expect(story.ledger.checkBranch(branch, found(there))).toEqual([])
  })

  it('notices a fork that changes later, goes away, or comes back', () => {
    const story = new Story().done('a', rows(['a-0', row(0)]))
    const branch = story.fork()
    const { ledger } = story
    expect(ledger.checkMain(found(rows(['a-0', row(0)])))).toEqual([])
    expect(ledger.checkBranch(branch, found(rows(['a-0', row(0)])))).toEqual([])
    ledger.settle()
    expect(ledger.checkBranch(branch, found(rows(['a-0', row(1)])))).toHaveLength(1)
    expect(ledger.checkBranch(branch, undefined)).toEqual(['fork: is missing'])
    branch.state = undefined
    expect(ledger.checkBranch(branch, found(rows()))).toEqual(['fork: was deleted, and is there'])
  })
})

function entriesOf(entries: Rows): [string, Row][] {
  return [...entries].map(([key, entry]) => [key.slice('items/'.length), entry])
}

describe('the ledger, against a service that does lose something', () => {
  let folder: Awaited<ReturnType<typeof makeProofFolder>>
  let service: ProofService

  beforeAll(async () => {
    folder = await makeProofFolder()
    service = new ProofService(folder.path)
    await service.start()
    await createProofDatabase(service, service.workspaceId)
  })
  afterAll(() => folder.remove())

  it('finds what was removed, and what PostgreSQL lost because it was told to be careless', async () => {
    const proof = new Proof(SEED, { only: ['transfer1', 'record', 'file1'] })
    const write = (happen: (round: Round) => Promise<void>) => {
      const round = new Round(service, { mayVanish: true })
      return proof.play([round], { check: service, happen: () => happen(round) })
    }
    expect(await write((round) => until(async () => round.acknowledged > 30))).toEqual([])

    // Lose one of the records that a transaction wrote.
    const [note = ''] = [...proof.ledger.line('transfer1').rows.keys()].filter(
      (key) => !key.includes('account'),
    )
    const id = note.slice('items/'.length)
    const heaps = await service.sql(
      `select format('offshoot_db_%s.heap_%s', database_id, id) as name from offshoot.heaps`,
    )
    for (const heap of heaps) {
      await service.sql(`delete from ${heap.name} where id = '${id}'`)
    }
    expect(await checkLedger(service, proof.ledger)).toEqual([`main: transfer1: 1 lost: ${note}`])
    const restored = {
      id,
      ...JSON.parse(proof.ledger.line('transfer1').rows.get(note)?.values ?? ''),
    }
    await service.send('PUT', `/db/proof:main/tables/items/data/${id}`, { body: restored })
    expect(await checkLedger(service, proof.ledger)).toEqual([])

    // Lose the content of a file.
    const contents = [...proof.ledger.line('file1').rows.values()].map(
      ({ values }) => JSON.parse(values).content as string | undefined,
    )
    const hash = contents.find((content) => content !== undefined) ?? ''
    const file = path.join(folder.path, 'files', hash.slice(0, 2), hash.slice(2, 4), hash)
    await rename(file, `${file}.away`)
    await expect(checkLedger(service, proof.ledger)).rejects.toThrow(/500/)
    await writeFile(file, 'something else')
    expect((await checkLedger(service, proof.ledger)).join('\n')).toContain(hash)
    await rename(`${file}.away`, file)
    expect(await checkLedger(service, proof.ledger)).toEqual([])

    // Lose all writes of the last moments before a crash.
    await service.sql(`alter system set synchronous_commit = 'off'`)
    await service.sql(`alter system set wal_writer_delay = '10s'`)
    await service.sql(`alter system set wal_writer_flush_after = '1GB'`)
    await service.sql('select pg_reload_conf()')
    const faults = await write(async (round) => {
      await until(async () => round.acknowledged > 60)
      await EVERYTHING_KILLED.strike(service, proof.random)
    })
    expect(faults.join('\n')).toMatch(/lost|must be|too many/)
  })
})
