import type { SchemaDefinition } from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { answers } from './answers.js'
import type { Place } from './clients.js'
import { usePlace } from './place.js'

export function useWorkspaces() {
  return useQuery(answers.workspaces())
}

export function useDatabases(workspace: string | undefined) {
  return useQuery({
    ...answers.databases(workspace ?? ''),
    enabled: workspace !== undefined,
  })
}

export function useBranches(place: Omit<Place, 'branch'> | undefined) {
  return useQuery({
    ...answers.branches(place ?? { workspace: '', region: '', database: '' }),
    enabled: place !== undefined,
  })
}

/** Reads a branch with its schema. */
export function useBranchDetails(place: Place, enabled = true) {
  return useQuery({ ...answers.branch(place), enabled })
}

const NO_SCHEMA: SchemaDefinition = { tables: [] }

/** The schema of the branch of the page; empty while it loads. */
export function useSchema(): SchemaDefinition {
  return useBranchDetails(usePlace()).data?.schema ?? NO_SCHEMA
}
