import { Popover } from 'radix-ui'
import { type ReactNode, useState } from 'react'
import { type Choice, ChoiceList } from './choice-list.js'
import { Icon } from './icon.js'

/** A button that shows what is chosen, and opens a list to choose from. */
export function Switcher<Item extends Choice>({
  label,
  current,
  choices,
  onChoose,
  footer,
  className = '',
  onOpen,
}: {
  label: string
  current: ReactNode
  choices: readonly Item[]
  onChoose: (choice: Item) => void
  footer?: ReactNode
  className?: string
  /** Called when the list opens, so that its choices can be read then. */
  onOpen?: () => void
}) {
  const [isOpen, setOpen] = useState(false)
  return (
    <Popover.Root
      open={isOpen}
      onOpenChange={(open) => {
        setOpen(open)
        if (open) onOpen?.()
      }}
    >
      <Popover.Trigger asChild>
        <button type="button" className={`button quiet switcher ${className}`} title={label}>
          <span className="sr-only">{label}: </span>
          <span className="clip">{current}</span>
          <Icon name="chevron" size={12} />
        </button>
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content className="popover" align="start" sideOffset={4} aria-label={label}>
          <ChoiceList
            label={label}
            placeholder="Search"
            choices={choices}
            onChoose={(choice) => {
              setOpen(false)
              onChoose(choice)
            }}
          />
          {footer}
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  )
}
