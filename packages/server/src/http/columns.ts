/** Reads `columns=a,b` and `columns=a&columns=b`. Returns undefined if no column is named. */
export function readColumns(value: string | readonly string[] | undefined): string[] | undefined {
  if (value === undefined) return undefined
  const names = [value].flat().flatMap((part) => part.split(','))
  const columns = names.map((name) => name.trim()).filter((name) => name !== '')
  return columns.length === 0 ? undefined : columns
}
