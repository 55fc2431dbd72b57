import type { AnySchema, Branch, Client } from '@offshoot/client'
import { createContext, useContext } from 'react'
import { clientOf, type Place } from './clients.js'

export const PlaceContext = createContext<Place | null>(null)

/** Returns the workspace, database and branch of the page. */
export function usePlace(): Place {
  const place = useContext(PlaceContext)
  if (place === null) throw new Error('usePlace is called on a page without a database')
  return place
}

/** Returns the client of the database and branch of the page. */
export function useClient(): Client<AnySchema> {
  return clientOf(usePlace())
}

/** Returns the branch of the page. */
export function useBranch(): Branch<AnySchema> {
  return useClient().branch()
}
