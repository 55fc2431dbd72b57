import { randomUUID } from 'node:crypto'
import { Writable } from 'node:stream'
import type { OperationInfo } from '@offshoot/client'

/**
 * Characters that control a terminal or reorder its text: C0 and C1 controls, line separators, and directional
 * formatting. Line feeds and tabs are layout.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are what is replaced
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g

/** A colour in a text that is not printed yet. Nobody else knows the id, so no value can contain one. */
const STYLE_ID = randomUUID()
const STYLE = new RegExp(`<${STYLE_ID} (\\d+)>`, 'g')

/** Returns a text that a terminal shows as it is. Other characters become escapes, which JSON allows as well. */
export function printable(text: string): string {
  return text.replace(
    UNSAFE,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Returns a text that a terminal shows in one line. */
export function inLine(text: string): string {
  return printable(text.replaceAll('\n', '\\n').replaceAll('\t', '\\t').replaceAll('\r', '\\r'))
}

/** Returns a text as it is printed: without control characters, but with the colours of this program. */
function rendered(text: string): string {
  return printable(text).replace(STYLE, '\u001b[$1m')
}

/** Colours for a stream: off if it is not a terminal, or if `NO_COLOR` is set. */
export function colorsFor(stream: { isTTY?: boolean }) {
  const isOn = stream.isTTY === true && !process.env.NO_COLOR
  const paint = (on: number, off: number) => (text: string) =>
    isOn ? `<${STYLE_ID} ${on}>${text}<${STYLE_ID} ${off}>` : text
  return {
    bold: paint(1, 22),
    red: paint(31, 39),
    green: paint(32, 39),
    yellow: paint(33, 39),
    cyan: paint(36, 39),
  }
}

/** Prints a text to stdout. Everything that this program prints passes this function or the three below. */
export function print(text: string): void {
  process.stdout.write(rendered(text))
}

/** Prints a notice. Data goes to stdout, so notices go to stderr. */
export function notice(text: string): void {
  process.stderr.write(rendered(`${text}\n`))
}

/** Prints data that other programs read: as it is, unless a terminal shows it. */
export function printData(text: string): void {
  process.stdout.write(shownData(text))
}

function shownData(text: string): string {
  return process.stdout.isTTY ? printable(text) : text
}

export function printJson(value: unknown): void {
  print(`${JSON.stringify(value, null, 2)}\n`)
}

/** Prints rows as aligned columns; the first row is the heading, which only terminals get. */
export function printTable(heading: readonly string[], rows: readonly (readonly string[])[]): void {
  const colors = colorsFor(process.stdout)
  const shown = (process.stdout.isTTY ? [heading, ...rows] : rows).map((row) => row.map(inLine))
  const widths = heading.map((_, index) =>
    shown.reduce((width, row) => Math.max(width, lengthOf(row[index] ?? '')), 0),
  )
  shown.forEach((row, number) => {
    const line = row
      .map((cell, index) => {
        const isLast = index === row.length - 1
        return isLast ? cell : cell + ' '.repeat((widths[index] ?? 0) - lengthOf(cell))
      })
      .join('  ')
      .trimEnd()
    const isHeading = process.stdout.isTTY && number === 0
    print(`${isHeading ? colors.bold(line) : line}\n`)
  })
}

/** The number of characters, where a surrogate pair is one. */
function lengthOf(text: string): number {
  return [...text].length
}

/** Shows a value in one line. */
export function oneLine(value: unknown, lengthMax = 80): string {
  const safe = inLine(typeof value === 'string' ? value : (JSON.stringify(value) ?? ''))
  const characters = [...safe]
  return characters.length <= lengthMax ? safe : `${characters.slice(0, lengthMax - 1).join('')}…`
}

/** Describes the age of a time: `3 days`. */
export function age(time: string): string {
  return span(Date.now() - Date.parse(time))
}

/** Tells how long ago a time was: `3 days ago`. */
export function ago(time: string): string {
  const since = age(time)
  return since === JUST_NOW ? since : `${since} ago`
}

const JUST_NOW = 'just now'

export function span(ms: number): string {
  const units = [
    ['day', 86_400_000],
    ['hour', 3_600_000],
    ['minute', 60_000],
    ['second', 1000],
  ] as const
  for (const [unit, length] of units) {
    const count = Math.floor(ms / length)
    if (count >= 1) return `${count} ${unit}${count === 1 ? '' : 's'}`
  }
  return JUST_NOW
}

/** Ends quietly when the reader of stdout goes away, as with `| head`. */
export function endWithReader(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0)
    throw error
  })
}

/**
 * Returns a stream to stdout that waits while it is full. `text` is printed; `data` is printed as `printData` does.
 */
export function stdoutWriter(kind: 'text' | 'data'): Writable {
  const shown = kind === 'text' ? rendered : shownData
  return new Writable({
    decodeStrings: false,
    write(chunk: string, _encoding, done) {
      if (process.stdout.write(shown(chunk))) done()
      else process.stdout.once('drain', () => done())
    },
  })
}

const BAR_WIDTH = 24

/** Draws a bar of which a part is filled. */
function bar(part: number): string {
  const filled = Math.round(Math.min(1, part) * BAR_WIDTH)
  return `${'█'.repeat(filled)}${'░'.repeat(BAR_WIDTH - filled)}`
}

/**
 * Runs work that may become an operation, and shows its progress on one line of a terminal. Without a terminal it tells
 * once that it goes on.
 */
export async function showingProgress<Result>(
  run: (options: { onProgress(operation: OperationInfo): void }) => Promise<Result>,
): Promise<Result> {
  const isShown = process.stderr.isTTY === true
  let isTold = false
  const onProgress = ({ id, progress: { step, done, total } }: OperationInfo): void => {
    if (!isTold) notice(`This takes longer. It goes on in the service as operation ${id}.`)
    isTold = true
    if (isShown) process.stderr.write(`\r${bar(done / total)} ${printable(step)}${CLEAR_REST}`)
  }
  try {
    return await run({ onProgress })
  } finally {
    if (isShown && isTold) process.stderr.write(`\r${CLEAR_REST}`)
  }
}

const CLEAR_REST = '\u001b[K'

/** Shows progress on one line of a terminal; without a terminal it shows nothing. */
export class Progress {
  readonly #startedAt = performance.now()
  readonly #verb: string
  readonly #meanwhile: string
  readonly #isShown = process.stderr.isTTY === true
  #shownAt = 0

  /** `meanwhile` is the verb before the end, if it is another one. */
  constructor(verb: string, meanwhile = verb) {
    this.#verb = verb
    this.#meanwhile = meanwhile
  }

  update(rows: number, part?: number): void {
    const now = performance.now()
    if (!this.#isShown || now - this.#shownAt < 100) return
    this.#shownAt = now
    const drawn = part === undefined ? '' : ` ${bar(part)}`
    process.stderr.write(
      `\r${this.#meanwhile} ${rows.toLocaleString('en')} rows${drawn} ${this.#rate(rows)}${CLEAR_REST}`,
    )
  }

  clear(): void {
    if (this.#isShown) process.stderr.write(`\r${CLEAR_REST}`)
  }

  end(rows: number): void {
    this.clear()
    const noun = rows === 1 ? 'row' : 'rows'
    notice(`${this.#verb} ${rows.toLocaleString('en')} ${noun}, ${this.#rate(rows)}`)
  }

  #rate(rows: number): string {
    const seconds = Math.max(0.001, (performance.now() - this.#startedAt) / 1000)
    return `${Math.round(rows / seconds).toLocaleString('en')} rows/s`
  }
}
