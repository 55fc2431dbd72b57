import { AppError } from '@offshoot/contract/errors'

/** Messages may contain parts of the request, which can be long. */
const MESSAGE_LENGTH_MAX = 2000

/** Returns an error for an invalid query. The message names the invalid part. */
export function invalidQuery(message: string): AppError {
  const isLong = message.length > MESSAGE_LENGTH_MAX
  return new AppError('invalid_request', isLong ? shorten(message) : message)
}

/** Shortens the middle of a message, because its end tells the problem. */
function shorten(message: string): string {
  const half = MESSAGE_LENGTH_MAX / 2
  return `${message.slice(0, half)}…${message.slice(-half)}`
}
