import { DropdownMenu } from 'radix-ui'
import type { ReactNode } from 'react'
import { Icon, type IconName } from './icon.js'

interface MenuItem {
  readonly label: string
  readonly icon?: IconName
  readonly isDangerous?: boolean
  /** Draws a line above the item. */
  readonly startsGroup?: boolean
  readonly onSelect: () => void
}

/** A menu that opens from a button. `false` items are left out, so that callers can write conditions. */
export function Menu({
  trigger,
  items,
  label,
}: {
  trigger: ReactNode
  items: readonly (MenuItem | false | undefined)[]
  label?: string
}) {
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content className="menu" align="end" sideOffset={4} aria-label={label}>
          {items
            .filter((item) => item !== false && item !== undefined)
            .map((item) => (
              <div key={item.label}>
                {item.startsGroup && <DropdownMenu.Separator className="menu-line" />}
                <DropdownMenu.Item
                  className={`menu-item ${item.isDangerous ? 'danger' : ''}`}
                  onSelect={item.onSelect}
                >
                  {item.icon && <Icon name={item.icon} />}
                  {item.label}
                </DropdownMenu.Item>
              </div>
            ))}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  )
}
