import type { ColumnDefinition } from '@offshoot/client'
import { Popover } from 'radix-ui'
import { type FormEvent, type ReactNode, useEffect, useRef, useState } from 'react'
import { Button, IconButton } from '../../ui/button.js'
import { messageOf } from '../../ui/feedback.js'
import { Icon } from '../../ui/icon.js'
import {
  type Condition,
  type Conditions,
  conditionsOf,
  filterOf,
  inWords,
  needsValue,
  OPERATOR_WORDS,
  operatorsOf,
} from './conditions.js'
import type { AnyFilter, View } from './view.js'

/** Search, filter and sort of the rows. A change starts again at the first row. */
export function FilterBar({
  columns,
  view,
  onChange,
  children,
}: {
  columns: readonly ColumnDefinition[]
  view: View
  onChange: (view: Partial<View>) => void
  children: ReactNode
}) {
  const [isOpen, setOpen] = useState(false)
  return (
    <div className="row filter-bar">
      <SearchBox search={view.search} onSearch={(search) => onChange({ search })} />
      <Popover.Root open={isOpen} onOpenChange={setOpen}>
        <Popover.Trigger asChild>
          <Button icon="filter" aria-pressed={view.filter !== undefined}>
            Filter
          </Button>
        </Popover.Trigger>
        <Popover.Portal>
          <Popover.Content
            className="popover filter"
            align="start"
            sideOffset={4}
            collisionPadding={8}
            aria-label="Filter"
          >
            <FilterForm
              columns={columns}
              filter={view.filter}
              onApply={(filter) => {
                setOpen(false)
                onChange({ filter })
              }}
            />
          </Popover.Content>
        </Popover.Portal>
      </Popover.Root>
      {view.filter !== undefined && (
        <span className="filter-chip">
          <button type="button" className="clip" onClick={() => setOpen(true)}>
            {inWords(view.filter)}
          </button>
          <IconButton
            label="Remove the filter"
            icon="close"
            onClick={() => onChange({ filter: undefined })}
          />
        </span>
      )}
      {view.sort.map((term) => (
        <span key={term.column} className="filter-chip">
          <button
            type="button"
            className="clip"
            title="Turn the order around"
            onClick={() =>
              onChange({
                sort: view.sort.map((one) =>
                  one === term
                    ? { ...one, direction: one.direction === 'asc' ? 'desc' : 'asc' }
                    : one,
                ),
              })
            }
          >
            {term.direction === 'asc' ? '↑' : '↓'} {term.column}
          </button>
          <IconButton
            label={`Do not sort by ${term.column}`}
            icon="close"
            onClick={() => onChange({ sort: view.sort.filter((one) => one !== term) })}
          />
        </span>
      ))}
      {view.search !== '' && view.sort.length > 0 && (
        <span className="faint">A search is sorted by relevance</span>
      )}
      <span className="grow" />
      {children}
    </div>
  )
}

function SearchBox({ search, onSearch }: { search: string; onSearch: (text: string) => void }) {
  const [text, setText] = useState(search)
  useEffect(() => setText(search), [search])
  return (
    <form
      className="search-box"
      onSubmit={(event) => {
        event.preventDefault()
        onSearch(text.trim())
      }}
    >
      <Icon name="search" />
      <input
        type="search"
        aria-label="Full-text search"
        placeholder="Full-text search"
        value={text}
        maxLength={2048}
        onChange={(event) => {
          setText(event.target.value)
          if (event.target.value === '' && search !== '') onSearch('')
        }}
      />
    </form>
  )
}

function FilterForm({
  columns,
  filter,
  onApply,
}: {
  columns: readonly ColumnDefinition[]
  filter: AnyFilter | undefined
  onApply: (filter: AnyFilter | undefined) => void
}) {
  const built = conditionsOf(filter)
  const [isText, setText] = useState(built === undefined)
  const [text, setJson] = useState(JSON.stringify(filter ?? {}, null, 2))
  const first = columns[1] ?? columns[0]
  const blank = (): Condition => ({
    column: first?.name ?? 'id',
    operator: first === undefined ? '$is' : (operatorsOf(first)[0] ?? '$exists'),
    text: '',
  })
  const [conditions, setConditions] = useState<Conditions>(
    built !== undefined && built.conditions.length > 0
      ? built
      : { match: 'all', conditions: [blank()] },
  )
  const [fault, setFault] = useState<string>()
  const submit = (event: FormEvent) => {
    event.preventDefault()
    try {
      const parsed = JSON.parse(text) as AnyFilter
      const next = isText ? parsed : filterOf(conditions, columns)
      onApply(next !== undefined && Object.keys(next).length > 0 ? next : undefined)
    } catch (error) {
      setFault(messageOf(error))
    }
  }
  const showText = () => {
    try {
      setJson(JSON.stringify(filterOf(conditions, columns) ?? {}, null, 2))
    } catch {
      // A condition that is not complete yet stays out of the text.
    }
    setText(true)
  }
  const set = (index: number, change: Partial<Condition>) =>
    setConditions({
      ...conditions,
      conditions: conditions.conditions.map((one, other) =>
        other === index ? { ...one, ...change } : one,
      ),
    })
  return (
    <form className="form pad" onSubmit={submit}>
      {isText ? (
        <label className="field">
          <span>Filter as JSON</span>
          <textarea
            className="mono"
            rows={8}
            value={text}
            spellCheck={false}
            onChange={(event) => {
              setJson(event.target.value)
              setFault(undefined)
            }}
          />
        </label>
      ) : (
        <>
          {conditions.conditions.map((condition, index) => (
            <ConditionRow
              // biome-ignore lint/suspicious/noArrayIndexKey: conditions have no identity.
              key={index}
              columns={columns}
              condition={condition}
              onChange={(change) => set(index, change)}
              onRemove={() =>
                setConditions({
                  ...conditions,
                  conditions: conditions.conditions.filter((_, other) => other !== index),
                })
              }
            />
          ))}
          <div className="row">
            <Button
              icon="plus"
              className="small"
              onClick={() =>
                setConditions({ ...conditions, conditions: [...conditions.conditions, blank()] })
              }
            >
              Condition
            </Button>
            {conditions.conditions.length > 1 && (
              <select
                aria-label="How conditions are combined"
                value={conditions.match}
                onChange={(event) =>
                  setConditions({ ...conditions, match: event.target.value as 'all' | 'any' })
                }
              >
                <option value="all">all must match</option>
                <option value="any">one must match</option>
              </select>
            )}
          </div>
        </>
      )}
      {fault !== undefined && (
        <p className="editor-wrong" role="alert">
          {fault}
        </p>
      )}
      <div className="row">
        <Button
          className="small"
          disabled={isText && conditionsOf(tryParse(text)) === undefined}
          onClick={() => {
            if (!isText) return showText()
            const parsed = conditionsOf(tryParse(text))
            if (parsed !== undefined) setConditions(parsed)
            setText(false)
          }}
        >
          {isText ? 'Build by hand' : 'As text'}
        </Button>
        <span className="grow" />
        {filter !== undefined && <Button onClick={() => onApply(undefined)}>Clear</Button>}
        <Button type="submit" kind="primary">
          Apply
        </Button>
      </div>
    </form>
  )
}

function ConditionRow({
  columns,
  condition,
  onChange,
  onRemove,
}: {
  columns: readonly ColumnDefinition[]
  condition: Condition
  onChange: (change: Partial<Condition>) => void
  onRemove: () => void
}) {
  const column = columns.find(({ name }) => name === condition.column)
  const operators = column === undefined ? [] : operatorsOf(column)
  const value = useRef<HTMLInputElement>(null)
  return (
    <div className="row condition">
      <select
        aria-label="Column"
        value={condition.column}
        onChange={(event) => {
          const next = columns.find(({ name }) => name === event.target.value)
          const fits = next !== undefined && operatorsOf(next).includes(condition.operator)
          onChange({
            column: event.target.value,
            ...(fits || next === undefined ? {} : { operator: operatorsOf(next)[0] ?? '$exists' }),
          })
        }}
      >
        {columns.map(({ name }) => (
          <option key={name}>{name}</option>
        ))}
      </select>
      <select
        aria-label="Comparison"
        value={condition.operator}
        onChange={(event) => {
          onChange({ operator: event.target.value })
          value.current?.focus()
        }}
      >
        {operators.map((operator) => (
          <option key={operator} value={operator}>
            {OPERATOR_WORDS[operator]}
          </option>
        ))}
      </select>
      {needsValue(condition.operator) && (
        <input
          ref={value}
          aria-label="Value"
          className="grow"
          value={condition.text}
          onChange={(event) => onChange({ text: event.target.value })}
        />
      )}
      <IconButton label="Remove the condition" icon="close" onClick={onRemove} />
    </div>
  )
}

function tryParse(text: string): AnyFilter | undefined {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value !== 'object' || value === null) return { $invalid: 1 } as unknown as AnyFilter
    return Object.keys(value).length === 0 ? undefined : (value as AnyFilter)
  } catch {
    return { $invalid: 1 } as unknown as AnyFilter
  }
}
