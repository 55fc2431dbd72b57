import { PassThrough } from 'node:stream'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { StreamSource } from './stream-source.js'

/** Advances the fake clock. */
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms)
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

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
      expect(source.isUsed).toBe(true)
    }
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

  it('fails in time when it is in a hurry and nothing comes', async () => {
    const body = new PassThrough()
    body.write('ab')
    const source = new StreamSource(body)
    source.hurry(100)
    const failed = expect(readAll(source)).rejects.toMatchObject({ code: 'request_timeout' })
    await pass(101)
    await failed
  })

  it('may take its time as often as enough has come', async () => {
    const body = new PassThrough()
    const source = new StreamSource(body)
    source.hurry(300)
    const read = readAll(source)
    for (let round = 0; round < 5; round++) {
      body.write(Buffer.alloc(256 * 1024))
      await pass(150)
    }
    body.end()
    expect(await read).toHaveLength(5 * 256 * 1024)
  })

  it('fails when little comes at a time', async () => {
    const body = new PassThrough()
    const source = new StreamSource(body)
    source.hurry(300)
    const failed = expect(readAll(source)).rejects.toMatchObject({ code: 'request_timeout' })
    for (let drop = 0; drop < 10; drop++) {
      body.write('x')
      await pass(50)
    }
    await failed
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
