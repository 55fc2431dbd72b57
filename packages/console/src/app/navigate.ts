import { navigate } from 'wouter/use-browser-location'

/** Goes to a page; `path` is one of `paths`. */
export function goTo(path: string, options: { replace?: boolean } = {}): void {
  navigate(`/console${path}`, options)
}

/** The address of a page for a link, from inside of any scope. */
export function href(path: string): string {
  return `~/console${path}`
}
