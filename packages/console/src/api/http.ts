import { OffshootError } from '@offshoot/client'

/** Header that proves that a request comes from the console. See `http/session-cookie.ts` of the server. */
const CONSOLE_HEADER = 'x-offshoot-console'

/**
 * `fetch` with the session instead of an API key. Browsers add the cookie. The client always sends an
 * `Authorization` header, which would take precedence.
 */
export const sessionFetch: typeof fetch = (input, init = {}) => {
  const headers = new Headers(init.headers)
  headers.delete('authorization')
  headers.set(CONSOLE_HEADER, '1')
  return fetch(input, { ...init, headers, credentials: 'same-origin' })
}

/**
 * The value of an `Authorization` header for what a user has typed. Headers have no other characters than these,
 * and neither has any key, so the service refuses the text, as it does with other wrong keys.
 */
export function bearer(typed: string): string {
  return `Bearer ${typed.replace(/[^\x21-\x7e]/g, '?')}`
}

/** Sends a request to a route of the console itself, or to one that the client does not know. */
export async function send(
  method: 'GET' | 'POST' | 'DELETE',
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  let response: Response
  try {
    response = await fetch(path, {
      method,
      headers: { ...headers, [CONSOLE_HEADER]: '1' },
      credentials: 'same-origin',
    })
  } catch (cause) {
    throw new OffshootError('the service does not answer', {
      code: 'unreachable',
      status: 0,
      cause,
    })
  }
  if (response.ok) return response
  const answer = (await response.json().catch(() => ({}))) as Record<string, unknown>
  throw new OffshootError(String(answer.message ?? `the service answered ${response.status}`), {
    code: (answer.code ?? 'unexpected_answer') as 'internal',
    status: response.status,
    requestId: response.headers.get('x-request-id') ?? undefined,
    body: answer,
  })
}
