import type { Checkpoint, SchemaDefinition } from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { answers, keys } from './answers.js'
import { clientOf, type Place } from './clients.js'
import { usePlace } from './place.js'
import { useSession } from './session.js'

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

/** Reads a branch with its schema as it was at a checkpoint; as it is now, if `at` is empty. */
export function useBranchAt(place: Place, at: string) {
  const now = useBranchDetails(place, at === '')
  const then = useQuery({
    queryKey: [...keys.branch(place), 'at', at],
    queryFn: ({ signal }) => clientOf(place).branch().at(at).get({ signal }),
    enabled: at !== '',
  })
  return at === '' ? now : then
}

/** Reads the checkpoints of a branch, newest first. */
export function useCheckpoints(place: Place, enabled = true) {
  return useQuery({
    queryKey: [...keys.branch(place), 'checkpoints'],
    queryFn: async ({ signal }) => {
      const found: Checkpoint[] = []
      for await (const each of clientOf(place).branch().checkpoints({ signal })) found.push(each)
      return found
    },
    staleTime: 5_000,
    enabled,
  })
}

/** Whether the session may read the audit log of a workspace. */
export function useCanAudit(workspace: string | undefined): boolean {
  const { audit, ...limits } = useSession().scope
  const isOwner = useWorkspaces().data?.find(({ id }) => id === workspace)?.role === 'owner'
  const { access, ...others } = limits
  const isLimited = access === 'read' || Object.values(others).some((limit) => limit !== undefined)
  return isOwner && (audit === true || !isLimited)
}

const NO_SCHEMA: SchemaDefinition = { tables: [] }

/** The schema of the branch of the page; empty while it loads. */
export function useSchema(): SchemaDefinition {
  return useBranchDetails(usePlace()).data?.schema ?? NO_SCHEMA
}
