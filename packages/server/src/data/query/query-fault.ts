import { AppError } from '@offshoot/contract/errors'

/** What is given can be long, and is part of some messages. */
const MESSAGE_LENGTH_MAX = 2000

/** What is wrong with a query, in words that name the part. */
export function queryFault(message: string): AppError {
  const isLong = message.length > MESSAGE_LENGTH_MAX
  return new AppError('invalid_request', isLong ? shorten(message) : message)
}

/** The end says what is wrong. */
function shorten(message: string): string {
  const half = MESSAGE_LENGTH_MAX / 2
  return `${message.slice(0, half)}…${message.slice(-half)}`
}
