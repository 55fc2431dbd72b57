import { Readable } from 'node:stream'
import { LIMITS } from '@offshoot/contract/limits'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { StreamSource } from '../data/records/stream-source.js'
import { LineReader, type ParsedLine } from './line-reader.js'

const LINE_BYTES_MAX = 1_000_000

async function readChunks(
  chunks: readonly (string | Buffer)[],
  { lineBytesMax = LINE_BYTES_MAX }: { lineBytesMax?: number } = {},
): Promise<ParsedLine[]> {
  const source = Readable.from(chunks.map((chunk) => Buffer.from(chunk)))
  const lines: ParsedLine[] = []
  const reader = new LineReader(source, { lineBytesMax, limits: LIMITS })
  for await (const batch of reader.batches()) lines.push(...batch)
  return lines
}

/** Every line by itself. */
function expectedOf(text: string): ParsedLine[] {
  return text.split('\n').flatMap((line, index): ParsedLine[] => {
    if (line.trim() === '') return []
    try {
      return [{ line: index + 1, value: JSON.parse(line) as unknown }]
    } catch {
      return [{ line: index + 1, fault: expect.stringMatching(/^is not valid JSON: /) }]
    }
  })
}

function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const ends = [...new Set(places.map((place) => Math.floor(place * bytes.length)))].sort(
    (left, right) => left - right,
  )
  return [...ends, bytes.length].map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end))
}

describe('LineReader', () => {
  it('reads the same however the stream is cut, also inside characters', async () => {
    const line = fc.oneof(
      fc
        .dictionary(fc.string({ unit: 'grapheme' }), fc.jsonValue())
        .map((value) => JSON.stringify(value)),
      fc.constantFrom('', ' ', '\t', '{}', '{"a":1}\r', '5', '[]', '{', '}', '{"é":"𝔘👩‍👧"}'),
      fc.string({ unit: fc.constantFrom('{', '}', '[', ']', ',', '"', ':', 'é', '1') }),
    )
    await fc.assert(
      fc.asyncProperty(
        fc.array(line, { maxLength: 20 }),
        fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 }),
        async (lines, places) => {
          const text = lines.join('\n')
          expect(await readChunks(cut(Buffer.from(text), places))).toEqual(expectedOf(text))
        },
      ),
      { numRuns: 150 },
    )
  })

  it('reads byte by byte what it reads at once', async () => {
    const text = '{"a":"é𝔘"}\r\n\n{"b":[1,2]}\n'
    const bytes = Buffer.from(text)
    const single = Array.from(bytes, (byte) => Buffer.from([byte]))
    expect(await readChunks(single)).toEqual(await readChunks([bytes]))
  })

  it.each<[string, string, readonly number[]]>([
    ['no line', '', []],
    ['blank lines', '\n\r\n  \n\t\n', []],
    ['a last line without a line break', '{}\n{}', [1, 2]],
    ['a last line with one', '{}\n{}\n', [1, 2]],
    ['carriage returns', '{}\r\n{}\r\n', [1, 2]],
    ['blank lines in between', '\n{}\n\n\n{}\n\n', [2, 5]],
  ])('counts lines from 1 with %s', async (_name, text, numbers) => {
    const lines = await readChunks([text])
    expect(lines).toEqual(numbers.map((line) => ({ line, value: {} })))
  })

  it.each([
    [['{},{}', '{"x":[{}', '{"y":1}]}']],
    [['{}],[{}', '{"x":[[{}', '{}]]}']],
    [['[{}', '{}]', '{},{}']],
    [['{"a":1', '"b":2}', '{},{}']],
  ])('does not take the lines %j for valid because together they would be', async (lines) => {
    const read = await readChunks([['{"a":1}', ...lines, '{"b":1}'].join('\n')])
    expect(read).toHaveLength(lines.length + 2)
    const good = read.filter(({ fault }) => fault === undefined)
    expect(good.map(({ line }) => line)).toEqual([1, lines.length + 2])
  })

  it('names the line that is no UTF-8 and reads the others', async () => {
    const bytes = Buffer.from('{"a":"é"}\n{"b":"??"}\n{"c":1}')
    bytes[bytes.indexOf('??')] = 0xc3
    expect(await readChunks([bytes])).toEqual([
      { line: 1, value: { a: 'é' } },
      { line: 2, fault: 'is not valid UTF-8' },
      { line: 3, value: { c: 1 } },
    ])
  })

  it('gives up on a line that has no end', async () => {
    const endless = Array.from({ length: 100 }, () => 'x'.repeat(10))
    await expect(readChunks(['{}\n', ...endless], { lineBytesMax: 600 })).rejects.toMatchObject({
      code: 'payload_too_large',
      message: 'line 2: is longer than 600 bytes',
    })
  })

  it('leaves a stream that it does not read to the end in one piece', async () => {
    const body = Readable.from([Buffer.from('{}\n'), Buffer.from('{}\n'), Buffer.from('{}\n')])
    const lines = new LineReader(new StreamSource(body), {
      lineBytesMax: LINE_BYTES_MAX,
      limits: LIMITS,
    })
    for await (const batch of lines.batches()) {
      expect(batch).toEqual([{ line: 1, value: {} }])
      break
    }
    expect(body.destroyed).toBe(false)
    await lines.drain()
    expect(body.readableEnded).toBe(true)
  })

  it('shows every byte to whoever asks', async () => {
    const seen: Buffer[] = []
    const source = Readable.from([Buffer.from('{}\n{'), Buffer.from('}')])
    const onChunk = (chunk: Buffer) => void seen.push(chunk)
    await new LineReader(source, { lineBytesMax: LINE_BYTES_MAX, limits: LIMITS, onChunk }).drain()
    expect(Buffer.concat(seen).toString()).toBe('{}\n{}')
  })
})
