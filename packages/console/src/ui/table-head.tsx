/** The head of a table of facts. `hasActions`: the last column has buttons, and a title for screen readers only. */
export function TableHead({
  titles,
  hasActions = false,
}: {
  readonly titles: readonly string[]
  readonly hasActions?: boolean
}) {
  return (
    <thead>
      <tr>
        {titles.map((title) => (
          <th key={title}>{title}</th>
        ))}
        {hasActions && (
          <th>
            <span className="sr-only">Actions</span>
          </th>
        )}
      </tr>
    </thead>
  )
}
