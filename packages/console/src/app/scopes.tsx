import { type ReactNode, useEffect, useMemo, useState } from 'react'
import { Link, useParams } from 'wouter'
import { PlaceContext } from '../api/place.js'
import { useBranches, useDatabases, useWorkspaces } from '../api/queries.js'
import { Empty, ErrorNote } from '../ui/feedback.js'
import { Page } from '../ui/page.js'
import { PageLoading } from './page-view.js'
import { usePlaceOfAddress } from './use-address.js'

/*
 * A scope renders its pages when what the address names exists: a workspace, a database, or a branch.
 */

export function WorkspaceScope({ children }: { children: ReactNode }) {
  const { workspace = '' } = useParams()
  const workspaces = useWorkspaces()
  if (workspaces.isPending) return <PageLoading />
  if (workspaces.isError) return <Failed error={workspaces.error} onRetry={workspaces.refetch} />
  if (!workspaces.data.some(({ id }) => id === workspace)) {
    return <Missing key={workspace} what="workspace" name={workspace} list={workspaces} />
  }
  return children
}

export function DatabaseScope({ children }: { children: ReactNode }) {
  const { workspace, database = '' } = usePlaceOfAddress()
  const databases = useDatabases(workspace)
  const region = databases.data?.find(({ name }) => name === database)?.region
  const place = useMemo(
    () =>
      workspace === undefined || region === undefined
        ? null
        : { workspace, database, region, branch: 'main' },
    [workspace, database, region],
  )
  if (databases.isPending) return <PageLoading />
  if (databases.isError) return <Failed error={databases.error} onRetry={databases.refetch} />
  if (place === null)
    return <Missing key={database} what="database" name={database} list={databases} />
  return <PlaceContext value={place}>{children}</PlaceContext>
}

export function BranchScope({ children }: { children: ReactNode }) {
  const { workspace, database, branch } = usePlaceOfAddress()
  const region = useDatabases(workspace).data?.find(({ name }) => name === database)?.region
  const place = useMemo(
    () =>
      workspace === undefined ||
      database === undefined ||
      branch === undefined ||
      region === undefined
        ? null
        : { workspace, database, region, branch },
    [workspace, database, region, branch],
  )
  const branches = useBranches(place ?? undefined)
  if (branches.isPending) return <PageLoading />
  if (branches.isError) return <Failed error={branches.error} onRetry={branches.refetch} />
  if (place === null || !branches.data.some(({ name }) => name === branch)) {
    return <Missing key={branch} what="branch" name={branch ?? ''} list={branches} />
  }
  return <PlaceContext value={place}>{children}</PlaceContext>
}

function Failed({ error, onRetry }: { error: unknown; onRetry: () => unknown }) {
  return (
    <div className="page">
      <ErrorNote error={error} onRetry={() => void onRetry()} />
    </div>
  )
}

/** Says that something is not in a list, after the list was read again: it may have been created since. */
function Missing({
  what,
  name,
  list,
}: {
  what: string
  name: string
  list: { readonly refetch: () => Promise<unknown> }
}) {
  const [isLooking, setLooking] = useState(true)
  const { refetch } = list
  useEffect(() => {
    void refetch().finally(() => setLooking(false))
  }, [refetch])
  if (isLooking) return <PageLoading />
  return (
    <Page title={`No such ${what}`}>
      <Empty
        icon="search"
        title={`There is no ${what} “${name}”`}
        actions={
          <Link className="button primary" href="~/console/">
            Go to the start
          </Link>
        }
      >
        It was renamed or deleted, or this session may not see it.
      </Empty>
    </Page>
  )
}
