import { QueryClientProvider } from '@tanstack/react-query'
import { useEffect } from 'react'
import { Redirect, Route, Router, Switch } from 'wouter'
import { useBrowserLocation } from 'wouter/use-browser-location'
import { SessionContext, useSessionQuery } from '../api/session.js'
import { Toasts } from '../ui/toasts.js'
import { ConnectionBanner } from './connection.js'
import { FaultBoundary } from './fault-boundary.js'
import { NotFound } from './not-found.js'
import { PageLoading, PageView } from './page-view.js'
import { pages } from './pages.js'
import { queries } from './query-client.js'
import { BranchScope, DatabaseScope, WorkspaceScope } from './scopes.js'
import { Shell } from './shell.js'
import { SignIn } from './sign-in.js'

/** Loads the code of the other pages after the first one, so that they open also while the service is away. */
const PRELOAD_MS = 1500

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
      for (const page of Object.values(pages)) page.load().catch(() => undefined)
    }, PRELOAD_MS)
    return () => clearTimeout(timer)
  }, [isSignedIn])
  if (session.data) {
    return (
      <SessionContext value={session.data}>
        <Shell>
          <FaultBoundary address={address}>
            <Pages />
          </FaultBoundary>
        </Shell>
      </SessionContext>
    )
  }
  if (session.isPending) return <PageLoading />
  return <SignIn error={session.error} />
}

/** All pages. Each has an address of its own; `paths.ts` makes the links. */
function Pages() {
  return (
    <Switch>
      <Route path="/">
        <PageView page={pages.home} />
      </Route>
      <Route path="/keys">
        <PageView page={pages.keys} />
      </Route>
      <Route path="/metrics">
        <PageView page={pages.metrics} />
      </Route>
      <Route path="/join/:workspace">
        <PageView page={pages.join} />
      </Route>
      <Route path="/w/:workspace" nest>
        <WorkspaceScope>
          <Switch>
            <Route path="/">
              <PageView page={pages.databases} />
            </Route>
            <Route path="/audit">
              <PageView page={pages.audit} />
            </Route>
            <Route path="/members">
              <PageView page={pages.members} />
            </Route>
            <Route path="/settings">
              <PageView page={pages.workspaceSettings} />
            </Route>
            <Route path="/db/:database" nest>
              <DatabaseScope>
                <Switch>
                  <Route path="/">
                    <Redirect to="/branches" replace />
                  </Route>
                  <Route path="/branches">
                    <PageView page={pages.branches} />
                  </Route>
                  <Route path="/proposals">
                    <PageView page={pages.proposals} />
                  </Route>
                  <Route path="/proposals/:number">
                    <PageView page={pages.proposal} />
                  </Route>
                  <Route path="/git">
                    <PageView page={pages.git} />
                  </Route>
                  <Route path="/settings">
                    <PageView page={pages.databaseSettings} />
                  </Route>
                  <Route path="/b/:branch" nest>
                    <BranchScope>
                      <Switch>
                        <Route path="/">
                          <PageView page={pages.tables} />
                        </Route>
                        <Route path="/tables/:table">
                          <PageView page={pages.tableData} />
                        </Route>
                        <Route path="/schema">
                          <PageView page={pages.schema} />
                        </Route>
                        <Route path="/sql">
                          <PageView page={pages.sql} />
                        </Route>
                        <Route path="/diff">
                          <PageView page={pages.diff} />
                        </Route>
                        <Route path="/merge">
                          <PageView page={pages.merge} />
                        </Route>
                        <Route path="/timeline">
                          <PageView page={pages.timeline} />
                        </Route>
                        <Route path="/files">
                          <PageView page={pages.files} />
                        </Route>
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
