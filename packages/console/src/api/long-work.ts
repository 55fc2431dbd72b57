import { type LongCallOptions, OffshootError, type OperationInfo } from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { useSearch } from 'wouter'
import { navigate, usePathname } from 'wouter/use-browser-location'
import { keys } from './answers.js'
import { account, clientOf, type Place } from './clients.js'

/** How often the state of an operation is read. */
const POLL_MS = 1000

/** How an operation has ended. */
type Outcome<Result> = { readonly result: Result } | { readonly error: unknown }

/** Work of a page that may take longer than a request. */
interface LongWork {
  /** The operation, while it runs. An earlier page may have started it. */
  readonly operation: OperationInfo | undefined
  /** Whether work is under way, as far as the page knows. */
  readonly isUnderWay: boolean
  /** Why the state of the operation of an earlier page cannot be read. */
  readonly error: unknown
  /** Runs work. It passes on the function that the client tells about the operation, if there is one. */
  run<Answer>(
    work: (onProgress: NonNullable<LongCallOptions['onProgress']>) => Promise<Answer>,
  ): Promise<Answer>
  /** Stops following the operation. It goes on. */
  forget(): void
}

/**
 * Follows work that may take longer than a request. Its operation is in the address, so that a page that is loaded again
 * follows it, too, and calls `onEnd` with its outcome.
 */
export function useLongWork<Result>(onEnd: (outcome: Outcome<Result>) => void): LongWork {
  const [id, setId] = useOperationOfAddress()
  const [isBusy, setBusy] = useState(false)
  /** The operation of this page, which the client follows. */
  const [own, setOwn] = useState<OperationInfo | undefined>()
  const earlier = useOperation(isBusy ? null : id)
  const followed = id === null || isBusy ? undefined : earlier.data
  // biome-ignore lint/correctness/useExhaustiveDependencies: only the end of the operation matters.
  useEffect(() => {
    if (followed === undefined || followed.state === 'running') return
    onEnd(
      followed.state === 'done'
        ? { result: followed.result as Result }
        : { error: errorOfOperation(followed) },
    )
    setId(null)
  }, [followed])
  return {
    operation: own ?? followed,
    isUnderWay: isBusy || id !== null,
    error: id === null || isBusy ? null : earlier.error,
    run: async (work) => {
      setBusy(true)
      try {
        return await work((operation) => {
          setOwn(operation)
          setId(operation.id)
        })
      } finally {
        setOwn(undefined)
        setId(null)
        setBusy(false)
      }
    },
    forget: () => setId(null),
  }
}

/** The operation that the address names, and a function that changes it while the page is shown. */
function useOperationOfAddress(): readonly [string | null, (id: string | null) => void] {
  const path = usePathname()
  const search = useSearch()
  const set = (id: string | null) => {
    // Not `search`: the address may have changed since the request was sent.
    const parameters = new URLSearchParams(location.search)
    if (parameters.get('operation') === id || location.pathname !== path) return
    if (id === null) parameters.delete('operation')
    else parameters.set('operation', id)
    navigate(parameters.size === 0 ? path : `${path}?${parameters}`, { replace: true })
  }
  return [new URLSearchParams(search).get('operation'), set]
}

function useOperation(id: string | null) {
  return useQuery({
    queryKey: ['operation', id],
    queryFn: ({ signal }) => account.operation(id ?? '', { signal }),
    enabled: id !== null,
    gcTime: 0,
    refetchInterval: ({ state: { data } }) => (data?.state === 'running' ? POLL_MS : false),
  })
}

const isRunning = ({ state }: OperationInfo) => state === 'running'

/** Reads the operations of a branch that are running, until none is left. */
export function useRunningOperations(place: Place) {
  return useQuery({
    queryKey: [...keys.branch(place), 'operations'],
    queryFn: async ({ signal }) =>
      (await clientOf(place).branch().operations({ signal })).filter(isRunning),
    refetchInterval: ({ state: { data = [] } }) => (data.length > 0 ? POLL_MS : false),
  })
}

/** Cancels an operation. It ends a moment later, and whoever follows it gets an error. */
export function cancelOperation({ id }: Pick<OperationInfo, 'id'>): Promise<unknown> {
  return account.cancelOperation(id)
}

function errorOfOperation({ state, error }: OperationInfo): OffshootError {
  const message = String(error?.message ?? `the operation ended as ${state}`)
  return new OffshootError(message, {
    code: (error?.code ?? 'unexpected_answer') as OffshootError['code'],
    status: Number(error?.status ?? 0),
    requestId: error?.id === undefined ? undefined : String(error.id),
    body: error ?? {},
  })
}
