/** Cuts a page from rows that were read with one more than its size. */
export function cutPage<Row, Cursor>(
  rows: readonly Row[],
  size: number,
  cursorOf: (row: Row) => Cursor,
): { readonly shown: Row[]; readonly meta: { cursor?: Cursor; more: boolean } } {
  const shown = rows.slice(0, size)
  const last = shown.at(-1)
  return {
    shown,
    meta: { ...(last === undefined ? {} : { cursor: cursorOf(last) }), more: rows.length > size },
  }
}
