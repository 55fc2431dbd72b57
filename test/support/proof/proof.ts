import { setTimeout as delay } from 'node:timers/promises'
import { Random } from '../seeded-random.js'
import { Follower, Forker, Merger } from './branch-writers.js'
import { checkLedger } from './check.js'
import { Ledger } from './ledger.js'
import type { Endpoint } from './service.js'
import type { Round, Writer } from './writer.js'
import {
  BulkWriter,
  CreateWriter,
  FileWriter,
  Observer,
  PairWriter,
  RecordWriter,
  StreamWriter,
  TransferWriter,
} from './writers.js'

/** Maximum number of acknowledged changes before the fault. */
const ACKNOWLEDGED_MAX = 200
/** Upper bound of the wait, which applies on slow machines. */
const MOMENT_MAX_MS = 600

/** A ledger, and one writer for each kind of request. */
export class Proof {
  readonly ledger = new Ledger()
  readonly random: Random
  readonly bulk: BulkWriter
  readonly pair: PairWriter
  readonly merger: Merger
  readonly follower: Follower
  readonly writers: readonly Writer[]
  readonly observer: Observer
  acknowledged = 0
  unknown = 0
  rounds = 0

  constructor(
    readonly seed: number,
    /** The writers to use; all by default. */
    options: { only?: readonly string[] } = {},
  ) {
    this.random = new Random(seed)
    const { ledger } = this
    let number = 0
    const random = () => new Random(seed + ++number * 7919)
    const transfers = ['transfer1', 'transfer2'].map(
      (name) => new TransferWriter(name, ledger, random()),
    )
    this.bulk = new BulkWriter('bulk', ledger, random())
    this.merger = new Merger('merger', ledger, random())
    this.follower = new Follower('follower', ledger, random())
    this.observer = new Observer(transfers)
    const writers: readonly Writer[] = [
      ...transfers,
      this.bulk,
      this.merger,
      this.follower,
      new StreamWriter('stream', ledger, random()),
      new RecordWriter('record', ledger, random()),
      ...['create1', 'create2', 'create3', 'create4'].map(
        (name) => new CreateWriter(name, ledger, random()),
      ),
      new FileWriter('file1', ledger, random()),
      new FileWriter('file2', ledger, random()),
      new Forker('forker', ledger, random()),
    ]
    this.pair = new PairWriter('pair', ledger, random())
    const { only } = options
    this.writers = [...writers, this.pair].filter(
      ({ name }) => only === undefined || only.includes(name),
    )
  }

  /**
   * Runs all writers in rounds while `happen` injects a fault, and compares all data with the
   * ledger. `happen` resolves when the service answers again. Returns the faults.
   */
  async play(
    rounds: readonly Round[],
    options: { happen(): Promise<void>; check: Endpoint },
  ): Promise<string[]> {
    const running = [...this.writers, this.observer].map((writer, index) =>
      writer.run(must(rounds[index % rounds.length])),
    )
    try {
      await options.happen()
    } finally {
      for (const round of rounds) round.isOver = true
      await Promise.all(running)
    }
    this.rounds++
    for (const { acknowledged, unknown } of rounds) {
      this.acknowledged += acknowledged
      this.unknown += unknown
    }
    const faults = rounds.flatMap((round) => round.faults)
    return [...faults, ...(await checkLedger(options.check, this.ledger))]
  }

  /** A summary of the run. */
  summary(): string {
    const { merger, follower, bulk, pair, observer } = this
    return (
      `seed ${this.seed}, ${this.rounds} rounds, ${this.acknowledged} acknowledged changes checked ` +
      `(${merger.merged.length} merges, ${merger.reverts} reverts, ${follower.pulls} pulls, ${follower.resets} resets), ` +
      `${this.unknown} without an answer (${bulk.repeated + pair.repeated} sent again), ` +
      `${observer.reads} reads of several records as of one moment`
    )
  }

  /** Waits for a random moment during the work. */
  async randomMoment(round: Round): Promise<void> {
    const acknowledged = this.random.below(ACKNOWLEDGED_MAX)
    const latest = performance.now() + MOMENT_MAX_MS
    while (round.acknowledged < acknowledged && performance.now() < latest) await delay(1)
    await delay(this.random.below(20))
  }

  /**
   * Waits for a random moment of a merge of more than `rowsMax` rows. Returns false if there is none, because the
   * writer has stopped. The last merge of that size that was acknowledged shows how long they take.
   */
  async momentOfMerge(rowsMax: number): Promise<boolean> {
    const { merger } = this
    while (merger.isRunning) {
      const { merging } = merger
      const known = merger.merged.filter(({ rows }) => rows > rowsMax).at(-1)
      if (known === undefined || merging === undefined || merging.rows <= rowsMax) {
        await delay(1)
        continue
      }
      await delay(this.random.below(known.ms))
      if (merger.merging === merging) return true
    }
    return false
  }
}

function must<Value>(value: Value | undefined): Value {
  if (value === undefined) throw new Error('there must be a round')
  return value
}
