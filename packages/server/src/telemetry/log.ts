/*
 * What gets into a log. Rows, keys and statements must not: errors are reduced to where they happened
 * and what kind they are, because PostgreSQL and the engine quote values in their messages.
 */

const LEVELS: Readonly<Record<number, string>> = {
  10: 'TRACE',
  20: 'DEBUG',
  30: 'INFO',
  40: 'WARN',
  50: 'ERROR',
  60: 'FATAL',
}

/** Causes of causes of causes say nothing more. */
const CAUSES_MAX = 4

export interface LoggedError {
  [name: string]: unknown
  readonly type: string
  readonly message: string
  /** Places alone, without the message. */
  readonly stack: string
  readonly code?: string
  /** Of an error of PostgreSQL: the function of its source that reported it. */
  readonly routine?: string
  readonly constraint?: string
  readonly cause?: LoggedError
}

/** In place of a message that may quote what was sent or stored. */
const NOT_SHOWN = 'not shown'

/** An error as the log shows it: kind, place and cause, without anything that was sent or stored. */
export function toLoggedError(error: unknown, depth = 1): LoggedError {
  if (!(error instanceof Error)) return { type: typeof error, message: NOT_SHOWN, stack: '' }
  const { code, routine, constraint } = error as {
    code?: unknown
    routine?: unknown
    constraint?: unknown
  }
  return {
    type: error.name,
    message: safeMessage(error) ?? NOT_SHOWN,
    ...(typeof code === 'string' ? { code } : {}),
    ...(typeof routine === 'string' ? { routine } : {}),
    ...(typeof constraint === 'string' ? { constraint } : {}),
    stack: stackOf(error),
    ...(error.cause === undefined || depth === CAUSES_MAX
      ? {}
      : { cause: toLoggedError(error.cause, depth + 1) }),
  }
}

/** Conditions of PostgreSQL as a whole, which have nothing to do with what was sent. */
const SAFE_STATES = /^(08|25|28|3D|40|53|55|57|58)/

/** What the engine says of the source alone: names that are written there, never values. */
const SAFE_ENGINE_MESSAGE =
  /^(Cannot read properties of (undefined|null)|[\w.$]{1,100} is not (a function|a constructor|defined))/

function safeMessage(error: Error): string | undefined {
  const { code, severity } = error as { code?: unknown; severity?: unknown }
  if (typeof severity === 'string') {
    return SAFE_STATES.test(String(code)) ? error.message : undefined
  }
  // Errors of our own are of the plain class or of one of ours, and name no values.
  const isOfEngine = [SyntaxError, TypeError, RangeError, ReferenceError, URIError, EvalError].some(
    (kind) => error instanceof kind,
  )
  return isOfEngine ? SAFE_ENGINE_MESSAGE.exec(error.message)?.[0] : error.message
}

/** The places alone: a stack starts with the message, which may have several lines. */
function stackOf(error: Error): string {
  const places = (error.stack ?? '').split('\n').filter((line) => /^\s+at .*[):\d]$/.test(line))
  // A line of a message that looks like a place would stand in front of the first real one.
  const message = new Set(error.message.split('\n'))
  const stack = places.filter((line) => !message.has(line)).map((line) => line.trim())
  return stack.join('\n')
}

/** What pino writes to. */
export interface LogStream {
  write(line: string): void
}

/** One JSON object a line for programs, and for people at a terminal something to read. */
export function logStream(stream: NodeJS.WriteStream): LogStream {
  return stream.isTTY === true ? { write: (line) => stream.write(prettyLine(line)) } : stream
}

export function prettyLine(line: string): string {
  let entry: Record<string, unknown>
  try {
    entry = JSON.parse(line)
  } catch {
    return line
  }
  const { level, time, pid: _pid, hostname: _hostname, msg, err, ...rest } = entry
  const { stack = '', ...error } = (err ?? {}) as Partial<LoggedError>
  const clock = new Date(Number(time)).toISOString().slice(11, 23)
  const fields = Object.entries({ ...rest, ...(err === undefined ? {} : { error }) })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
  const head = [clock, (LEVELS[Number(level)] ?? String(level)).padEnd(5), msg, ...fields]
  const places = stack === '' ? '' : `\n${stack.replace(/^/gm, '    ')}`
  return `${head.filter((part) => part !== undefined).join(' ')}${places}\n`
}
