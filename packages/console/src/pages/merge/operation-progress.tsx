import { OffshootError, type OperationInfo } from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { account } from '../../api/clients.js'
import { Button } from '../../ui/button.js'
import { ErrorNote, messageOf, Tag } from '../../ui/feedback.js'

/** How often the state of an operation is read. */
const POLL_MS = 1000

/** Follows an operation that an earlier page has started, until it ends. */
export function useOperation(id: string | null) {
  return useQuery({
    queryKey: ['operation', id],
    queryFn: ({ signal }) => account.operation(id ?? '', { signal }),
    enabled: id !== null,
    gcTime: 0,
    refetchInterval: ({ state: { data } }) => (data?.state === 'running' ? POLL_MS : false),
  })
}

/** Returns the error that an operation has ended with. */
export function errorOfOperation({ state, error }: OperationInfo): OffshootError {
  const message = String(error?.message ?? `the operation ended as ${state}`)
  return new OffshootError(message, {
    code: (error?.code ?? 'unexpected_answer') as OffshootError['code'],
    status: Number(error?.status ?? 0),
    requestId: error?.id === undefined ? undefined : String(error.id),
    body: error ?? {},
  })
}

/** How far an operation has come, and the button that cancels it. */
export function OperationProgress({ operation }: { operation: OperationInfo }) {
  const [isCancelled, setCancelled] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const { step, done, total } = operation.progress
  const cancel = async () => {
    setCancelled(true)
    setError(null)
    try {
      await account.cancelOperation(operation.id)
    } catch (caught) {
      setCancelled(false)
      setError(caught)
    }
  }
  return (
    <section className="card" aria-label={`Progress of the ${operation.kind}`}>
      <header className="card-head">
        <h2 className="grow">The {operation.kind} is running</h2>
        <Tag kind="info">
          {done} of {total} steps
        </Tag>
      </header>
      <div className="card-body stack">
        <progress className="operation-bar" aria-label="Progress" max={total} value={done} />
        <p role="status">{isCancelled ? 'Cancelling' : messageOf(step)}</p>
        <div className="row">
          <span className="grow muted">
            It goes on if you leave the page. Until it is done, nothing changes.
          </span>
          <Button isBusy={isCancelled} onClick={() => void cancel()}>
            Cancel
          </Button>
        </div>
        <ErrorNote error={error} />
      </div>
    </section>
  )
}
