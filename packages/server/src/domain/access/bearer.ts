import { AppError } from '@offshoot/contract/errors'

/** The API key of an `Authorization` header, or why there is none. */
export type Bearer =
  | { readonly key: string; readonly fault: undefined }
  | { readonly key: ''; readonly fault: string }

const SCHEME = /^bearer(?: (.*))?$/is
const KEY = /^[A-Za-z0-9_]{1,255}$/

/**
 * Reads an `Authorization` header. Everyone who wants to know the key of a request asks here: two
 * readers that differ would let a request be counted for one key and let in by another.
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

/** The API key that a request must carry. */
export function requireBearer(bearer: Bearer): string {
  if (bearer.fault !== undefined) throw new AppError('invalid_api_key', bearer.fault)
  return bearer.key
}
