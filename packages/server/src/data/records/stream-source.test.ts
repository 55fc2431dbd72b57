import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { StreamSource } from './stream-source.js'

async function readAll(source: StreamSource): Promise<string> {
  let text = ''
  for await (const chunk of source) text += chunk.toString()
  return text
}

describe('the source of a stream', () => {
  it('gives everything once, whatever was read ahead', async () => {
    for (const bytesMax of [0, 1, 3, 4, 100]) {
      const body = new PassThrough()
      for (const text of ['ab', 'cd', 'ef']) body.write(text)
      body.end()
      const source = new StreamSource(body)
      await source.readAhead(bytesMax)
      expect(source.isUsed).toBe(false)
      expect(await readAll(source)).toBe('abcdef')
      expect(source.isUsed).toBe(!source.isWhole)
    }
  })

  it('can be read again if all of it was read ahead', async () => {
    const body = new PassThrough()
    body.write('ab')
    body.end('cd')
    const source = new StreamSource(body)
    await source.readAhead(100)
    expect(source.isWhole).toBe(true)
    expect(await readAll(source)).toBe('abcd')
    expect(await readAll(source)).toBe('abcd')
  })

  it('that broke off never looks like one that ended', async () => {
    const body = new PassThrough()
    body.write('ab')
    const source = new StreamSource(body)
    const ahead = source.readAhead(100)
    setImmediate(() => body.destroy(new Error('gone')))
    await expect(ahead).rejects.toThrow('gone')
    await expect(source.readAhead(100)).rejects.toThrow('gone')
    await expect(readAll(source)).rejects.toThrow('gone')
  })

  it('lets the rest go when it is discarded', async () => {
    const body = new PassThrough()
    body.write('ab')
    const source = new StreamSource(body)
    await source.readAhead(1)
    await source.discard()
    body.write(Buffer.alloc(1_000_000))
    body.end()
    await new Promise((resolve) => body.once('end', resolve))
  })
})
