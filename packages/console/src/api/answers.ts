import type { KeyScope } from '@offshoot/client'
import { queryOptions } from '@tanstack/react-query'
import { account, clientOf, type Place } from './clients.js'
import { send } from './http.js'

/** The signed-in user, and what the session may do. */
export interface Session {
  readonly user: { readonly id: string; readonly email: string; readonly fullname: string }
  readonly administrator: boolean
  /** The name of the key that opened the session; null for a sign-in link. */
  readonly key: string | null
  readonly scope: KeyScope
  readonly expiresAt: string | null
  readonly regions: readonly { readonly id: string; readonly name: string }[]
  readonly version: string
  /** The port for clients of PostgreSQL; null if the service does not listen for them. */
  readonly postgresPort: number | null
}

export const SESSION_KEY = ['session'] as const

/*
 * Keys of cached answers. A change invalidates the shortest key that covers what it may have changed:
 * `keys.database(place)` covers the branches, and everything below them.
 */
export const keys = {
  workspaces: () => ['workspaces'] as const,
  databases: (workspace: string) => ['databases', workspace] as const,
  database: ({ workspace, database }: Pick<Place, 'workspace' | 'database'>) =>
    ['database', workspace, database] as const,
  branches: (place: Pick<Place, 'workspace' | 'database'>) =>
    [...keys.database(place), 'branches'] as const,
  /** Everything about one branch: schema, rows, difference, statistics. */
  branch: (place: Omit<Place, 'region'>) =>
    [...keys.database(place), 'branch', place.branch] as const,
  schema: (place: Omit<Place, 'region'>) => [...keys.branch(place), 'schema'] as const,
}

/**
 * The requests of the frame around all pages, and how long their answers may be used again. Without React, so that the
 * entry can send them before the app is loaded.
 */
export const answers = {
  /** The session; null if nobody is signed in. */
  session: () =>
    queryOptions({
      queryKey: SESSION_KEY,
      queryFn: async () => {
        const answer = await send('GET', '/console/session')
        return ((await answer.json()) as { session: Session | null }).session
      },
      staleTime: 60_000,
    }),
  workspaces: () =>
    queryOptions({
      queryKey: keys.workspaces(),
      queryFn: ({ signal }) => account.workspaces({ signal }),
      staleTime: 30_000,
    }),
  databases: (workspace: string) =>
    queryOptions({
      queryKey: keys.databases(workspace),
      queryFn: ({ signal }) => account.databases(workspace, { signal }),
      staleTime: 30_000,
    }),
  branches: (place: Omit<Place, 'branch'>) =>
    queryOptions({
      queryKey: keys.branches(place),
      // The list belongs to the database, so any branch name will do.
      queryFn: ({ signal }) => clientOf({ ...place, branch: 'main' }).database.branches({ signal }),
      staleTime: 5_000,
    }),
  /** A branch with its schema. */
  branch: (place: Place) =>
    queryOptions({
      queryKey: keys.schema(place),
      queryFn: ({ signal }) => clientOf(place).branch().get({ signal }),
      staleTime: 5_000,
    }),
}
