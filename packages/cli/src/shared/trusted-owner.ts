/**
 * Returns whether a file of this owner may decide what a command does: it belongs to the user or to the
 * administrator. With `sudo`, files of the user who called it are accepted as well.
 */
export function isTrusted({ uid }: { readonly uid: number }): boolean {
  const own = process.getuid?.()
  if (own === undefined || uid === own || uid === 0) return true
  return own === 0 && String(uid) === process.env.SUDO_UID
}
