import { AppError } from '@offshoot/contract/errors'

/** What is wrong with a query, in words that name the part. */
export function queryFault(message: string): AppError {
  return new AppError('invalid_request', message)
}
