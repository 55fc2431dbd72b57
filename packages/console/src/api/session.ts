import { useQuery, useQueryClient } from '@tanstack/react-query'
import { createContext, useContext } from 'react'
import { answers, type Session } from './answers.js'
import { bearer, send } from './http.js'

/** Reads the session; null if nobody is signed in. */
export function useSessionQuery() {
  return useQuery(answers.session())
}

export async function signIn(credentials: { key: string } | { token: string }): Promise<void> {
  if ('key' in credentials) {
    await send('POST', '/console/session', { authorization: bearer(credentials.key) })
  } else {
    await send('POST', '/console/session/token', { 'x-offshoot-sign-in': credentials.token })
  }
}

/** Returns a function that ends the session in every process of the service, and forgets all data. */
export function useSignOut(): () => Promise<void> {
  const queries = useQueryClient()
  return async () => {
    await send('DELETE', '/console/session')
    queries.clear()
    location.assign('/console/')
  }
}

export const SessionContext = createContext<Session | null>(null)

/** Returns the session. Only for components below the sign-in page. */
export function useSession(): Session {
  const session = useContext(SessionContext)
  if (session === null) throw new Error('useSession is called outside of a session')
  return session
}

/** The rights of the session. Actions that are not allowed are not offered. */
interface Rights {
  readonly canWrite: boolean
  /** May change the user and its keys. */
  readonly isUnlimited: boolean
  /** May change databases of a workspace. */
  readonly hasWholeWorkspace: boolean
  /** May change rules and git branches of a database. */
  readonly hasWholeDatabase: boolean
}

function rightsOf({ scope }: Pick<Session, 'scope'>): Rights {
  const canWrite = scope.access !== 'read'
  const { workspaces, databases, branches, requestsPerSecond, requestsAtOnce } = scope
  const isPart = workspaces ?? databases ?? branches ?? requestsPerSecond ?? requestsAtOnce
  return {
    canWrite,
    isUnlimited: canWrite && isPart === undefined,
    hasWholeWorkspace: canWrite && databases === undefined && branches === undefined,
    hasWholeDatabase: canWrite && branches === undefined,
  }
}

export function useRights(): Rights {
  return rightsOf(useSession())
}
