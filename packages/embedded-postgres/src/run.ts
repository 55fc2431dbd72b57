import { type ChildProcess, spawn } from 'node:child_process'
import { constants } from 'node:fs'
import { access, open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { EmbeddedError, errorCode, errorMessage } from './errors.js'
import { canReach, explainMissingRight, type Identity, spawnIdentity } from './identity.js'

/** A folder as a child process sees it. */
export interface Place {
  /** The path that the child uses. */
  readonly path: string
  /** An open file descriptor that the child must inherit as number 3 for the path to work. */
  readonly descriptor: number | undefined
  close(): Promise<void>
}

const inheritedDescriptor = 3

/**
 * Makes a folder usable for a child that runs as another user. If that user cannot traverse the
 * parent folders, as below /root, the child inherits an open file descriptor of the folder, and
 * uses its link in /proc as the path, which bypasses the parents. All processes of a server are
 * forked from the first one, so each of them has the descriptor.
 */
export async function openPlace(folder: string, identity: Identity): Promise<Place> {
  const direct = { path: folder, descriptor: undefined, close: async () => {} }
  const parent = dirname(folder)
  if (!identity.dropped || (await canReach(parent, identity))) return direct
  if (process.platform !== 'linux') {
    throw new EmbeddedError(
      `user [${identity.name}], as which PostgreSQL runs, cannot reach the folder [${parent}]: ` +
        'start offshoot as a normal user, or set OFFSHOOT_DATA_DIR to a folder it can reach',
    )
  }
  const handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY)
  return {
    path: `/proc/self/fd/${inheritedDescriptor}`,
    descriptor: handle.fd,
    close: () => handle.close(),
  }
}

interface SpawnOptions {
  readonly identity: Identity
  readonly place: Place
  readonly standardStreams: readonly ('pipe' | 'ignore' | number)[]
  readonly detached?: boolean
}

/** Exit code or signal of a process. */
export interface Ending {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

export interface RunningProcess {
  readonly child: ChildProcess
  /** Settles when the process has ended and its output is read. */
  readonly ended: Promise<Ending>
}

/** Starts a program of PostgreSQL and resolves once it runs. */
export async function spawnAs(
  file: string,
  parameters: readonly string[],
  options: SpawnOptions,
): Promise<RunningProcess> {
  const { place, identity } = options
  const inherited = place.descriptor === undefined ? [] : [place.descriptor]
  const child = spawn(file, parameters, {
    ...spawnIdentity(identity),
    stdio: [...options.standardStreams, ...inherited],
    detached: options.detached ?? false,
    // The other user may not be able to access the working folder of this process.
    cwd: '/',
    // Variables such as PGDATA or PGPORT would change the settings of the server. On macOS, an
    // unset locale makes the server multithreaded, and then it refuses to start.
    env: { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C' },
  })
  // A signal that cannot be sent is an error event too, at any time.
  child.on('error', () => {})
  const ended = new Promise<Ending>((resolve) => {
    child.once('close', (code, signal) => resolve({ code, signal }))
  })
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve)
    child.once('error', reject)
  }).catch(async (error: unknown) => {
    throw await spawnError(file, identity, error)
  })
  return { child, ended }
}

async function spawnError(file: string, identity: Identity, error: unknown): Promise<Error> {
  const code = errorCode(error)
  const exists = await access(file).then(
    () => true,
    () => false,
  )
  if (code === 'ENOENT' && exists) {
    return new EmbeddedError(
      'the embedded PostgreSQL cannot run here because the system has no glibc, as on Alpine: ' +
        'use a system with glibc, or set OFFSHOOT_DATABASE_URL to use your own',
    )
  }
  const explained = explainMissingRight(identity, error)
  if (explained instanceof EmbeddedError) return explained
  return new EmbeddedError(`cannot run [${file}]: ${errorMessage(error)}`)
}

/**
 * Runs a program of PostgreSQL to its end. If it fails, the error contains its last lines of
 * output.
 */
export async function runTool(
  file: string,
  parameters: readonly string[],
  options: { identity: Identity; place: Place; input?: string },
): Promise<void> {
  const { child, ended } = await spawnAs(file, parameters, {
    identity: options.identity,
    place: options.place,
    standardStreams: ['pipe', 'pipe', 'pipe'],
  })
  let output = ''
  const collect = (chunk: Buffer) => {
    output = (output + chunk.toString()).slice(-10_000)
  }
  child.stdout?.on('data', collect)
  child.stderr?.on('data', collect)
  // The program may end before it has read all input; its exit code says why.
  child.stdin?.on('error', () => {})
  child.stdin?.end(options.input ?? '')
  const ending = await ended
  if (ending.code === 0) return
  throw new EmbeddedError(`[${file}] ended with ${describeEnding(ending)}${lastLines(output)}`)
}

export function describeEnding({ code, signal }: Ending): string {
  return signal ?? `code ${code}`
}

/** Returns the last lines of a program's output, to be appended to a message. */
export function lastLines(output: string): string {
  const lines = output
    .split('\n')
    .map((line) => line.trimEnd())
    .filter((line) => line !== '')
    .slice(-10)
  return lines.length === 0 ? '' : `:\n${lines.map((line) => `  ${line}`).join('\n')}`
}
