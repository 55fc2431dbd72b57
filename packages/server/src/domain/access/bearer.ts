import { AppError } from '@offshoot/contract/errors'

/** The API key of an `Authorization` header, or the reason why it has none. */
export type Bearer =
  | { readonly key: string; readonly fault: undefined }
  | { readonly key: ''; readonly fault: string }

const SCHEME = /^bearer(?: (.*))?$/is
const KEY = /^[A-Za-z0-9_]{1,255}$/

/**
 * Parses an `Authorization` header. This is the only parser: if rate limiting and authentication
 * parsed differently, a request could be counted for one key and authenticated by another.
 */
export function readBearer(authorization: string | undefined): Bearer {
  if (authorization === undefined || authorization === '') {
    return {
      key: '',
      fault: 'header [authorization]: is missing; send [Authorization: Bearer <API key>]',
    }
  }
  const match = SCHEME.exec(authorization)
  if (match === null) {
    return {
      key: '',
      fault: 'header [authorization]: must be the word Bearer, a space and an API key',
    }
  }
  const key = match[1] ?? ''
  if (!KEY.test(key)) {
    const fault =
      'header [authorization]: an API key must follow Bearer: 1 to 255 letters, digits and underscores'
    return { key: '', fault }
  }
  return { key, fault: undefined }
}

/** Returns the API key of a request, or throws `invalid_api_key`. */
export function requireBearer(bearer: Bearer): string {
  if (bearer.fault !== undefined) throw new AppError('invalid_api_key', bearer.fault)
  return bearer.key
}
