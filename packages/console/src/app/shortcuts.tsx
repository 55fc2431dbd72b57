import { useEffect, useRef } from 'react'
import { Dialog } from '../ui/dialog.js'
import { parseAddress } from './address.js'
import { goTo } from './navigate.js'
import { paths } from './paths.js'

/** Keys that work on every page. Pages add their own with `SHORTCUTS`. */
const SHORTCUTS: readonly {
  readonly keys: string
  readonly what: string
  readonly where: string
}[] = [
  { keys: 'Ctrl K', what: 'Search, or jump to a page, table or branch', where: 'Everywhere' },
  { keys: '?', what: 'Show the keyboard shortcuts', where: 'Everywhere' },
  { keys: 'g b', what: 'Go to the branches', where: 'Everywhere' },
  { keys: 'g d', what: 'Go to the difference', where: 'Everywhere' },
  { keys: 'g t', what: 'Go to the timeline', where: 'Everywhere' },
  { keys: 'g m', what: 'Go to merge and pull', where: 'Everywhere' },
  { keys: 'g s', what: 'Go to the schema', where: 'Everywhere' },
  { keys: 'g q', what: 'Go to SQL', where: 'Everywhere' },
  { keys: '↑ ↓ ← →', what: 'Move between branches', where: 'Branches' },
  { keys: 'Enter', what: 'Open the actions of the branch', where: 'Branches' },
  { keys: 'o', what: 'Take ours for the chosen conflict', where: 'Merge' },
  { keys: 't', what: 'Take theirs for the chosen conflict', where: 'Merge' },
  { keys: 'j / k', what: 'Next or previous conflict', where: 'Merge' },
  { keys: '↑ ↓ ← →', what: 'Move between cells; with Shift, select a range', where: 'Data' },
  { keys: 'Enter or type', what: 'Edit the cell', where: 'Data' },
  { keys: 'Esc', what: 'Leave the cell without changing it', where: 'Data' },
  { keys: 'Ctrl C, Ctrl V', what: 'Copy and paste ranges', where: 'Data' },
  { keys: 'Ctrl Z', what: 'Undo a change that is not saved yet', where: 'Data' },
  { keys: 'Ctrl S', what: 'Save all changes as one transaction', where: 'Data' },
  { keys: 'Ctrl Enter', what: 'Run the statements', where: 'SQL' },
]

/** How long the second key of a sequence may take. */
const SEQUENCE_MS = 1500

export function useShortcuts(actions: { onPalette: () => void; onHelp: () => void }): void {
  const last = useRef({ key: '', at: 0 })
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault()
        actions.onPalette()
        return
      }
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return
      if (event.key === '?') actions.onHelp()
      const isSecond = last.current.key === 'g' && event.timeStamp - last.current.at < SEQUENCE_MS
      if (isSecond) jump(event.key)
      last.current = { key: event.key, at: event.timeStamp }
    }
    window.addEventListener('keydown', listen)
    return () => window.removeEventListener('keydown', listen)
  })
}

function jump(key: string): void {
  const { workspace, database, branch = 'main' } = parseAddress(location.pathname)
  if (workspace === undefined || database === undefined) return
  const place = { workspace, database, branch }
  if (key === 'b') goTo(paths.branches(place))
  else if (key === 'd') goTo(paths.diff(place))
  else if (key === 't') goTo(paths.timeline(place))
  else if (key === 'm') goTo(paths.merge(place))
  else if (key === 's') goTo(paths.schema(place))
  else if (key === 'q') goTo(paths.sql(place))
}

/** Returns whether keys go into a field, a grid or a dialog. */
export function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    target.closest(
      'input, textarea, select, [contenteditable=true], [role=grid], [role=dialog], [role=menu]',
    ) !== null
  )
}

export function Shortcuts({ onClose }: { onClose: () => void }) {
  const places = [...new Set(SHORTCUTS.map(({ where }) => where))]
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose} wide>
      <div className="shortcut-columns">
        {places.map((place) => (
          <section key={place}>
            <h3>{place}</h3>
            <dl className="shortcuts">
              {SHORTCUTS.filter(({ where }) => where === place).map(({ keys, what }) => (
                <div key={what}>
                  <dt>
                    <kbd>{keys}</kbd>
                  </dt>
                  <dd>{what}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  )
}
