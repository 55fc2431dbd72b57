/*
 * Reduces errors for the log to their kind, code and stack. Messages of PostgreSQL and of the
 * JavaScript engine may quote rows, keys and statements, which must not be logged.
 */

const LEVELS: Readonly<Record<number, string>> = {
  10: 'TRACE',
  20: 'DEBUG',
  30: 'INFO',
  40: 'WARN',
  50: 'ERROR',
  60: 'FATAL',
}

/** Maximum depth of nested causes. */
const CAUSES_MAX = 4

interface LoggedError {
  [name: string]: unknown
  readonly type: string
  readonly message: string
  /** Stack frames without the message. */
  readonly stack: string
  readonly code?: string
  /** For a PostgreSQL error: the source function that reported it. */
  readonly routine?: string
  readonly constraint?: string
  readonly cause?: LoggedError
}

/** Replaces a message that may quote user data. */
const NOT_SHOWN = 'not shown'

/** Converts an error for the log: kind, stack and cause, without user data. */
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

/** SQLSTATE classes whose messages concern the server, not user data. */
const SAFE_STATES = /^(08|25|28|3D|40|53|55|57|58)/

/** Messages of the engine that quote only names from the source code, never values. */
const SAFE_ENGINE_MESSAGE =
  /^(Cannot read properties of (undefined|null)|[\w.$]{1,100} is not (a function|a constructor|defined))/

function safeMessage(error: Error): string | undefined {
  const { code, severity } = error as { code?: unknown; severity?: unknown }
  if (typeof severity === 'string') {
    return SAFE_STATES.test(String(code)) ? error.message : undefined
  }
  // Our own errors have no values in their messages; only errors of the engine need a check.
  const isOfEngine = [SyntaxError, TypeError, RangeError, ReferenceError, URIError, EvalError].some(
    (kind) => error instanceof kind,
  )
  return isOfEngine ? SAFE_ENGINE_MESSAGE.exec(error.message)?.[0] : error.message
}

/** Returns the frames only. A stack starts with the message, which may have several lines. */
function stackOf(error: Error): string {
  const places = (error.stack ?? '').split('\n').filter((line) => /^\s+at .*[):\d]$/.test(line))
  // A message line that looks like a frame must not be taken for one.
  const message = new Set(error.message.split('\n'))
  const stack = places.filter((line) => !message.has(line)).map((line) => line.trim())
  return stack.join('\n')
}

/** The destination that pino writes to. */
export interface LogStream {
  write(line: string): void
}

/** Writes one JSON object per line, or readable lines if the stream is a terminal. */
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
