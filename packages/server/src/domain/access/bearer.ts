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
    // Several headers are joined by commas. Nobody could tell which of the keys a proxy has checked.
    const fault = key.includes(',')
      ? 'header [authorization]: must be given once, with one API key'
      : 'header [authorization]: an API key must follow Bearer: 1 to 255 letters, digits and underscores'
    return { key: '', fault }
  }
  return { key, fault: undefined }
}

/**
 * Returns the key of a session of the console. No API key contains a colon, so the secret of a session
 * cannot be sent as an API key.
 */
export function sessionKey(secret: string): string {
  return `session:${secret}`
}

/** Returns the API key of a request, or throws `invalid_api_key`. */
export function requireBearer(bearer: Bearer): string {
  if (bearer.fault !== undefined) throw new AppError('invalid_api_key', bearer.fault)
  return bearer.key
}
