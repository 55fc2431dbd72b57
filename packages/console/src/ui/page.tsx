import { type ReactNode, useEffect } from 'react'

/** The frame of a page: its title, actions at the right of it, and its content. */
export function Page({
  title,
  subtitle,
  actions,
  isFull = false,
  children,
}: {
  title: string
  subtitle?: ReactNode
  actions?: ReactNode
  /** The content fills the window and scrolls by itself, as the data grid does. */
  isFull?: boolean
  children: ReactNode
}) {
  useEffect(() => {
    document.title = `${title} · Offshoot`
  }, [title])
  return (
    <div className={`page ${isFull ? 'full' : ''}`}>
      <header className="page-head">
        <div className="grow">
          <h1>{title}</h1>
          {subtitle !== undefined && <div className="muted">{subtitle}</div>}
        </div>
        {actions && <div className="row">{actions}</div>}
      </header>
      {children}
    </div>
  )
}
