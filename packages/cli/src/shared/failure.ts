import { OffshootError } from '@offshoot/client'

/** Exit codes of the command. */
export const EXIT = { done: 0, failed: 1, usage: 2, conflict: 3 } as const

/** An error whose message is complete: it is printed without a stack. */
export class Failure extends Error {
  constructor(
    message: string,
    readonly exitCode: number = EXIT.failed,
  ) {
    super(message)
  }
}

/** A mistake in the arguments or settings. */
export class UsageError extends Failure {
  constructor(message: string) {
    super(message, EXIT.usage)
  }
}

/** Codes of errors that mean: what is there differs from what was expected. */
const CONFLICTS: ReadonlySet<string> = new Set([
  'merge_conflict',
  'outdated_resolution',
  'data_loss',
  'version_conflict',
])

/** Prints an error to stderr, and returns the exit code. */
export function report(error: unknown, url: string | undefined): number {
  if (error instanceof Failure) {
    process.stderr.write(`offshoot: ${error.message}\n`)
    return error.exitCode
  }
  if (!(error instanceof OffshootError)) throw error
  process.stderr.write(`offshoot: ${explain(error, url)}\n`)
  for (const { index, line, message } of error.errors?.slice(0, 10) ?? []) {
    process.stderr.write(
      `  ${line === undefined ? `record ${index}` : `line ${line}`}: ${message}\n`,
    )
  }
  if (error.requestId !== undefined && error.status >= 500) {
    process.stderr.write(`  request id: ${error.requestId}\n`)
  }
  return CONFLICTS.has(error.code) ? EXIT.conflict : EXIT.failed
}

function explain(error: OffshootError, url = ''): string {
  switch (error.code) {
    case 'unreachable':
      return `${error.message}\n  ${isLocal(url) ? 'Is the service running? Start it with: offshoot start' : 'Is this the address of the service, and is it running?'}`
    case 'invalid_api_key':
      return `${url} does not accept the API key${keyAdvice(url)}`
    case 'unexpected_answer':
      return `${url}: ${error.message}\n  Is this the address of an Offshoot service?`
    case 'route_not_found':
      return `${url} does not know this request (${error.message}); it may be an older version of Offshoot`
    default:
      return error.message
  }
}

/** A key of the environment wins over that of `offshoot login`, so signing in would not help. */
function keyAdvice(url: string): string {
  return process.env.OFFSHOOT_API_KEY
    ? ' of OFFSHOOT_API_KEY\n  Change the variable, or unset it and sign in with: offshoot login'
    : `\n  Sign in with: offshoot login --url ${url}`
}

/** Returns whether a server runs on this machine. */
export function isLocal(url: string): boolean {
  return URL.canParse(url) && ['127.0.0.1', 'localhost', '[::1]'].includes(new URL(url).hostname)
}
