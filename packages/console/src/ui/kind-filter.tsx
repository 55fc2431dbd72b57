/** A list of kinds, of which one can be chosen. The empty text stands for all of them. */
export function KindFilter({
  kinds,
  value,
  onChange,
}: {
  kinds: Readonly<Record<string, string>>
  value: string
  onChange: (kind: string) => void
}) {
  return (
    <select
      aria-label="Kind of entry"
      value={value in kinds ? value : ''}
      onChange={(event) => onChange(event.target.value)}
    >
      <option value="">Everything</option>
      {Object.entries(kinds).map(([kind, title]) => (
        <option key={kind} value={kind}>
          {title}
        </option>
      ))}
    </select>
  )
}
