import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { acquireDataLock, DataLockError, findListener } from './data-lock.js'
import { compileForProcesses, type SeparateProcesses } from './separate-process.js'

let processes: SeparateProcesses
let dataDir: string

beforeAll(() => {
  processes = compileForProcesses('data-lock')
})
afterAll(() => processes.remove())
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'offshoot-test-'))
})
afterEach(() => rm(dataDir, { recursive: true, force: true }))

const lockFile = () => join(dataDir, 'offshoot.lock')

const holdUntilKilled = `
  import { acquireDataLock } from './data-lock.js'
  await acquireDataLock(process.argv[2])
  console.log('held')
  setInterval(() => {}, 1000)
`

const publishUntilKilled = `
  import { acquireDataLock } from './data-lock.js'
  await (await acquireDataLock(process.argv[2])).publish('http://127.0.0.1:6001')
  console.log('published')
  setInterval(() => {}, 1000)
`

/**
 * Holds the lock for a moment and reports when, so that two simultaneous holders can be detected.
 */
const holdForAMoment = `
  import { acquireDataLock } from './data-lock.js'
  console.log('loaded')
  await new Promise((resolve) => process.stdin.once('data', resolve))
  for (let round = 0; round < 5; round++) {
    try {
      const lock = await acquireDataLock(process.argv[2])
      const from = process.hrtime.bigint()
      await new Promise((resolve) => setTimeout(resolve, 2))
      console.log('held ' + from + ' ' + process.hrtime.bigint())
      if (process.argv[3] === 'die') process.kill(process.pid, 'SIGKILL')
      await lock.release()
    } catch (error) {
      if (error.name !== 'DataLockError' || !error.message.includes('in use')) throw error
    }
  }
  process.exit(0)
`

test('a free data folder is locked, and free again after the release', async () => {
  const lock = await acquireDataLock(dataDir)
  expect(JSON.parse(await readFile(lockFile(), 'utf8'))).toMatchObject({ pid: process.pid })
  expect(await readdir(dataDir)).toEqual(['offshoot.lock'])
  await lock.release()
  await lock.release()
  expect(await readdir(dataDir)).toEqual([])
  await (await acquireDataLock(dataDir)).release()
})

test('the address of the process with the lock is known while it lives', async () => {
  expect(await findListener(dataDir)).toBeUndefined()
  const holder = processes.start(publishUntilKilled, dataDir)
  await holder.line('published')
  expect(await findListener(dataDir)).toBe('http://127.0.0.1:6001')
  await expect(acquireDataLock(dataDir)).rejects.toThrow(`(pid ${holder.child.pid})`)
  holder.child.kill('SIGKILL')
  await holder.ended
  expect(await findListener(dataDir)).toBeUndefined()
  // Another program may have got the process number.
  const stale = { pid: process.pid, started: 'before the restart', id: '0', address: 'http://a' }
  await writeFile(lockFile(), JSON.stringify(stale))
  expect(await findListener(dataDir)).toBeUndefined()
  const lock = await acquireDataLock(dataDir)
  expect(await findListener(dataDir)).toBeUndefined()
  await lock.publish('http://127.0.0.1:6002')
  expect(await findListener(dataDir)).toBe('http://127.0.0.1:6002')
  await lock.release()
  expect(await readdir(dataDir)).toEqual([])
})

test('a missing data folder is made for the owner alone', async () => {
  const lock = await acquireDataLock(join(dataDir, 'below', 'it'))
  await lock.release()
  expect(await readdir(join(dataDir, 'below'))).toEqual(['it'])
})

test('a data folder in use is refused with the number of the process that has it', async () => {
  const holder = processes.start(holdUntilKilled, dataDir)
  await holder.line('held')
  await expect(acquireDataLock(dataDir)).rejects.toThrow(
    new DataLockError(
      `data folder [${dataDir}] is in use by another offshoot (pid ${holder.child.pid}): ` +
        'stop it first, or set OFFSHOOT_DATA_DIR to another folder',
    ),
  )
  holder.child.kill('SIGKILL')
  await holder.ended
})

test('the same process cannot lock a data folder twice', async () => {
  const lock = await acquireDataLock(dataDir)
  await expect(acquireDataLock(dataDir)).rejects.toThrow(`(pid ${process.pid})`)
  await lock.release()
})

test('the lock of a killed process is taken over', async () => {
  const holder = processes.start(holdUntilKilled, dataDir)
  await holder.line('held')
  holder.child.kill('SIGKILL')
  await holder.ended
  const lock = await acquireDataLock(dataDir)
  expect(JSON.parse(await readFile(lockFile(), 'utf8'))).toMatchObject({ pid: process.pid })
  expect(await readdir(dataDir)).toEqual(['offshoot.lock'])
  await lock.release()
})

test('a lock whose process number belongs to another program by now is taken over', async () => {
  const stale = { pid: process.pid, started: 'before the restart', id: '0123456789abcdef' }
  await writeFile(lockFile(), JSON.stringify(stale))
  await (await acquireDataLock(dataDir)).release()
})

test('a lock that a power failure has spoiled is taken over', async () => {
  await writeFile(lockFile(), '')
  await (await acquireDataLock(dataDir)).release()
})

test('a takeover that was itself interrupted is finished by the next process', async () => {
  const dead = (id: string) => JSON.stringify({ pid: 0, started: '', id })
  await writeFile(lockFile(), dead('a'))
  await writeFile(`${lockFile()}.after-a`, dead('b'))
  await writeFile(`${lockFile()}.after-b`, dead('c'))
  const lock = await acquireDataLock(dataDir)
  expect(await readdir(dataDir)).toEqual(['offshoot.lock'])
  await lock.release()
})

test('of several processes that race for a stale lock only one at a time has it', async () => {
  await writeFile(lockFile(), JSON.stringify({ pid: 0, started: '', id: 'stale' }))
  const racers = Array.from({ length: 8 }, (_, index) =>
    processes.start(holdForAMoment, dataDir, index % 2 === 0 ? 'die' : 'release'),
  )
  await Promise.all(racers.map((racer) => racer.line('loaded')))
  for (const racer of racers) racer.child.stdin?.write('go\n')
  await Promise.all(racers.map((racer) => racer.ended))

  const times = racers
    .flatMap((racer) => racer.lines.filter((line) => line.startsWith('held ')))
    .map((line) => line.split(' ').slice(1).map(BigInt))
    .sort(([from1 = 0n], [from2 = 0n]) => (from1 < from2 ? -1 : 1))
  expect(times.length).toBeGreaterThan(0)
  times.reduce(([, earlierUntil = 0n], [from = 0n, until = 0n]) => {
    expect(from).toBeGreaterThan(earlierUntil)
    return [from, until]
  })
  // The last process has either died and left a stale lock, or released it and left none.
  await (await acquireDataLock(dataDir)).release()
  expect(await readdir(dataDir)).toEqual([])
})
