import type { Place } from '../api/clients.js'

const part = encodeURIComponent

type DatabasePlace = Pick<Place, 'workspace' | 'database'>
type BranchPlace = Pick<Place, 'workspace' | 'database' | 'branch'>

type RevertedStep = { readonly entry: string } | { readonly since: string; readonly until: string }

/** Addresses of all pages, relative to `/console`. Links are made only by these. */
export const paths = {
  home: () => '/',
  keys: () => '/keys',
  metrics: () => '/metrics',
  /** The page to accept an invite. Browsers do not send the part that has the key to the service. */
  join: (workspace: string, key: string) => `/join/${part(workspace)}#invite=${part(key)}`,
  workspace: (workspace: string) => `/w/${part(workspace)}`,
  audit: (workspace: string) => `/w/${part(workspace)}/audit`,
  members: (workspace: string) => `/w/${part(workspace)}/members`,
  workspaceSettings: (workspace: string) => `/w/${part(workspace)}/settings`,
  database: ({ workspace, database }: DatabasePlace) =>
    `/w/${part(workspace)}/db/${part(database)}`,
  branches: (place: DatabasePlace) => `${paths.database(place)}/branches`,
  proposals: (place: DatabasePlace) => `${paths.database(place)}/proposals`,
  /** The form for a proposal to merge a branch. */
  propose: (place: BranchPlace) => `${paths.proposals(place)}?propose=${part(place.branch)}`,
  proposal: (place: DatabasePlace, number: number) => `${paths.proposals(place)}/${number}`,
  git: (place: DatabasePlace) => `${paths.database(place)}/git`,
  databaseSettings: (place: DatabasePlace) => `${paths.database(place)}/settings`,
  branch: (place: BranchPlace, at?: string) =>
    `${paths.database(place)}/b/${part(place.branch)}${at === undefined ? '' : `?at=${part(at)}`}`,
  /** The rows of a table: as of a checkpoint, or those that match a filter. */
  table: (
    place: BranchPlace,
    table: string,
    { at, filter }: { readonly at?: string | undefined; readonly filter?: object } = {},
  ) => {
    const query = new URLSearchParams({
      ...(filter !== undefined && { filter: JSON.stringify(filter) }),
      ...(at !== undefined && { at }),
    })
    return `${paths.branch(place)}/tables/${part(table)}${query.size === 0 ? '' : `?${query}`}`
  },
  schema: (place: BranchPlace) => `${paths.branch(place)}/schema`,
  sql: (place: BranchPlace) => `${paths.branch(place)}/sql`,
  diff: (place: BranchPlace, against?: string) =>
    `${paths.branch(place)}/diff${against === undefined ? '' : `?against=${part(against)}`}`,
  /** What changed since a checkpoint. */
  diffSince: (place: BranchPlace, checkpoint: string) =>
    `${paths.branch(place)}/diff?since=${part(checkpoint)}`,
  merge: (place: BranchPlace, into?: string) =>
    `${paths.branch(place)}/merge${into === undefined ? '' : `?into=${part(into)}`}`,
  /** Takes back an entry of the log, or what happened between two checkpoints; `what` names it for the reader. */
  revert: (place: BranchPlace, step: RevertedStep & { readonly what: string }) =>
    `${paths.branch(place)}/merge?${new URLSearchParams({ action: 'revert', ...step })}`,
  timeline: (place: BranchPlace) => `${paths.branch(place)}/timeline`,
  files: (place: BranchPlace) => `${paths.branch(place)}/files`,
}
