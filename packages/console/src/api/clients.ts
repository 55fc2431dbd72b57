import type { AnySchema } from '@offshoot/client'
import { type Account, type Client, createAccount, createClient } from '@offshoot/client'
import { sessionFetch } from './http.js'

const OPTIONS = {
  url: location.origin,
  // The session takes the place of the key; see `sessionFetch`.
  apiKey: 'session',
  fetch: sessionFetch,
  // The page shows that the service does not answer, and goes on when it does.
  retries: 1,
} as const

export const account: Account = createAccount(OPTIONS)

/** The database, or branch, that the address of the page names. */
export interface Place {
  readonly workspace: string
  readonly region: string
  readonly database: string
  readonly branch: string
}

const clients = new Map<string, Client<AnySchema>>()

/** Returns the client of a place. */
export function clientOf(place: Place): Client<AnySchema> {
  const name = JSON.stringify([place.workspace, place.region, place.database, place.branch])
  const known = clients.get(name)
  if (known !== undefined) return known
  const client = createClient({ ...OPTIONS, ...place })
  clients.set(name, client)
  return client
}
