import type {
  CellResolution,
  ColumnType,
  MergeConflict,
  RuleConflict,
  Take,
} from '@offshoot/client'
import { type ReactNode, useState } from 'react'
import { Button } from '../../ui/button.js'
import { Tag } from '../../ui/feedback.js'
import { textOf, Value } from '../../ui/value.js'
import { Wide } from '../../ui/wide.js'
import { type Decision, takesOf } from './decisions.js'
import { readTyped } from './typed-value.js'

/** The names of both sides. `ours` is the branch that changes. */
interface Sides {
  readonly ours: string
  readonly theirs: string
}

const titlesOf = ({ ours, theirs }: Sides): Readonly<Record<MergeConflict['kind'], string>> => ({
  bothUpdated: 'changed on both sides',
  bothInserted: 'inserted on both sides',
  deletedHere: `deleted on ${ours}, changed on ${theirs}`,
  deletedThere: `changed on ${ours}, deleted on ${theirs}`,
  notUnique: 'several records have a value that must be unique',
  notNull: 'a value is missing',
  limit: 'records have a value that the column cannot have',
  check: 'records fail a check constraint',
  link: 'a linked record does not exist',
  schema: 'the schemas contradict each other',
})

/** One conflict: what both sides have, and the decision about it. */
export function ConflictCard({
  conflict,
  sides,
  decision,
  tableTake,
  isSettled,
  isReopened,
  isChosen,
  typeOf,
  onDecide,
  onPart,
  onChoose,
}: {
  conflict: MergeConflict
  sides: Sides
  decision: Decision | undefined
  /** The side that was taken for the whole table. */
  tableTake: Take | undefined
  isSettled: boolean
  /** It was decided, and shows something else now. */
  isReopened: boolean
  isChosen: boolean
  typeOf: (column: string) => ColumnType
  onDecide: (take: Take) => void
  onPart: (name: string, cell: CellResolution) => void
  onChoose: () => void
}) {
  const whole =
    typeof decision === 'string' ? decision : decision === undefined ? tableTake : undefined
  return (
    <article
      className={`card conflict ${isSettled ? 'settled' : 'unsettled'} ${isChosen ? 'chosen' : ''}`}
      aria-label={`Conflict of ${nameOf(conflict)}`}
      onFocus={onChoose}
    >
      <header className="card-head">
        <span className="grow clip">
          <strong>{nameOf(conflict)}</strong>{' '}
          <span className="muted">{titlesOf(sides)[conflict.kind]}</span>
        </span>
        {isSettled && <Tag kind="good">settled</Tag>}
        {isReopened && (
          <Tag kind="bad" title="The values have changed since you decided about them">
            decide again
          </Tag>
        )}
        {!isSettled && !isReopened && <Tag kind="warn">open</Tag>}
        {takesOf(conflict).map((take) => (
          <Button
            key={take}
            className="side small"
            kind="plain"
            aria-pressed={whole === take}
            title={
              take === 'ours' ? 'Keep the state of the target (o)' : 'Take the merged branch (t)'
            }
            onClick={() => onDecide(take)}
          >
            {conflict.kind === 'link'
              ? `Use the record of ${sides[take]}`
              : take === 'ours'
                ? `Keep ${sides.ours}`
                : `Take ${sides.theirs}`}
          </Button>
        ))}
      </header>
      {(conflict.kind === 'bothUpdated' || conflict.kind === 'bothInserted') && (
        <CellTable
          label={`Values of ${nameOf(conflict)}`}
          heads={[
            'Column',
            'Common state',
            `${sides.ours} (ours)`,
            `${sides.theirs} (theirs)`,
            'Result',
          ]}
        >
          {Object.entries(conflict.columns).map(([name, { base, ours, theirs }]) => (
            <Cell
              key={name}
              name={name}
              values={{ base, ours, theirs }}
              type={typeOf(name)}
              cell={cellOf(decision, name, tableTake)}
              onCell={(cell) => onPart(name, cell)}
            />
          ))}
        </CellTable>
      )}
      {(conflict.kind === 'deletedHere' || conflict.kind === 'deletedThere') && (
        <DeletedRecord conflict={conflict} sides={sides} />
      )}
      {'ids' in conflict && (
        <div className="card-body stack">
          <p>
            <Tag>rule</Tag> <strong>{ruleOf(conflict)}</strong>
          </p>
          <p>{conflict.message}</p>
          {conflict.ids.map((id) => (
            <div key={id} className="row">
              <code className="conflict-id clip">{id}</code>
              <TypedValue
                label={`other value of ${conflict.column} for ${id}`}
                type={typeOf(conflict.column)}
                start={conflict.constraint === undefined ? conflict.value : undefined}
                onValue={(value) => onPart(id, { value })}
              />
            </div>
          ))}
        </div>
      )}
      {conflict.kind === 'schema' && (
        <div className="card-body">
          <p>{conflict.message}</p>
          {conflict.takes.length === 0 && (
            <p className="muted">
              No side can be taken for this one. Change the schema of a branch first, and try again.
            </p>
          )}
        </div>
      )}
    </article>
  )
}

/** Names the rule that records would break. */
function ruleOf({ kind, table, column, constraint, target }: RuleConflict): string {
  const place = `${table}.${column}`
  if (constraint !== undefined) return `constraint ${constraint} of ${table}`
  switch (kind) {
    case 'notUnique':
      return `${place} is unique`
    case 'notNull':
      return `${place} is required`
    case 'link':
      return `${place} links to a record of ${target?.table ?? 'another table'} that must exist`
    default:
      return `the type of ${place}`
  }
}

/** Returns a name for a conflict: of its record, its column or its table. */
export function nameOf(conflict: MergeConflict): string {
  if ('id' in conflict) return `${conflict.table} / ${conflict.id}`
  const { column } = conflict
  return column === undefined ? conflict.table : `${conflict.table}.${column}`
}

function cellOf(
  decision: Decision | undefined,
  name: string,
  tableTake: Take | undefined,
): CellResolution | undefined {
  if (typeof decision === 'string') return { take: decision }
  return decision?.[name] ?? (decision === undefined && tableTake ? { take: tableTake } : undefined)
}

function CellTable({
  label,
  heads,
  children,
}: {
  label: string
  heads: readonly string[]
  children: ReactNode
}) {
  return (
    <Wide label={label}>
      <table className="facts cells">
        <thead>
          <tr>
            {heads.map((head) => (
              <th key={head}>{head}</th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </Wide>
  )
}

/** One column of a record: three values, of which a side is chosen with a click, or another value typed. */
function Cell({
  name,
  values,
  type,
  cell,
  onCell,
}: {
  name: string
  values: { base: unknown; ours: unknown; theirs: unknown }
  type: ColumnType
  cell: CellResolution | undefined
  onCell: (cell: CellResolution) => void
}) {
  const taken = cell !== undefined && 'take' in cell ? cell.take : undefined
  const side = (take: Take) => (
    <td className={taken === take ? 'taken' : ''}>
      <button
        type="button"
        className="cell-side"
        aria-pressed={taken === take}
        onClick={() => onCell({ take })}
      >
        <span className="sr-only">{`${name}: take ${take}, `}</span>
        <Value value={values[take]} />
      </button>
    </td>
  )
  return (
    <tr>
      <th scope="row">{name}</th>
      <td className="muted">
        <Value value={values.base} />
      </td>
      {side('ours')}
      {side('theirs')}
      <td className={cell === undefined ? 'open' : ''}>
        {cell === undefined ? null : (
          <Value value={'take' in cell ? values[cell.take] : cell.value} />
        )}
        <TypedValue
          label={`other value for ${name}`}
          type={type}
          start={values.ours}
          onValue={(value) => onCell({ value })}
        />
      </td>
    </tr>
  )
}

/** A button that opens a field for another value. */
function TypedValue({
  label,
  type,
  start,
  onValue,
}: {
  label: string
  type: ColumnType
  start: unknown
  onValue: (value: unknown) => void
}) {
  const [text, setText] = useState<string | null>(null)
  const [fault, setFault] = useState('')
  if (text === null) {
    return (
      <button
        type="button"
        className="link typed-open"
        aria-label={label}
        onClick={() => setText(start === null || start === undefined ? '' : textOf(start))}
      >
        other value
      </button>
    )
  }
  const use = () => {
    const typed = readTyped(type, text)
    if ('fault' in typed) {
      setFault(typed.fault)
      return
    }
    onValue(typed.value)
    setText(null)
    setFault('')
  }
  return (
    <form
      className="typed-value"
      onSubmit={(event) => {
        event.preventDefault()
        use()
      }}
    >
      <input
        // biome-ignore lint/a11y/noAutofocus: the field opens on demand.
        autoFocus
        aria-label={label}
        aria-invalid={fault !== ''}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === 'Escape') setText(null)
        }}
      />
      <Button type="submit" className="small" kind="plain">
        Use
      </Button>
      <Button
        className="small"
        kind="quiet"
        onClick={() => {
          onValue(null)
          setText(null)
        }}
      >
        null
      </Button>
      {fault !== '' && (
        <small className="fault" role="alert">
          {fault}
        </small>
      )}
    </form>
  )
}

function DeletedRecord({
  conflict,
  sides,
}: {
  conflict: Extract<MergeConflict, { kind: 'deletedHere' | 'deletedThere' }>
  sides: Sides
}) {
  const { base, ours, theirs } = conflict
  const names = [...new Set([base, ours, theirs].flatMap((record) => Object.keys(record ?? {})))]
    .filter((name) => name !== 'id' && name !== 'xata')
    .filter((name) => JSON.stringify(base?.[name]) !== JSON.stringify((ours ?? theirs)?.[name]))
  const show = (record: typeof base, name: string) =>
    record === null ? (
      <span className="value-none">deleted</span>
    ) : (
      <Value value={record[name] ?? null} />
    )
  return (
    <CellTable
      label={`Values of ${nameOf(conflict)}`}
      heads={['Column', 'Common state', `${sides.ours} (ours)`, `${sides.theirs} (theirs)`]}
    >
      {names.map((name) => (
        <tr key={name}>
          <th scope="row">{name}</th>
          <td className="muted">{show(base, name)}</td>
          <td>{show(ours, name)}</td>
          <td>{show(theirs, name)}</td>
        </tr>
      ))}
    </CellTable>
  )
}
