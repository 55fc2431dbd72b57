import { Dialog as Radix } from 'radix-ui'
import { type FormEvent, type ReactNode, useState } from 'react'
import { Button, IconButton } from './button.js'
import { ErrorNote } from './feedback.js'

/** A modal window. It is open while it is rendered. */
export function Dialog({
  title,
  description,
  onClose,
  wide = false,
  children,
}: {
  title: string
  description?: ReactNode
  onClose: () => void
  wide?: boolean
  children: ReactNode
}) {
  return (
    <Radix.Root open onOpenChange={(open) => !open && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="overlay" />
        <Radix.Content
          className={`dialog ${wide ? 'wide' : ''}`}
          {...(description === undefined ? { 'aria-describedby': undefined } : {})}
        >
          <header className="dialog-head">
            <Radix.Title>{title}</Radix.Title>
            <Radix.Close asChild>
              <IconButton label="Close" icon="close" />
            </Radix.Close>
          </header>
          {description !== undefined && (
            <Radix.Description asChild>
              <div className="muted">{description}</div>
            </Radix.Description>
          )}
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}

/**
 * A dialog with a form. `onSubmit` does the work; while it runs the button is busy, if it fails the error
 * is shown above the buttons, and if it succeeds the dialog closes.
 */
export function FormDialog({
  title,
  description,
  action,
  isDangerous = false,
  isDisabled = false,
  wide = false,
  onSubmit,
  onClose,
  children,
}: {
  title: string
  description?: ReactNode
  action: string
  isDangerous?: boolean
  isDisabled?: boolean
  wide?: boolean
  onSubmit: () => Promise<unknown>
  onClose: () => void
  children?: ReactNode
}) {
  const [error, setError] = useState<unknown>(null)
  const [isBusy, setBusy] = useState(false)
  const submit = async (event: FormEvent) => {
    event.preventDefault()
    if (isBusy || isDisabled) return
    setBusy(true)
    setError(null)
    try {
      await onSubmit()
      onClose()
    } catch (caught) {
      setError(caught)
    } finally {
      setBusy(false)
    }
  }
  return (
    <Dialog title={title} description={description} onClose={onClose} wide={wide}>
      <form className="form" onSubmit={(event) => void submit(event)}>
        {children}
        <ErrorNote error={error} />
        <div className="row end">
          <Button onClick={onClose}>Cancel</Button>
          <Button
            type="submit"
            kind={isDangerous ? 'danger' : 'primary'}
            isBusy={isBusy}
            disabled={isDisabled}
          >
            {action}
          </Button>
        </div>
      </form>
    </Dialog>
  )
}

/** Asks for the name of what is about to be deleted. */
export function ConfirmByName({
  title,
  name,
  description,
  action,
  onSubmit,
  onClose,
}: {
  title: string
  name: string
  description: ReactNode
  action: string
  onSubmit: () => Promise<unknown>
  onClose: () => void
}) {
  const [typed, setTyped] = useState('')
  return (
    <FormDialog
      title={title}
      description={description}
      action={action}
      isDangerous
      isDisabled={typed !== name}
      onSubmit={onSubmit}
      onClose={onClose}
    >
      <label className="field">
        <span>
          Type <code>{name}</code> to confirm
        </span>
        <input
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
          autoComplete="off"
        />
      </label>
    </FormDialog>
  )
}
