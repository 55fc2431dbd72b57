import type { AnySchema, Filter, TableDefinition } from '@offshoot/client'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { keys } from '../../api/answers.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useSchema } from '../../api/queries.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { ErrorNote, Loading } from '../../ui/feedback.js'
import { Icon } from '../../ui/icon.js'
import type { EditorProps } from './editor-props.js'
import { columnValue, longText, type Row, shortText } from './values.js'

const FOUND_MAX = 20

/** The column by which people know the records of a table. */
function labelColumn(table: TableDefinition | undefined) {
  const named = table?.columns.find(({ name }) => /^(name|title|label)$/i.test(name))
  return named ?? table?.columns.find(({ type }) => type === 'string' || type === 'email')
}

/** Finds the record to link to, by its id or its name, and shows the one that is marked. */
export function LinkEditor({ column, value, typed, onChange, onEnd }: EditorProps) {
  const target = column.link?.table ?? ''
  const table = useSchema().tables.find(({ name }) => name === target)
  const label = labelColumn(table)
  const branch = useBranch()
  const place = usePlace()
  const [text, setText] = useState(typed ?? '')
  const [active, setActive] = useState(0)
  const found = useQuery({
    queryKey: [...keys.branch(place), 'link', target, text],
    queryFn: async ({ signal }) => {
      const conditions: object[] = [{ id: { $startsWith: text } }]
      if (label !== undefined) conditions.push({ [label.name]: { $iContains: text } })
      const page = await branch
        .table(target)
        .query({
          ...(text === '' ? {} : { filter: { $any: conditions } as Filter<AnySchema, string> }),
          size: FOUND_MAX,
          signal,
        })
        .page()
      return page.records as readonly Row[]
    },
    placeholderData: keepPreviousData,
  })
  const present = longText(column, value)
  const records = found.data ?? []
  const marked = records[active]
  const choose = (id: string | null) => {
    onChange(id === null ? null : { id })
    onEnd('down')
  }
  return (
    <div className="link-editor">
      <div className="choices">
        <input
          // biome-ignore lint/a11y/noAutofocus: the user has just started to edit this cell.
          autoFocus
          role="combobox"
          aria-label={`Search ${target}`}
          aria-expanded="true"
          aria-controls="link-choices"
          aria-activedescendant={marked === undefined ? undefined : `link-${active}`}
          placeholder={`Search ${target} by id${label === undefined ? '' : ` or ${label.name}`}`}
          value={text}
          onChange={(event) => {
            setText(event.target.value)
            setActive(0)
          }}
          onKeyDown={(event) => {
            if (event.key === 'ArrowDown') setActive(Math.min(records.length - 1, active + 1))
            else if (event.key === 'ArrowUp') setActive(Math.max(0, active - 1))
            else if (event.key === 'Enter' && marked !== undefined) choose(marked.id)
            else return
            event.preventDefault()
          }}
        />
        <ErrorNote error={found.error} />
        {found.isPending && <Loading lines={3} />}
        <div className="choices-list" id="link-choices" role="listbox" aria-label={target}>
          {records.map((record, index) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the text field handles the keys.
            <div
              key={record.id}
              id={`link-${index}`}
              role="option"
              tabIndex={-1}
              aria-selected={index === active}
              className="choice static"
              onMouseMove={() => setActive(index)}
              onClick={() => choose(record.id)}
            >
              <span className="grow clip">
                {label === undefined
                  ? record.id
                  : shortText(label, columnValue(record, label.name))}
              </span>
              <code className="faint">{record.id}</code>
            </div>
          ))}
          {found.isSuccess && records.length === 0 && <p className="faint pad">Nothing found</p>}
        </div>
      </div>
      <Peek table={table} record={marked} present={present} />
      {present !== '' && (
        <div className="row editor-foot">
          <button type="button" className="button plain small" onClick={() => choose(null)}>
            Remove the link
          </button>
          <span className="grow" />
          <Link
            className="button plain small"
            href={href(
              `${paths.table(place, target)}?filter=${encodeURIComponent(JSON.stringify({ id: present }))}`,
            )}
          >
            <Icon name="link" /> Open
          </Link>
        </div>
      )}
    </div>
  )
}

/** The first columns of the marked record; without one, of the record that is linked now. */
function Peek({
  table,
  record,
  present,
}: {
  table: TableDefinition | undefined
  record: Row | undefined
  present: string
}) {
  const branch = useBranch()
  const place = usePlace()
  const name = table?.name ?? ''
  const linked = useQuery({
    queryKey: [...keys.branch(place), 'peek', name, present],
    queryFn: async ({ signal }) =>
      ((await branch.table(name).read(present, { signal })) as Row | undefined) ?? null,
    enabled: present !== '' && record === undefined && name !== '',
  })
  const shown = record ?? linked.data
  if (shown === undefined) return null
  if (shown === null) return <p className="faint pad">There is no record {present}.</p>
  return (
    <dl className="peek">
      {(table?.columns ?? []).slice(0, 8).map((column) => (
        <div key={column.name}>
          <dt className="faint clip">{column.name}</dt>
          <dd className="clip">
            <bdi>{shortText(column, shown[column.name]) || '–'}</bdi>
          </dd>
        </div>
      ))}
    </dl>
  )
}
