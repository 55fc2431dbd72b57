import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, it, vi } from 'vitest'
import {
  inLine,
  notice,
  oneLine,
  print,
  printable,
  printData,
  printJson,
  printTable,
} from './output.js'

const SOURCES = fileURLToPath(new URL('..', import.meta.url))

/** Everything that a terminal could take for a command, and what reorders text. */
const HOSTILE = [
  ...Array.from({ length: 0x20 }, (_, code) => String.fromCharCode(code)),
  ...Array.from({ length: 0x21 }, (_, index) => String.fromCharCode(0x7f + index)),
  '\u2028',
  '\u202e',
  '\u2066',
  '\u001b]0;title\u0007',
  '\u009b2J',
].join('x')

// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are looked for
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/

afterEach(() => vi.restoreAllMocks())

/** Returns what a function writes to stdout and stderr. */
function written(run: () => void, options: { isTTY?: boolean } = {}): string {
  let text = ''
  for (const stream of [process.stdout, process.stderr]) {
    vi.spyOn(stream, 'write').mockImplementation((chunk) => {
      text += String(chunk)
      return true
    })
  }
  const before = process.stdout.isTTY
  process.stdout.isTTY = options.isTTY ?? false
  try {
    run()
  } finally {
    process.stdout.isTTY = before
    vi.restoreAllMocks()
  }
  return text
}

describe('printed text', () => {
  it('contains no control character but line feeds and tabs', () => {
    for (const text of [
      printable(HOSTILE),
      written(() => print(HOSTILE)),
      written(() => notice(HOSTILE)),
      written(() => printTable(['name'], [[HOSTILE]])),
      // The heading is bold.
      written(() => printTable([HOSTILE], [['x']]), { isTTY: true })
        .replace('\u001b[1m', '')
        .replace('\u001b[22m', ''),
      written(() => printJson({ [HOSTILE]: HOSTILE })),
      written(() => printData(HOSTILE), { isTTY: true }),
    ]) {
      expect(text).not.toMatch(CONTROLS)
    }
    expect(printable('\u009b31m')).toBe('\\u009b31m')
    expect(printable('a\n\tb')).toBe('a\n\tb')
  })

  it('keeps a cell and a value in one line', () => {
    expect(inLine('a\nb\tc\r')).toBe('a\\nb\\tc\\r')
    expect(oneLine({ a: '\u009b' })).toBe('{"a":"\\u009b"}')
    expect(written(() => printTable(['a', 'b'], [['x\ny', 'z']]))).toBe('x\\ny  z\n')
  })

  it('is exact JSON, and exact data for other programs', () => {
    const value = { [HOSTILE]: [HOSTILE, 'ä', '👩‍👧', "it's"] }
    expect(JSON.parse(written(() => printJson(value)))).toEqual(value)
    expect(written(() => printData(HOSTILE))).toBe(HOSTILE)
  })

  it('goes through one module', async () => {
    const names = await readdir(SOURCES, { recursive: true })
    const direct: string[] = []
    for (const name of names.filter((one) => one.endsWith('.ts') && !one.endsWith('.test.ts'))) {
      if (name === path.join('shared', 'output.ts')) continue
      const text = await readFile(path.join(SOURCES, name), 'utf8')
      if (/process\.std(out|err)\.write|console\./.test(text)) direct.push(name)
    }
    expect(direct).toEqual([])
  })
})
