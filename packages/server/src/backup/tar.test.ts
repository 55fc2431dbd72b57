import { execFileSync } from 'node:child_process'
import { setImmediate as turn } from 'node:timers/promises'
import { gunzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { DamagedArchiveError, readTar, TarWriter } from './tar.js'

const BLOCK_BYTES = 512

/** An archive as version 0.1.0 wrote it, with a tar writer of its own. */
const EARLIER_ARCHIVE = gunzipSync(
  Buffer.from(
    'H4sIAAAAAAACA+2XQQ6CMBBFu9VTGA4Av7Sw4CrGRTFtRIUSWhbGeHcjxg2YuKIamZf8TDKbWUz+5E+p9qe+jY/ONmwuACAH' +
      'hoppBbhkPBNpKjI+9Dk4z9kGLAC986pjCDLrB7lGxna18lHBb4xYHF6VZ+0Sa4w7WOvj3unOJS9fBvE/lxIj/wuk5P8gqFW5Jp' +
      'FI7/Xv/jfV4/zruvWX7+U/YJL/hKT7H4JaNZXRzs/5AXzO/9l4/zIH7T9M/n8mwKjY7ugBIAiCWA53IEHPJgAUAAA=',
    'base64',
  ),
)

async function write(files: Record<string, Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = []
  const tar = new TarWriter(async (chunk) => void chunks.push(chunk))
  for (const [name, content] of Object.entries(files)) await tar.add(name, content)
  await tar.end()
  return Buffer.concat(chunks)
}

async function* inChunks(archive: Buffer, bytes: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < archive.length; at += bytes) yield archive.subarray(at, at + bytes)
}

async function readAll(source: AsyncIterable<Buffer>): Promise<Record<string, Buffer>> {
  const files: Record<string, Buffer> = {}
  for await (const { name, size, content } of readTar(source)) {
    const chunks: Buffer[] = []
    for await (const chunk of content) chunks.push(chunk)
    files[name] = Buffer.concat(chunks)
    expect(files[name].length).toBe(size)
  }
  return files
}

const FILES = {
  'backup.json': Buffer.from('{}'),
  'files/empty': Buffer.alloc(0),
  'files/block': Buffer.alloc(BLOCK_BYTES, 'b'),
  'files/large': Buffer.alloc(40_001, 'large'),
  'manifest.json': Buffer.from('{"tables":[]}'),
}

describe('an archive', () => {
  it.each([7, 511, 512, 513, 65_536, 1_000_000])('is read in chunks of %i bytes', async (bytes) => {
    expect(await readAll(inChunks(await write(FILES), bytes))).toEqual(FILES)
  })

  it('of an earlier version is read', async () => {
    const files = await readAll(inChunks(EARLIER_ARCHIVE, 1000))
    expect(Object.keys(files)).toEqual([
      'backup.json',
      'tables/offshoot.users/00000001',
      'files/empty',
      'manifest.json',
    ])
    expect(files['tables/offshoot.users/00000001']?.toString()).toBe('a\tb\n'.repeat(200))
  })

  it('can be listed by any tar, and is unpacked for its owner alone', async () => {
    const list = execFileSync('tar', ['-tvf', '-'], { input: await write(FILES) }).toString()
    const lines = list.trimEnd().split('\n')
    expect(lines.length).toBe(Object.keys(FILES).length)
    for (const line of lines) expect(line).toMatch(/^-rw------- /)
  })

  it('has files of more than 8 GiB, also in the form of earlier versions', async () => {
    const size = 9 * 1024 ** 3
    const headers = await headerOf(size)
    const earlier = Buffer.from(EARLIER_ARCHIVE.subarray(0, BLOCK_BYTES))
    earlier.fill(0, 124, 136)
    earlier.writeUInt8(0x80, 124)
    earlier.writeBigUInt64BE(BigInt(size), 128)
    earlier.write('        ', 148)
    const sum = earlier.reduce((total, byte) => total + byte, 0)
    earlier.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
    for (const header of [headers, earlier]) {
      const entries = readTar(inChunks(header, header.length))
      const { value } = await entries.next()
      expect(value?.size).toBe(size)
      await entries.return(undefined)
    }
  })

  it('is refused when it is cut off, wherever that is', async () => {
    const archive = await write(FILES)
    const end = archive.length - 2 * BLOCK_BYTES
    for (const length of [0, 1, 511, 512, 513, 1024, 5_000, end - BLOCK_BYTES, end, end + 1]) {
      const reading = readAll(inChunks(archive.subarray(0, length), 700))
      await expect(reading, `at ${length}`).rejects.toThrow(DamagedArchiveError)
    }
  })

  it('is refused when a header was altered', async () => {
    const archive = await write(FILES)
    archive.write('x', 3)
    await expect(readAll(inChunks(archive, 700))).rejects.toThrow('it is not a backup')
    await expect(readAll(inChunks(Buffer.alloc(2000, 'text'), 700))).rejects.toThrow(
      'it is not a backup',
    )
  })
})

describe('a failure', () => {
  it('of the source reaches the reader as it is', async () => {
    const failure = new Error('the disk is gone')
    const archive = await write(FILES)
    const source = async function* () {
      yield archive.subarray(0, 3_000)
      throw failure
    }
    await expect(readAll(source())).rejects.toBe(failure)
  })

  it('of the sink reaches the writer, which stops', async () => {
    const failure = new Error('the disk is full')
    let calls = 0
    const tar = new TarWriter(async () => {
      if (++calls === 3) throw failure
    })
    const write = async () => {
      for (;;) await tar.add('a', Buffer.alloc(100_000))
    }
    await expect(write()).rejects.toBe(failure)
    await turn()
    expect(calls).toBe(3)
  })

  it('of the content reaches the writer', async () => {
    const failure = new Error('no such content')
    const tar = new TarWriter(async () => undefined)
    const content = async function* () {
      yield Buffer.alloc(5)
      throw failure
    }
    await expect(tar.addStream('a', 10, content())).rejects.toBe(failure)
  })

  it.each([9, 11])('is a content of 10 bytes that was announced with %i', async (size) => {
    const tar = new TarWriter(async () => undefined)
    const adding = tar.addStream('a', size, [Buffer.alloc(5), Buffer.alloc(5)])
    await expect(adding).rejects.toThrow(`[a] does not have the announced size of ${size} bytes`)
  })
})

/** The header of a file of this size, whose content never comes. */
async function headerOf(size: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  const tar = new TarWriter(async (chunk) => void chunks.push(chunk))
  const content = async function* () {
    yield Buffer.alloc(1)
    while (chunks.length === 0) await turn()
    throw new Error('enough')
  }
  await expect(tar.addStream('large', size, content())).rejects.toThrow('enough')
  return Buffer.concat(chunks)
}
