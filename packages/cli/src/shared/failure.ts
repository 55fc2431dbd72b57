import { OffshootError } from '@offshoot/client'
import { isLocal } from './is-local.js'
import { notice } from './output.js'

/** Exit codes of the command. */
export const EXIT = { done: 0, failed: 1, usage: 2, conflict: 3, interrupted: 130 } as const

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

/** Returns the message of an error for the user. */
export function messageOf(error: unknown, url?: string): string {
  return error instanceof OffshootError ? explain(error, url) : (error as Error).message
}

/** Prints an error to stderr, and returns the exit code. */
export function report(error: unknown, url: string | undefined): number {
  if (error instanceof Failure) {
    notice(`offshoot: ${messageOf(error)}`)
    return error.exitCode
  }
  if (!(error instanceof OffshootError)) throw error
  notice(`offshoot: ${messageOf(error, url)}`)
  for (const { index, line, message } of error.errors?.slice(0, 10) ?? []) {
    notice(`  ${line === undefined ? `record ${index}` : `line ${line}`}: ${message}`)
  }
  if (error.requestId !== undefined && error.status >= 500) {
    notice(`  request id: ${error.requestId}`)
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
