import type { Place } from '../api/clients.js'

const part = encodeURIComponent

type DatabasePlace = Pick<Place, 'workspace' | 'database'>
type BranchPlace = Pick<Place, 'workspace' | 'database' | 'branch'>

/** Addresses of all pages, relative to `/console`. Links are made only by these. */
export const paths = {
  home: () => '/',
  keys: () => '/keys',
  metrics: () => '/metrics',
  /** The page to accept an invite. Browsers do not send the part that has the key to the service. */
  join: (workspace: string, key: string) => `/join/${part(workspace)}#invite=${part(key)}`,
  workspace: (workspace: string) => `/w/${part(workspace)}`,
  members: (workspace: string) => `/w/${part(workspace)}/members`,
  workspaceSettings: (workspace: string) => `/w/${part(workspace)}/settings`,
  database: ({ workspace, database }: DatabasePlace) =>
    `/w/${part(workspace)}/db/${part(database)}`,
  branches: (place: DatabasePlace) => `${paths.database(place)}/branches`,
  proposals: (place: DatabasePlace) => `${paths.database(place)}/proposals`,
  proposal: (place: DatabasePlace, number: number) => `${paths.proposals(place)}/${number}`,
  git: (place: DatabasePlace) => `${paths.database(place)}/git`,
  databaseSettings: (place: DatabasePlace) => `${paths.database(place)}/settings`,
  branch: (place: BranchPlace) => `${paths.database(place)}/b/${part(place.branch)}`,
  table: (place: BranchPlace, table: string) => `${paths.branch(place)}/tables/${part(table)}`,
  schema: (place: BranchPlace) => `${paths.branch(place)}/schema`,
  sql: (place: BranchPlace) => `${paths.branch(place)}/sql`,
  diff: (place: BranchPlace, against?: string) =>
    `${paths.branch(place)}/diff${against === undefined ? '' : `?against=${part(against)}`}`,
  merge: (place: BranchPlace, into?: string) =>
    `${paths.branch(place)}/merge${into === undefined ? '' : `?into=${part(into)}`}`,
  files: (place: BranchPlace) => `${paths.branch(place)}/files`,
}
