/*
 * Metrics in the Prometheus text format. Counting is on the path of every request, so it only adds
 * to a field; the text is rendered when it is requested.
 */

export interface Sample {
  /** Suffix of the family name, such as `_sum`. */
  readonly suffix?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly value: number
}

/** A metric family: all samples with one name. */
export interface Family {
  readonly name: string
  readonly help: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  samples(): Iterable<Sample>
}

/** A counter. */
export class Counter implements Family {
  readonly type = 'counter'
  #count = 0

  constructor(
    readonly name: string,
    readonly help: string,
  ) {}

  add(count = 1): void {
    this.#count += count
  }

  *samples(): Iterable<Sample> {
    yield { value: this.#count }
  }
}

/** A counter with a label `kind`. Every kind is listed from the start, with zero. */
export class KindCounter<Kind extends string> implements Family {
  readonly type = 'counter'
  readonly #counts: Map<Kind, number>

  constructor(
    readonly name: string,
    readonly help: string,
    kinds: readonly Kind[],
  ) {
    this.#counts = new Map(kinds.map((kind) => [kind, 0]))
  }

  add(kind: Kind, count = 1): void {
    this.#counts.set(kind, (this.#counts.get(kind) ?? 0) + count)
  }

  *samples(): Iterable<Sample> {
    for (const [kind, value] of this.#counts) yield { labels: { kind }, value }
  }
}

/** A gauge that is set explicitly. */
export class Level implements Family {
  readonly type = 'gauge'
  #value = 0

  constructor(
    readonly name: string,
    readonly help: string,
  ) {}

  set(value: number): void {
    this.#value = value
  }

  *samples(): Iterable<Sample> {
    yield { value: this.#value }
  }
}

/** A gauge with labels, all of whose samples are set together. */
export class Levels implements Family {
  readonly type = 'gauge'
  #samples: readonly Sample[] = []

  constructor(
    readonly name: string,
    readonly help: string,
  ) {}

  set(samples: readonly Sample[]): void {
    this.#samples = samples
  }

  samples(): Iterable<Sample> {
    return this.#samples
  }
}

/** A gauge whose value is read when metrics are requested. */
export function gauge(name: string, help: string, read: () => number | readonly Sample[]): Family {
  return readFamily('gauge', { name, help, read })
}

/** A counter whose value is kept elsewhere. */
export function counterOf(
  name: string,
  help: string,
  read: () => number | readonly Sample[],
): Family {
  return readFamily('counter', { name, help, read })
}

function readFamily(
  type: 'gauge' | 'counter',
  options: { name: string; help: string; read: () => number | readonly Sample[] },
): Family {
  const { name, help, read } = options
  return {
    name,
    help,
    type,
    samples() {
      const value = read()
      return typeof value === 'number' ? [{ value }] : value
    },
  }
}

/** Upper bounds of the histogram buckets, in seconds. */
const DURATION_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
] as const

/** A histogram of durations. */
export class Durations {
  /** The last bucket has no upper bound. */
  readonly #counts = new Float64Array(DURATION_BUCKETS.length + 1)
  #sum = 0

  add(seconds: number): void {
    let position = 0
    while (position < DURATION_BUCKETS.length && seconds > (DURATION_BUCKETS[position] ?? 0)) {
      position++
    }
    this.#counts[position] = (this.#counts[position] ?? 0) + 1
    this.#sum += seconds
  }

  *samples(labels: Readonly<Record<string, string>>): Iterable<Sample> {
    let total = 0
    for (const [position, count] of this.#counts.entries()) {
      total += count
      const le = String(DURATION_BUCKETS[position] ?? '+Inf')
      yield { suffix: '_bucket', labels: { ...labels, le }, value: total }
    }
    yield { suffix: '_sum', labels, value: this.#sum }
    yield { suffix: '_count', labels, value: total }
  }
}

export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** The share of the time that rendering may take, however often metrics are requested. */
const RENDER_SHARE_MAX = 0.05

/** All metrics of one process. */
export class Metrics {
  readonly #families: Family[] = []
  readonly #renderShareMax: number
  #text: Buffer | undefined
  #isFreshUntil = 0

  constructor({ renderShareMax = RENDER_SHARE_MAX } = {}) {
    this.#renderShareMax = renderShareMax
  }

  add(...families: readonly Family[]): void {
    this.#families.push(...families)
  }

  /**
   * Returns the text of all metrics. Anyone may be allowed to request it, and it takes some milliseconds to render, so
   * requests in quick succession get the same text.
   */
  render(): Buffer {
    const now = performance.now()
    if (this.#text === undefined || now >= this.#isFreshUntil) {
      this.#text = Buffer.from(this.#families.map(renderFamily).join(''))
      this.#isFreshUntil = now + (performance.now() - now) / this.#renderShareMax
    }
    return this.#text
  }
}

function renderFamily(family: Family): string {
  const { name, help, type } = family
  let text = `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`
  for (const { suffix = '', labels, value } of family.samples()) {
    text += `${name}${suffix}${renderLabels(labels)} ${value}\n`
  }
  return text
}

function renderLabels(labels: Readonly<Record<string, string>> = {}): string {
  const parts = Object.entries(labels).map(([name, value]) => `${name}="${escapeLabel(value)}"`)
  return parts.length === 0 ? '' : `{${parts.join(',')}}`
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"')
}
