import type { OperationInfo } from '@offshoot/client'
import { useState } from 'react'
import { Button } from './button.js'
import { ErrorNote, messageOf, Tag } from './feedback.js'

/** How far an operation has come, and the button that cancels it. */
export function OperationProgress({
  operation,
  name = operation.kind === 'index' ? 'build of an index' : operation.kind,
  onCancel,
}: {
  operation: OperationInfo
  /** What is running, if it is not the kind of the operation. */
  name?: string
  onCancel: (operation: OperationInfo) => Promise<unknown>
}) {
  const [isCancelled, setCancelled] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const { step, done, total } = operation.progress
  const cancel = async () => {
    setCancelled(true)
    setError(null)
    try {
      await onCancel(operation)
    } catch (caught) {
      setCancelled(false)
      setError(caught)
    }
  }
  return (
    <section className="card" aria-label={`Progress of the ${name}`}>
      <header className="card-head">
        <h2 className="grow">The {name} is running</h2>
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
