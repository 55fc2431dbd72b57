import { OffshootError } from '@offshoot/client'
import type { ReactNode } from 'react'
import { Icon, type IconName } from './icon.js'

/** An error, where it happened, with the id under which the log of the service has the request. */
export function ErrorNote({
  error,
  onRetry,
  children,
}: {
  error: unknown
  onRetry?: () => void
  /** Says more about the error than its message. */
  children?: ReactNode
}) {
  if (error === null || error === undefined) return null
  return (
    <div className="note danger" role="alert">
      <Icon name="warning" />
      <div className="grow">
        <p>{children || messageOf(error)}</p>
        {error instanceof OffshootError && error.requestId !== undefined && (
          <p className="faint">
            <code>{error.code}</code> · request <code>{error.requestId}</code>
          </p>
        )}
      </div>
      {onRetry && (
        <button type="button" className="button plain" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  )
}

export function messageOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  return message.charAt(0).toUpperCase() + message.slice(1)
}

/** The state of a page without content. It says what the next step is. */
export function Empty({
  icon,
  title,
  children,
  actions,
}: {
  icon: IconName
  title: string
  children?: ReactNode
  actions?: ReactNode
}) {
  return (
    <section className="empty">
      <Icon name={icon} size={28} />
      <h2>{title}</h2>
      <div className="muted">{children}</div>
      {actions && <div className="row center">{actions}</div>}
    </section>
  )
}

/** Bars in the place of content that loads, so that nothing jumps when it arrives. */
export function Loading({ lines = 4, label = 'Loading' }: { lines?: number; label?: string }) {
  return (
    <div className="loading" role="status" aria-label={label}>
      {Array.from({ length: lines }, (_, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the bars never change.
        <span key={i} className="bar" />
      ))}
    </div>
  )
}

/** A small label: state, type or count. */
export function Tag({
  kind = 'plain',
  children,
  title,
}: {
  kind?: 'plain' | 'good' | 'warn' | 'bad' | 'info'
  children: ReactNode
  title?: string
}) {
  return (
    <span className={`tag ${kind}`} title={title}>
      {children}
    </span>
  )
}
