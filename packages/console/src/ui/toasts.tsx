import { OffshootError } from '@offshoot/client'
import { useSyncExternalStore } from 'react'
import { IconButton } from './button.js'
import { messageOf } from './feedback.js'

interface Toast {
  readonly id: number
  readonly kind: 'good' | 'bad'
  readonly text: string
  readonly requestId: string | undefined
}

/** Notices go away by themselves. Errors stay until they are closed. */
const NOTICE_MS = 5000

let toasts: readonly Toast[] = []
let nextId = 1
const listeners = new Set<() => void>()

function set(next: readonly Toast[]): void {
  toasts = next
  for (const listener of listeners) listener()
}

function add(toast: Omit<Toast, 'id'>): void {
  const id = nextId++
  set([...toasts.slice(-3), { id, ...toast }])
  if (toast.kind === 'good') setTimeout(() => close(id), NOTICE_MS)
}

function close(id: number): void {
  set(toasts.filter((toast) => toast.id !== id))
}

/** Says that something is done. */
export function notify(text: string): void {
  add({ kind: 'good', text, requestId: undefined })
}

/** Says that something failed, where no better place for the error is left on the page. */
export function notifyError(error: unknown): void {
  const requestId = error instanceof OffshootError ? error.requestId : undefined
  add({ kind: 'bad', text: messageOf(error), requestId })
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => toasts,
  )
  return (
    <section className="toasts" aria-live="polite" aria-label="Notices">
      {shown.map(({ id, kind, text, requestId }) => (
        <div key={id} className={`toast ${kind}`}>
          <div className="grow">
            {text}
            {requestId !== undefined && (
              <div className="faint">
                request <code>{requestId}</code>
              </div>
            )}
          </div>
          <IconButton label="Close notice" icon="close" onClick={() => close(id)} />
        </div>
      ))}
    </section>
  )
}
