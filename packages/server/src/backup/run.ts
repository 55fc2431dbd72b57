import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createReadStream } from 'node:fs'
import { mkdir, open, rename, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { type Duplex, PassThrough, type Readable, type Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { constants, createGunzip, createGzip } from 'node:zlib'
import { DatabaseNameSchema } from '@offshoot/contract/names'
import { Value } from 'typebox/value'
import { syncFolder } from '../common/sync-folder.js'
import { type Config, ConfigError, readConfig } from '../config.js'
import { isUnreachable } from '../postgres/failures.js'
import type { Progress } from './archive.js'
import { createBackup, type DatabaseName } from './create-backup.js'
import { BackupError } from './errors.js'
import { type Instance, openEmptyInstance, openInstance, prepareFiles } from './instance.js'
import { restoreBackup } from './restore-backup.js'
import { restoreDatabase } from './restore-database.js'

/** Standard input or output instead of a file. */
const STANDARD = '-'
const PROGRESS_EVERY_MS = 2_000
const GZIP_MAGIC = [0x1f, 0x8b]
const FILE_FAULTS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or folder',
  ENOTDIR: 'no such file or folder',
  EACCES: 'permission denied',
  EROFS: 'the file system is read-only',
  EISDIR: 'it is a folder, not a file',
}

/**
 * `offshoot backup`: resolves with the exit code. The default output is a new file in the data
 * folder, not in the working folder: that may be a repository, and a backup contains every row.
 */
export function runBackup(options: {
  output: string | undefined
  /** The database to write. undefined: the whole instance. */
  only?: DatabaseName | undefined
}): Promise<number> {
  const { only } = options
  return run('backup', async (config, signal) => {
    const instance = await openInstance(config)
    return closing(instance, async () => {
      const name = options.output ?? (await newBackupFile(config.dataDir, only?.name))
      const output = await openOutput(name)
      try {
        const done = await createBackup({
          ...instance,
          only,
          sink(chunk) {
            if (signal.aborted) throw new BackupError('interrupted')
            return output.write(chunk)
          },
          onProgress: reporter('backup'),
        })
        await output.keep()
        return done
      } catch (error) {
        await output.discard()
        throw error
      }
    })
  })
}

/**
 * Names a new file in `backups` of the data folder, after the current time. A .gitignore keeps it
 * out of git.
 */
async function newBackupFile(dataDir: string, database: string | undefined): Promise<string> {
  requireName(database)
  const folder = path.resolve(dataDir, 'backups')
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    await writeFile(path.join(folder, '.gitignore'), '*\n', { mode: 0o600 })
  } catch (error) {
    throw cannotWrite(folder, error as NodeJS.ErrnoException)
  }
  const time = new Date().toISOString().slice(0, 19).replace(/[-:]/g, '')
  const file = path.join(folder, `${database ?? 'offshoot'}-${time}Z.tar.gz`)
  process.stderr.write(`offshoot backup: writing to ${file}\n`)
  return file
}

/** Refuses names that no database has: the name becomes a part of that of a file. */
function requireName(database: string | undefined): void {
  if (database === undefined || Value.Check(DatabaseNameSchema, database)) return
  throw new BackupError(`[${database}] is not a valid name of a database`)
}

/** `offshoot restore`: resolves with the exit code. */
export function runRestore(options: { input: string }): Promise<number> {
  return runReading(options.input, async (config, source) => {
    const instance = await openEmptyInstance(config)
    return closing(instance, () =>
      restoreBackup({ ...instance, source, onProgress: reporter('restore') }),
    )
  })
}

/** `offshoot restore --database`: resolves with the exit code. */
export function runRestoreDatabase(options: {
  input: string
  name: string
  as: string | undefined
  workspaceId: string | undefined
}): Promise<number> {
  const { input, ...names } = options
  return runReading(input, async (config, source) => {
    const instance = await openInstance(config)
    return closing(instance, async () => {
      await prepareFiles(config, instance)
      const { regions, limits } = config
      const onProgress = reporter('restore')
      return restoreDatabase({ ...instance, ...names, regions, limits, source, onProgress })
    })
  })
}

function runReading(
  name: string,
  action: (config: Config, source: AsyncIterable<Buffer>) => Promise<Progress>,
): Promise<number> {
  return run('restore', async (config, signal) => {
    const input = name === STANDARD ? process.stdin : await openInput(name)
    try {
      return await action(config, decompressed(input, signal))
    } finally {
      input.destroy()
    }
  })
}

async function run(
  command: string,
  action: (config: Config, signal: AbortSignal) => Promise<Progress>,
): Promise<number> {
  const stopping = new AbortController()
  const stop = () => stopping.abort()
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, stop)
  try {
    const done = await action(readConfig(process.env), stopping.signal)
    process.stderr.write(`offshoot ${command}: done: ${describe(done)}\n`)
    return 0
  } catch (error) {
    process.stderr.write(`offshoot ${command}: ${explain(error)}\n`)
    return 1
  } finally {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.off(signal, stop)
  }
}

async function closing<Result>(instance: Instance, body: () => Promise<Result>): Promise<Result> {
  try {
    return await body()
  } finally {
    await instance.close()
  }
}

function explain(error: unknown): string {
  const message = (error as Error).message || String((error as { code?: string }).code ?? error)
  if (error instanceof ConfigError) return `invalid settings\n${message.replace(/^/gm, '  ')}`
  if (error instanceof BackupError) return printable(message)
  if (isUnreachable((error as Error).cause ?? error)) {
    return `PostgreSQL cannot be reached: ${((error as Error).cause as Error | undefined)?.message || message}`
  }
  return message
}

/** An archive has names that the message may quote, and a terminal obeys control characters. */
const printable = (message: string): string => message.replaceAll(/\p{Cc}|\p{Cf}/gu, '?')

function describe({ tables, rows, files, bytes }: Progress): string {
  return `${tables} tables with ${rows} rows, ${files} files of ${(bytes / 1e6).toFixed(1)} MB`
}

/** Reports progress at intervals. */
function reporter(command: string): (progress: Progress) => void {
  let last = performance.now()
  return (progress) => {
    if (performance.now() - last < PROGRESS_EVERY_MS) return
    last = performance.now()
    process.stderr.write(`offshoot ${command}: ${describe(progress)} so far\n`)
  }
}

interface Output {
  write(chunk: Buffer): Promise<void>
  /** Resolves when everything is on disk under its name. */
  keep(): Promise<void>
  discard(): Promise<void>
}

/**
 * A file appears under its name only when it is complete. Compressed, unless it is named `.tar`.
 */
async function openOutput(name: string): Promise<Output> {
  if (name === STANDARD) {
    return through(createCompressor(), {
      write: (chunk) => writeTo(process.stdout, chunk),
      keep: noop,
      discard: noop,
    })
  }
  if (await stat(name).catch(() => undefined)) {
    throw new BackupError(`[${name}] already exists: choose another name`)
  }
  const temporary = `${name}.${randomBytes(4).toString('hex')}.part`
  const handle = await open(temporary, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
    throw cannotWrite(name, error)
  })
  return through(name.endsWith('.tar') ? new PassThrough() : createCompressor(), {
    write: (chunk) => handle.writeFile(chunk),
    async keep() {
      await handle.sync()
      await handle.close()
      await rename(temporary, name)
      await syncFolder(path.dirname(path.resolve(name)))
    },
    async discard() {
      await handle.close()
      await rm(temporary, { force: true })
    },
  })
}

function cannotWrite(name: string, { code = '' }: NodeJS.ErrnoException): BackupError {
  return new BackupError(`[${name}] cannot be written: ${FILE_FAULTS[code] ?? code}`)
}

const noop = async () => undefined

/** The fastest level: much faster than the default, and the result is little larger. */
function createCompressor(): Duplex {
  return createGzip({ level: constants.Z_BEST_SPEED })
}

function through(
  stream: Duplex,
  target: {
    write(chunk: Buffer): Promise<void>
    keep(): Promise<void>
    discard(): Promise<void>
  },
): Output {
  const done = pipeline(stream, async (chunks: AsyncIterable<Buffer>) => {
    for await (const chunk of chunks) await target.write(chunk)
  })
  // The next `write` and `keep` report the failure.
  done.catch(() => undefined)
  return {
    write: (chunk) => writeTo(stream, chunk),
    async keep() {
      stream.end()
      await done
      await target.keep()
    },
    async discard() {
      stream.destroy()
      await done.catch(() => undefined)
      await target.discard()
    },
  }
}

/** Resolves when there is room for more. */
async function writeTo(stream: Writable, chunk: Buffer): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    stream.write(chunk, (error) => (error ? reject(error) : resolve()))
  })
}

async function openInput(name: string): Promise<Readable> {
  const stream = createReadStream(name)
  try {
    await once(stream, 'open')
    // A folder can be opened; only reading it fails, and then the instance would already exist.
    if ((await stat(name)).isDirectory()) throw Object.assign(new Error(), { code: 'EISDIR' })
  } catch (error) {
    stream.destroy()
    const { code = '' } = error as NodeJS.ErrnoException
    throw new BackupError(`[${name}] cannot be read: ${FILE_FAULTS[code] ?? code}`)
  }
  return stream
}

/** Yields the archive, decompressed if necessary. */
async function* decompressed(input: Readable, signal: AbortSignal): AsyncGenerator<Buffer> {
  const chunks = input[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  let first = Buffer.alloc(0)
  while (first.length < GZIP_MAGIC.length) {
    const next = await chunks.next()
    if (next.done === true) break
    first = Buffer.concat([first, next.value])
  }
  const all = interruptible(first, chunks, signal)
  const isCompressed = GZIP_MAGIC.every((byte, position) => first[position] === byte)
  if (!isCompressed) {
    yield* all
    return
  }
  const gunzip = createGunzip()
  const done = pipeline(all, gunzip)
  done.catch(() => undefined)
  yield* gunzip as AsyncIterable<Buffer>
  await done
}

async function* interruptible(
  first: Buffer,
  chunks: AsyncIterator<Buffer>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  yield first
  for (;;) {
    const next = await chunks.next()
    if (next.done === true) return
    if (signal.aborted) throw new BackupError('interrupted')
    yield next.value
  }
}
