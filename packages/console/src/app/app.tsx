import { OffshootError } from '@offshoot/client'
import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { lazy, type ReactNode, Suspense, useEffect } from 'react'
import { Redirect, Route, Router, Switch } from 'wouter'
import { useBrowserLocation } from 'wouter/use-browser-location'
import { SESSION_KEY, SessionContext, useSessionQuery } from '../api/session.js'
import { Loading } from '../ui/feedback.js'
import { Toasts } from '../ui/toasts.js'
import { ConnectionBanner, noteAnswer } from './connection.js'
import { FaultBoundary } from './fault-boundary.js'
import { NotFound } from './not-found.js'
import { BranchScope, DatabaseScope, WorkspaceScope } from './scopes.js'
import { Shell } from './shell.js'
import { SignIn } from './sign-in.js'

const loaders: (() => Promise<unknown>)[] = []
/** Loads the code of the other pages after the first one, so that they open also while the service is away. */
const PRELOAD_MS = 1500

/**
 * Pages are loaded when they are opened. The one that the first address names by its end is loaded beside the
 * session and what it shows, and not after them.
 */
const page = (
  load: () => Promise<Record<string, () => ReactNode>>,
  name: string,
  ending?: RegExp,
) => {
  loaders.push(load)
  if (ending?.test(location.pathname)) load().catch(() => undefined)
  return lazy(async () => {
    const Page = (await load())[name]
    if (Page === undefined) throw new Error(`there is no page ${name}`)
    return { default: Page }
  })
}

const Home = page(() => import('../pages/home/home.js'), 'Home')
const Databases = page(() => import('../pages/databases/databases.js'), 'Databases')
const DatabaseSettings = page(
  () => import('../pages/databases/database-settings.js'),
  'DatabaseSettings',
)
const Members = page(() => import('../pages/members/members.js'), 'Members')
const WorkspaceSettings = page(
  () => import('../pages/workspaces/workspace-settings.js'),
  'WorkspaceSettings',
)
const Join = page(() => import('../pages/join/join.js'), 'Join')
const Keys = page(() => import('../pages/keys/keys.js'), 'Keys')
const MetricsPage = page(() => import('../pages/metrics/metrics.js'), 'MetricsPage')
const Branches = page(() => import('../pages/branches/branches.js'), 'Branches', /\/branches$/)
const Git = page(() => import('../pages/git/git.js'), 'Git')
const Tables = page(() => import('../pages/data/tables.js'), 'Tables')
const TableData = page(() => import('../pages/data/table-data.js'), 'TableData', /\/tables\/[^/]+$/)
const SchemaPage = page(() => import('../pages/schema/schema.js'), 'SchemaPage', /\/schema$/)
const SqlPage = page(() => import('../pages/sql/sql.js'), 'SqlPage', /\/sql$/)
const DiffPage = page(() => import('../pages/diff/diff.js'), 'DiffPage', /\/diff$/)
const MergePage = page(() => import('../pages/merge/merge.js'), 'MergePage', /\/merge$/)
const FilesPage = page(() => import('../pages/files/files.js'), 'FilesPage')

/** A refused session ends the page; the sign-in page keeps the address. */
const watchAnswers = (error: unknown) => {
  noteAnswer(error)
  if (error instanceof OffshootError && error.code === 'invalid_api_key') {
    void queries.resetQueries({ queryKey: SESSION_KEY })
  }
}

const queries = new QueryClient({
  queryCache: new QueryCache({
    onError: (error, query) => {
      if (query.queryKey[0] === SESSION_KEY[0]) noteAnswer(error)
      else watchAnswers(error)
    },
    onSuccess: () => noteAnswer(null),
  }),
  mutationCache: new MutationCache({ onError: watchAnswers }),
  defaultOptions: {
    // The client repeats what is safe to repeat. The service can be reached without the internet, so requests
    // do not wait until the browser thinks that it is online.
    queries: { retry: false, refetchOnWindowFocus: true, networkMode: 'always' },
    mutations: { retry: false, networkMode: 'always' },
  },
})

export function App() {
  return (
    <QueryClientProvider client={queries}>
      <Router base="/console">
        <ConnectionBanner />
        <SignedIn />
        <Toasts />
      </Router>
    </QueryClientProvider>
  )
}

function SignedIn() {
  const session = useSessionQuery()
  const [address] = useBrowserLocation()
  const isSignedIn = Boolean(session.data)
  useEffect(() => {
    if (!isSignedIn) return
    const timer = setTimeout(() => {
      for (const load of loaders) load().catch(() => undefined)
    }, PRELOAD_MS)
    return () => clearTimeout(timer)
  }, [isSignedIn])
  if (session.data) {
    return (
      <SessionContext value={session.data}>
        <Shell>
          <FaultBoundary address={address}>
            <Suspense fallback={<PageLoading />}>
              <Pages />
            </Suspense>
          </FaultBoundary>
        </Shell>
      </SessionContext>
    )
  }
  if (session.isPending) return <PageLoading />
  return <SignIn error={session.error} />
}

function PageLoading() {
  return (
    <div className="page">
      <Loading lines={6} />
    </div>
  )
}

/** All pages. Each has an address of its own; `paths.ts` makes the links. */
function Pages() {
  return (
    <Switch>
      <Route path="/" component={Home} />
      <Route path="/keys" component={Keys} />
      <Route path="/metrics" component={MetricsPage} />
      <Route path="/join/:workspace" component={Join} />
      <Route path="/w/:workspace" nest>
        <WorkspaceScope>
          <Switch>
            <Route path="/" component={Databases} />
            <Route path="/members" component={Members} />
            <Route path="/settings" component={WorkspaceSettings} />
            <Route path="/db/:database" nest>
              <DatabaseScope>
                <Switch>
                  <Route path="/">
                    <Redirect to="/branches" replace />
                  </Route>
                  <Route path="/branches" component={Branches} />
                  <Route path="/git" component={Git} />
                  <Route path="/settings" component={DatabaseSettings} />
                  <Route path="/b/:branch" nest>
                    <BranchScope>
                      <Switch>
                        <Route path="/" component={Tables} />
                        <Route path="/tables/:table" component={TableData} />
                        <Route path="/schema" component={SchemaPage} />
                        <Route path="/sql" component={SqlPage} />
                        <Route path="/diff" component={DiffPage} />
                        <Route path="/merge" component={MergePage} />
                        <Route path="/files" component={FilesPage} />
                        <Route component={NotFound} />
                      </Switch>
                    </BranchScope>
                  </Route>
                  <Route component={NotFound} />
                </Switch>
              </DatabaseScope>
            </Route>
            <Route component={NotFound} />
          </Switch>
        </WorkspaceScope>
      </Route>
      <Route component={NotFound} />
    </Switch>
  )
}
