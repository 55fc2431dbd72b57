import type { ComponentType } from 'react'

/** A page whose code is loaded when it is needed. */
export interface LazyPage {
  /** The page, if its code is here. */
  readonly loaded: ComponentType | undefined
  load(): Promise<ComponentType>
}

function lazyPage<Name extends string>(
  load: () => Promise<Record<Name, ComponentType>>,
  name: Name,
): LazyPage {
  let loaded: ComponentType | undefined
  return {
    get loaded() {
      return loaded
    },
    async load() {
      loaded = (await load())[name]
      return loaded
    },
  }
}

export const pages = {
  home: lazyPage(() => import('../pages/home/home.js'), 'Home'),
  databases: lazyPage(() => import('../pages/databases/databases.js'), 'Databases'),
  databaseSettings: lazyPage(
    () => import('../pages/databases/database-settings.js'),
    'DatabaseSettings',
  ),
  audit: lazyPage(() => import('../pages/audit/audit.js'), 'Audit'),
  members: lazyPage(() => import('../pages/members/members.js'), 'Members'),
  workspaceSettings: lazyPage(
    () => import('../pages/workspaces/workspace-settings.js'),
    'WorkspaceSettings',
  ),
  join: lazyPage(() => import('../pages/join/join.js'), 'Join'),
  keys: lazyPage(() => import('../pages/keys/keys.js'), 'Keys'),
  metrics: lazyPage(() => import('../pages/metrics/metrics.js'), 'MetricsPage'),
  branches: lazyPage(() => import('../pages/branches/branches.js'), 'Branches'),
  proposals: lazyPage(() => import('../pages/proposals/proposals.js'), 'Proposals'),
  proposal: lazyPage(() => import('../pages/proposals/proposal.js'), 'ProposalPage'),
  git: lazyPage(() => import('../pages/git/git.js'), 'Git'),
  tables: lazyPage(() => import('../pages/data/tables.js'), 'Tables'),
  tableData: lazyPage(() => import('../pages/data/table-data.js'), 'TableData'),
  schema: lazyPage(() => import('../pages/schema/schema.js'), 'SchemaPage'),
  sql: lazyPage(() => import('../pages/sql/sql.js'), 'SqlPage'),
  diff: lazyPage(() => import('../pages/diff/diff.js'), 'DiffPage'),
  merge: lazyPage(() => import('../pages/merge/merge.js'), 'MergePage'),
  timeline: lazyPage(() => import('../pages/timeline/timeline.js'), 'Timeline'),
  files: lazyPage(() => import('../pages/files/files.js'), 'FilesPage'),
} satisfies Record<string, LazyPage>

/** Routes of a page, relative to `/console`. `app.tsx` nests them, and each scope checks its part. */
const ENDINGS: readonly (readonly [RegExp, LazyPage])[] = [
  [/\/tables\/[^/]+$/, pages.tableData],
  [/\/b\/[^/]+$/, pages.tables],
  [/\/branches$|\/db\/[^/]+$/, pages.branches],
  [/\/proposals$/, pages.proposals],
  [/\/proposals\/\d+$/, pages.proposal],
  [/\/schema$/, pages.schema],
  [/\/sql$/, pages.sql],
  [/\/diff$/, pages.diff],
  [/\/merge$/, pages.merge],
  [/\/timeline$/, pages.timeline],
  [/\/files$/, pages.files],
  [/\/w\/[^/]+$/, pages.databases],
  [/\/console\/?$/, pages.home],
]

/** Finds the page of an address by its end; undefined for pages that are rarely the first one. */
export function pageOf(path: string): LazyPage | undefined {
  return ENDINGS.find(([ending]) => ending.test(path))?.[1]
}
