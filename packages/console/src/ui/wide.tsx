import type { ReactNode } from 'react'

/** Content that may be wider than the window. It can be scrolled with the keyboard, too. */
export function Wide({
  label,
  className = '',
  children,
}: {
  label: string
  className?: string
  children: ReactNode
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable with the keyboard.
    <section className={`table-wrap ${className}`} aria-label={label} tabIndex={0}>
      {children}
    </section>
  )
}
