import { Popover } from 'radix-ui'
import { type KeyboardEvent, type ReactNode, useRef, useState } from 'react'
import { Button, IconButton } from '../../ui/button.js'
import type { Move } from '../../ui/grid/types.js'
import { saveBlob } from '../../ui/save-blob.js'
import type { EditorProps } from './editor-props.js'
import { FileEditor } from './file-editor.js'
import { LinkEditor } from './link-editor.js'
import { isNumeric, longText, parseText, type Row } from './values.js'

/** The editor that fits the type of a column. `row` is undefined for a record that is not saved yet. */
export function CellEditor({
  row,
  onStored,
  ...props
}: EditorProps & {
  readonly row: Row | undefined
  /** Called when a file was stored, which happens at once. */
  readonly onStored: () => void
}) {
  switch (props.column.type) {
    case 'bool':
      return <ChoiceEditor {...props} choices={['true', 'false']} />
    case 'enum':
      return <ChoiceEditor {...props} choices={props.column.enum?.values ?? []} />
    case 'text':
    case 'json':
    case 'object':
    case 'vector':
      return <LongEditor {...props} />
    case 'datetime':
      return <TimeEditor {...props} />
    case 'multiple':
      return <ListEditor {...props} />
    case 'link':
      return (
        <EditorPopover label={`Choose ${props.column.name}`} onEnd={props.onEnd}>
          <LinkEditor {...props} />
        </EditorPopover>
      )
    case 'file':
    case 'file[]':
      return (
        <EditorPopover label={`Files of ${props.column.name}`} onEnd={props.onEnd}>
          <FileEditor {...props} row={row} onStored={onStored} />
        </EditorPopover>
      )
    default:
      return <ShortEditor {...props} />
  }
}

/** A small window below the cell. */
function EditorPopover({
  label,
  onEnd,
  children,
}: {
  label: string
  onEnd: (move: Move) => void
  children: ReactNode
}) {
  return (
    <Popover.Root open onOpenChange={(isOpen) => !isOpen && onEnd('stay')}>
      <Popover.Anchor asChild>
        <span className="editor-anchor" />
      </Popover.Anchor>
      <Popover.Portal>
        <Popover.Content
          className="popover editor"
          align="start"
          sideOffset={2}
          collisionPadding={8}
          aria-label={label}
          // The grid takes the focus back itself.
          onCloseAutoFocus={(event) => event.preventDefault()}
        >
          {children}
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  )
}

const MOVES: Readonly<Record<string, (isShift: boolean) => Move>> = {
  Enter: (isShift) => (isShift ? 'up' : 'down'),
  Tab: (isShift) => (isShift ? 'left' : 'right'),
}

/** Types that browsers have an input for, with a calendar or a clock. It cannot begin with a typed letter. */
const INPUT_TYPES: Partial<Record<EditorProps['column']['type'], string>> = {
  date: 'date',
  time: 'time',
}

/** Browsers show no time with more than three digits after the second. */
const FINE_TIME = /\.\d{4}/

/** Text in the cell itself: text, numbers, e-mail addresses, days. */
function ShortEditor({ column, value, typed, onChange, onEnd }: EditorProps) {
  const present = longText(column, value)
  const inputType = FINE_TIME.test(present) ? undefined : INPUT_TYPES[column.type]
  const [text, setText] = useState(inputType === undefined ? (typed ?? present) : present)
  const isLeft = useRef(false)
  const parsed = parseText({ ...column, notNull: false }, text)
  const fault = 'fault' in parsed ? parsed.fault : undefined
  const commit = (move: Move): boolean => {
    if ('fault' in parsed) return false
    // Leaving moves the focus, which must not commit again.
    isLeft.current = true
    onChange(parsed.value)
    onEnd(move)
    return true
  }
  return (
    <span className="editor-inline">
      <input
        // biome-ignore lint/a11y/noAutofocus: the user has just started to edit this cell.
        autoFocus
        aria-label={column.name}
        aria-invalid={fault !== undefined}
        type={inputType ?? 'text'}
        {...(inputType === 'time' ? { step: 1 } : {})}
        className={isNumeric(column) ? 'number' : ''}
        dir="auto"
        value={text}
        spellCheck={false}
        onFocus={(event) =>
          typed === undefined && inputType === undefined && event.currentTarget.select()
        }
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.nativeEvent.isComposing) return
          const move = MOVES[event.key]
          if (event.key === 'Escape') {
            isLeft.current = true
            onEnd('stay')
          } else if (move !== undefined) commit(move(event.shiftKey))
          else return
          event.preventDefault()
          event.stopPropagation()
        }}
        onBlur={() => !isLeft.current && !commit('stay') && onEnd('stay')}
      />
      {fault !== undefined && (
        <span className="editor-fault" role="alert">
          {fault}
        </span>
      )}
    </span>
  )
}

/** Browsers take seconds to lay out longer texts in a text field. */
const EDITED_LENGTH_MAX = 50_000
const EXCERPT_LENGTH = 2000

/** Long text, JSON and vectors. A very long value is shown in part first. */
function LongEditor(props: EditorProps) {
  const { column, value, typed, onEnd } = props
  const [isOpen, setOpen] = useState(false)
  const text = longText(column, value)
  if (isOpen || typed !== undefined || text.length <= EDITED_LENGTH_MAX) {
    return <TextEditor {...props} />
  }
  return (
    <EditorPopover label={`Edit ${column.name}`} onEnd={onEnd}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it is scrolled with the keyboard. */}
      <pre className="excerpt" dir="auto" tabIndex={0}>
        {text.slice(0, EXCERPT_LENGTH)}…
      </pre>
      <div className="row editor-foot">
        <span className="grow faint">{text.length.toLocaleString()} characters</span>
        <Button className="small" onClick={() => saveBlob(new Blob([text]), `${column.name}.txt`)}>
          Download
        </Button>
        <Button className="small" onClick={() => setOpen(true)}>
          Edit all of it
        </Button>
      </div>
    </EditorPopover>
  )
}

/** A text field below the cell. Enter saves; Shift and Enter begins a new line. */
function TextEditor({ column, value, typed, onChange, onEnd }: EditorProps) {
  const isJson = column.type === 'json' || column.type === 'object'
  const present =
    isJson && value !== null && value !== undefined
      ? JSON.stringify(value, null, 2)
      : longText(column, value)
  const [text, setText] = useState(typed ?? present)
  const parsed = parseText({ ...column, notNull: false }, text)
  const commit = (move: Move) => {
    if ('fault' in parsed) return
    if (text !== present) onChange(parsed.value)
    onEnd(move)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return
    const isCommit = event.key === 'Enter' && !event.shiftKey
    if (isCommit && (column.type === 'text' || event.ctrlKey || event.metaKey)) commit('down')
    else if (event.key === 'Tab') commit(event.shiftKey ? 'left' : 'right')
    else return
    event.preventDefault()
  }
  const length = column.type === 'text' ? `${text.length.toLocaleString()} characters` : ''
  return (
    <EditorPopover label={`Edit ${column.name}`} onEnd={onEnd}>
      <textarea
        // biome-ignore lint/a11y/noAutofocus: the user has just started to edit this cell.
        autoFocus
        aria-label={column.name}
        aria-invalid={'fault' in parsed}
        className={isJson || column.type === 'vector' ? 'mono' : ''}
        dir="auto"
        rows={isJson ? 10 : 6}
        value={text}
        spellCheck={column.type === 'text'}
        onFocus={(event) => {
          const end = event.currentTarget.value.length
          event.currentTarget.setSelectionRange(typed === undefined ? 0 : end, end)
        }}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      <EditorFoot
        fault={'fault' in parsed ? parsed.fault : undefined}
        hint={column.type === 'text' ? `${length} · Shift Enter for a new line` : 'Ctrl Enter'}
        onDone={() => commit('stay')}
        onEmpty={() => {
          onChange(null)
          onEnd('stay')
        }}
      />
    </EditorPopover>
  )
}

function EditorFoot({
  fault,
  hint,
  onDone,
  onEmpty,
}: {
  fault: string | undefined
  hint: string
  onDone: () => void
  onEmpty: () => void
}) {
  return (
    <div className="row editor-foot">
      <span className={`grow clip ${fault === undefined ? 'faint' : 'editor-wrong'}`} role="status">
        {fault ?? hint}
      </span>
      <Button className="small" onClick={onEmpty}>
        Empty
      </Button>
      <Button className="small" kind="primary" disabled={fault !== undefined} onClick={onDone}>
        Done
      </Button>
    </div>
  )
}

/** One of a few values. */
function ChoiceEditor({
  column,
  value,
  typed,
  choices,
  onChange,
  onEnd,
}: EditorProps & { readonly choices: readonly string[] }) {
  const typedValue = typed === undefined ? undefined : parseText(column, typed)
  const start = typedValue !== undefined && 'value' in typedValue ? typedValue.value : value
  const [chosen, setChosen] = useState(start === null || start === undefined ? '' : String(start))
  const isLeft = useRef(false)
  const commit = (text: string, move: Move) => {
    if (isLeft.current) return
    isLeft.current = true
    onChange(text === '' ? null : column.type === 'bool' ? text === 'true' : text)
    onEnd(move)
  }
  return (
    <span className="editor-inline">
      <select
        // biome-ignore lint/a11y/noAutofocus: the user has just started to edit this cell.
        autoFocus
        aria-label={column.name}
        value={chosen}
        onChange={(event) => setChosen(event.target.value)}
        onBlur={() => commit(chosen, 'stay')}
        onKeyDown={(event) => {
          const move = MOVES[event.key]
          if (event.key === 'Escape') {
            isLeft.current = true
            onEnd('stay')
          } else if (move !== undefined) commit(chosen, move(event.shiftKey))
          else return
          event.preventDefault()
          event.stopPropagation()
        }}
      >
        <option value="">empty</option>
        {choices.map((choice) => (
          <option key={choice}>{choice}</option>
        ))}
      </select>
    </span>
  )
}

/** The offset of the browser's zone at a time, as `+02:00`. */
function offsetAt(time: Date): string {
  const minutes = -time.getTimezoneOffset()
  const part = (number: number) => String(number).padStart(2, '0')
  const size = Math.abs(minutes)
  return `${minutes < 0 ? '-' : '+'}${part(Math.floor(size / 60))}:${part(size % 60)}`
}

/** The date and time of a moment as a clock of the zone shows it. */
function clockOf(time: string, zone: string): string {
  const moment = new Date(time)
  if (Number.isNaN(moment.getTime())) return ''
  const [hours = 0, minutes = 0] = (zone === 'Z' ? '00:00' : zone.slice(1)).split(':').map(Number)
  const shift = (hours * 60 + minutes) * (zone.startsWith('-') ? -1 : 1) * 60_000
  return new Date(moment.getTime() + shift).toISOString().slice(0, 19)
}

/** A time, with the zone that it is written in. The service stores the moment. */
function TimeEditor({ column, value, typed, onChange, onEnd }: EditorProps) {
  const present = longText(column, value)
  const [text, setText] = useState(typed ?? present)
  const [zone, setZone] = useState('Z')
  const parsed = parseText({ ...column, notNull: false }, text)
  const local = offsetAt(new Date(present === '' ? Date.now() : present))
  const commit = (move: Move) => {
    if ('fault' in parsed) return
    if (text !== present) onChange(parsed.value)
    onEnd(move)
  }
  const moment = 'value' in parsed && parsed.value !== null ? String(parsed.value) : ''
  return (
    <EditorPopover label={`Edit ${column.name}`} onEnd={onEnd}>
      <div className="form pad">
        <label className="field">
          <span>Time, as text with its zone</span>
          <input
            // biome-ignore lint/a11y/noAutofocus: the user has just started to edit this cell.
            autoFocus
            className="mono"
            value={text}
            placeholder="2026-11-30T08:15:00Z"
            spellCheck={false}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={(event) => {
              const move = MOVES[event.key]
              if (move === undefined) return
              event.preventDefault()
              commit(move(event.shiftKey))
            }}
          />
        </label>
        <div className="row">
          <label className="field grow">
            <span>Calendar</span>
            <input
              type="datetime-local"
              step={1}
              value={moment === '' ? '' : clockOf(moment, zone)}
              onChange={(event) => {
                const clock = event.target.value
                if (clock !== '') setText(`${clock}${clock.length === 16 ? ':00' : ''}${zone}`)
              }}
            />
          </label>
          <label className="field">
            <span>Zone</span>
            <select
              value={zone}
              onChange={(event) => {
                const next = event.target.value
                setZone(next)
                if (moment !== '') setText(`${clockOf(moment, next)}${next}`)
              }}
            >
              <option value="Z">UTC</option>
              {local !== '+00:00' && <option value={local}>here ({local})</option>}
            </select>
          </label>
          <Button onClick={() => setText(new Date().toISOString())}>Now</Button>
        </div>
      </div>
      <EditorFoot
        fault={'fault' in parsed ? parsed.fault : undefined}
        hint={moment === '' ? 'no value' : new Date(moment).toLocaleString()}
        onDone={() => commit('stay')}
        onEmpty={() => {
          onChange(null)
          onEnd('stay')
        }}
      />
    </EditorPopover>
  )
}

/** A list of texts. Enter adds what was typed. */
function ListEditor({ column, value, typed, onChange, onEnd }: EditorProps) {
  const [items, setItems] = useState<readonly string[]>((value as readonly string[] | null) ?? [])
  const [text, setText] = useState(typed ?? '')
  const commit = (move: Move) => {
    onChange(text === '' ? items : [...items, text])
    onEnd(move)
  }
  return (
    <EditorPopover label={`Edit ${column.name}`} onEnd={onEnd}>
      <div className="pad chips">
        {items.map((item, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the same text may be there twice.
          <span key={index} className="chip">
            <bdi>{item}</bdi>
            <IconButton
              label={`Remove ${item}`}
              icon="close"
              onClick={() => setItems(items.filter((_, other) => other !== index))}
            />
          </span>
        ))}
        <input
          // biome-ignore lint/a11y/noAutofocus: the user has just started to edit this cell.
          autoFocus
          aria-label={`Add to ${column.name}`}
          placeholder="Type, then Enter"
          value={text}
          dir="auto"
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.nativeEvent.isComposing) return
            if (event.key === 'Enter' && text !== '') {
              setItems([...items, text])
              setText('')
            } else if (event.key === 'Enter') commit('down')
            else if (event.key === 'Tab') commit(event.shiftKey ? 'left' : 'right')
            else if (event.key === 'Backspace' && text === '') setItems(items.slice(0, -1))
            else return
            event.preventDefault()
          }}
        />
      </div>
      <EditorFoot
        fault={undefined}
        hint={`${items.length} ${items.length === 1 ? 'item' : 'items'}`}
        onDone={() => commit('stay')}
        onEmpty={() => {
          onChange(null)
          onEnd('stay')
        }}
      />
    </EditorPopover>
  )
}
