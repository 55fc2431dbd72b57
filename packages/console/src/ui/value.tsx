import { useState } from 'react'

/** Longer texts are cut, with a button that shows the rest. */
const SHOWN_LENGTH_MAX = 240

/** Any value of a column as text. It is never read as HTML. */
export function Value({ value }: { value: unknown }) {
  const [isWhole, setWhole] = useState(false)
  if (value === null) return <span className="value-none">null</span>
  if (value === undefined) return <span className="value-none">none</span>
  const text = textOf(value)
  if (text === '') return <span className="value-none">empty</span>
  if (text.length <= SHOWN_LENGTH_MAX || isWhole) {
    return (
      <span className="value" dir="auto">
        {text}
      </span>
    )
  }
  return (
    <span className="value" dir="auto">
      {text.slice(0, SHOWN_LENGTH_MAX)}…{' '}
      <button type="button" className="link" onClick={() => setWhole(true)}>
        show all {text.length.toLocaleString('en')} characters
      </button>
    </span>
  )
}

/** Returns a value of a column as text: texts as they are, everything else as JSON. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
