import type { SchemaDefinition } from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { account, clientOf, type Place, usePlace } from './clients.js'

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

export function useWorkspaces() {
  return useQuery({
    queryKey: keys.workspaces(),
    queryFn: ({ signal }) => account.workspaces({ signal }),
    staleTime: 30_000,
  })
}

export function useDatabases(workspace: string | undefined) {
  return useQuery({
    queryKey: keys.databases(workspace ?? ''),
    queryFn: ({ signal }) => account.databases(workspace ?? '', { signal }),
    enabled: workspace !== undefined,
    staleTime: 30_000,
  })
}

export function useBranches(place: Omit<Place, 'branch'> | undefined) {
  return useQuery({
    queryKey: keys.branches(place ?? { workspace: '', database: '' }),
    queryFn: ({ signal }) => {
      if (place === undefined) throw new Error('there is no database')
      // The list belongs to the database, so any branch name will do.
      return clientOf({ ...place, branch: 'main' }).database.branches({ signal })
    },
    enabled: place !== undefined,
    staleTime: 5_000,
  })
}

/** Reads a branch with its schema. */
export function useBranchDetails(place: Place, enabled = true) {
  return useQuery({
    queryKey: keys.schema(place),
    queryFn: ({ signal }) => clientOf(place).branch().get({ signal }),
    enabled,
    staleTime: 5_000,
  })
}

const NO_SCHEMA: SchemaDefinition = { tables: [] }

/** The schema of the branch of the page; empty while it loads. */
export function useSchema(): SchemaDefinition {
  return useBranchDetails(usePlace()).data?.schema ?? NO_SCHEMA
}
