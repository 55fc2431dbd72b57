import type { ColumnDefinition } from '@offshoot/client'
import { Popover } from 'radix-ui'
import { Button, IconButton } from '../../ui/button.js'
import type { Preferences } from './preferences.js'

/** Chooses which columns are shown, and in which order. */
export function ColumnsMenu({
  columns,
  hidden,
  onChange,
}: {
  columns: readonly ColumnDefinition[]
  hidden: readonly string[]
  onChange: (change: Partial<Preferences>) => void
}) {
  const names = columns.map(({ name }) => name)
  const shown = names.filter((name) => !hidden.includes(name)).length
  const move = (index: number, by: -1 | 1) => {
    const order = [...names]
    const [name] = order.splice(index, 1)
    if (name === undefined) return
    order.splice(index + by, 0, name)
    onChange({ order })
  }
  return (
    <Popover.Root>
      <Popover.Trigger asChild>
        <Button icon="columns">
          Columns{' '}
          {shown < names.length && (
            <span className="faint">
              {shown}/{names.length}
            </span>
          )}
        </Button>
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content className="popover" align="end" sideOffset={4} aria-label="Columns">
          <ul className="column-list">
            {columns.map(({ name, type }, index) => (
              <li key={name} className="row">
                <label className="check grow">
                  <input
                    type="checkbox"
                    checked={!hidden.includes(name)}
                    onChange={(event) =>
                      onChange({
                        hidden: event.target.checked
                          ? hidden.filter((one) => one !== name)
                          : [...hidden, name],
                      })
                    }
                  />
                  <span className="clip">
                    {name} <span className="faint">{type}</span>
                  </span>
                </label>
                <IconButton
                  label={`Move ${name} to the left`}
                  icon="left"
                  disabled={index === 0}
                  onClick={() => move(index, -1)}
                />
                <IconButton
                  label={`Move ${name} to the right`}
                  icon="right"
                  disabled={index === names.length - 1}
                  onClick={() => move(index, 1)}
                />
              </li>
            ))}
          </ul>
          <div className="popover-foot row">
            <Button className="small" onClick={() => onChange({ hidden: [] })}>
              Show all
            </Button>
            <Button className="small" onClick={() => onChange({ order: [], widths: {} })}>
              Reset order and widths
            </Button>
          </div>
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  )
}
