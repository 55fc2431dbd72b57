import { useVirtualizer } from '@tanstack/react-virtual'
import { type ReactNode, useId, useMemo, useRef, useState } from 'react'

export interface Choice {
  readonly id: string
  /** The text that is searched. */
  readonly text: string
  readonly show?: ReactNode
  readonly hint?: ReactNode
}

const ROW_HEIGHT = 32

/**
 * A text field above a list of choices, of which it keeps those that contain every typed word. Arrows
 * move, Enter chooses. The list is virtual, so ten thousand choices are no problem.
 */
export function ChoiceList<Item extends Choice>({
  label,
  placeholder,
  choices,
  onChoose,
  empty = 'Nothing found',
  create,
}: {
  label: string
  placeholder: string
  choices: readonly Item[]
  onChoose: (choice: Item) => void
  empty?: ReactNode
  /** Offers to make what was typed and not found. */
  create?: { label: (typed: string) => string; onCreate: (typed: string) => void }
}) {
  const [typed, setTyped] = useState('')
  const [active, setActive] = useState(0)
  const scroller = useRef<HTMLDivElement>(null)
  const id = useId()
  const found = useMemo(() => search(choices, typed), [choices, typed])
  const rows = useVirtualizer({
    count: found.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 8,
    initialRect: { width: 320, height: 320 },
  })
  const move = (to: number) => {
    const next = Math.max(0, Math.min(found.length - 1, to))
    setActive(next)
    rows.scrollToIndex(next)
  }
  const current = found[active]
  return (
    <div className="choices">
      <input
        // biome-ignore lint/a11y/noAutofocus: the list opens on demand, and typing is what it is for.
        autoFocus
        role="combobox"
        aria-label={label}
        aria-expanded="true"
        aria-controls={`${id}-list`}
        aria-activedescendant={current === undefined ? undefined : `${id}-${active}`}
        placeholder={placeholder}
        value={typed}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => {
          setTyped(event.target.value)
          setActive(0)
          rows.scrollToOffset(0)
        }}
        onKeyDown={(event) => {
          if (event.key === 'ArrowDown') move(active + 1)
          else if (event.key === 'ArrowUp') move(active - 1)
          else if (event.key === 'PageDown') move(active + 8)
          else if (event.key === 'PageUp') move(active - 8)
          else if (event.key === 'Enter' && current !== undefined) onChoose(current)
          else if (event.key === 'Enter' && create && typed !== '') create.onCreate(typed)
          else return
          event.preventDefault()
        }}
      />
      <div className="choices-list" ref={scroller}>
        <div
          id={`${id}-list`}
          role="listbox"
          aria-label={label}
          tabIndex={-1}
          style={{ height: rows.getTotalSize(), position: 'relative' }}
        >
          {rows.getVirtualItems().map(({ index, start }) => {
            const choice = found[index]
            if (choice === undefined) return null
            return (
              // biome-ignore lint/a11y/useKeyWithClickEvents: the text field handles the keys.
              <div
                key={choice.id}
                id={`${id}-${index}`}
                role="option"
                tabIndex={-1}
                aria-selected={index === active}
                className="choice"
                style={{ transform: `translateY(${start}px)` }}
                onMouseMove={() => setActive(index)}
                onClick={() => onChoose(choice)}
              >
                <span className="grow clip">{choice.show ?? choice.text}</span>
                {choice.hint !== undefined && <span className="faint">{choice.hint}</span>}
              </div>
            )
          })}
        </div>
        {found.length === 0 &&
          (create && typed !== '' ? (
            <button type="button" className="choice static" onClick={() => create.onCreate(typed)}>
              {create.label(typed)}
            </button>
          ) : (
            <p className="faint pad">{empty}</p>
          ))}
      </div>
    </div>
  )
}

/** Keeps the choices that contain every word, and puts those that start with the text first. */
function search<Item extends Choice>(choices: readonly Item[], typed: string): readonly Item[] {
  const text = typed.trim().toLowerCase()
  if (text === '') return choices
  const words = text.split(/\s+/)
  const found = choices.filter((choice) => {
    const name = choice.text.toLowerCase()
    return words.every((word) => name.includes(word))
  })
  const rank = (choice: Choice) => {
    const name = choice.text.toLowerCase()
    return name === text ? 0 : name.startsWith(text) ? 1 : 2
  }
  return found.sort((left, right) => rank(left) - rank(right))
}
