import { Writable } from 'node:stream'
import { createColors } from 'picocolors'

/** Colours for a stream: off if it is not a terminal, or if `NO_COLOR` is set. */
export function colorsFor(stream: { isTTY?: boolean }) {
  return createColors(stream.isTTY === true && !process.env.NO_COLOR)
}

/** Prints a notice. Data goes to stdout, so notices go to stderr. */
export function notice(text: string): void {
  process.stderr.write(`${text}\n`)
}

export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`)
}

/** Prints rows as aligned columns; the first row is the heading, which only terminals get. */
export function printTable(heading: readonly string[], rows: readonly (readonly string[])[]): void {
  const colors = colorsFor(process.stdout)
  const shown = process.stdout.isTTY ? [heading, ...rows] : rows
  const widths = heading.map((_, index) =>
    Math.max(...shown.map((row) => visibleLength(row[index] ?? ''))),
  )
  shown.forEach((row, number) => {
    const line = row
      .map((cell, index) => {
        const isLast = index === row.length - 1
        return isLast ? cell : cell + ' '.repeat((widths[index] ?? 0) - visibleLength(cell))
      })
      .join('  ')
      .trimEnd()
    const isHeading = process.stdout.isTTY && number === 0
    process.stdout.write(`${isHeading ? colors.bold(line) : line}\n`)
  })
}

/** The length of a text without the sequences that colour it. */
function visibleLength(text: string): number {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with a control character
  return [...text.replace(/\u001b\[\d+m/g, '')].length
}

/** Shows a value in one line. Control characters could change the terminal, so they are escaped. */
export function oneLine(value: unknown, lengthMax = 80): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are what is replaced
  const safe = text.replace(/[\u0000-\u001f\u007f-\u009f]/g, (character) =>
    JSON.stringify(character).slice(1, -1),
  )
  const characters = [...safe]
  return characters.length <= lengthMax ? safe : `${characters.slice(0, lengthMax - 1).join('')}…`
}

/** Describes the age of a time: `3 days`. */
export function age(time: string): string {
  return span(Date.now() - Date.parse(time))
}

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
  return 'just now'
}

/** Writes to stdout and waits while it is full. Ends quietly when the reader goes away. */
export function stdoutWriter(): Writable {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0)
    throw error
  })
  return new Writable({
    write(chunk, _encoding, done) {
      if (process.stdout.write(chunk)) done()
      else process.stdout.once('drain', () => done())
    },
  })
}

/** Shows progress on one line of a terminal; without a terminal it shows nothing. */
export class Progress {
  readonly #startedAt = performance.now()
  readonly #verb: string
  readonly #isShown = process.stderr.isTTY === true
  #shownAt = 0

  constructor(verb: string) {
    this.#verb = verb
  }

  update(rows: number, part?: number): void {
    const now = performance.now()
    if (!this.#isShown || now - this.#shownAt < 100) return
    this.#shownAt = now
    const width = 24
    const filled = part === undefined ? 0 : Math.round(Math.min(1, part) * width)
    const bar = part === undefined ? '' : ` ${'█'.repeat(filled)}${'░'.repeat(width - filled)}`
    process.stderr.write(
      `\r${this.#verb} ${rows.toLocaleString('en')} rows${bar} ${this.#rate(rows)}\u001b[K`,
    )
  }

  end(rows: number): void {
    if (this.#isShown) process.stderr.write('\r\u001b[K')
    const noun = rows === 1 ? 'row' : 'rows'
    notice(`${this.#verb} ${rows.toLocaleString('en')} ${noun}, ${this.#rate(rows)}`)
  }

  #rate(rows: number): string {
    const seconds = Math.max(0.001, (performance.now() - this.#startedAt) / 1000)
    return `${Math.round(rows / seconds).toLocaleString('en')} rows/s`
  }
}
