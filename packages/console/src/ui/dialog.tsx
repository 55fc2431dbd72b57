import { Dialog as Radix } from 'radix-ui'
import { type ReactNode, useRef, useState } from 'react'
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
          onOpenAutoFocus={focusFirstField}
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

/** A dialog was opened to fill in its fields; without any, its first button gets the focus. */
function focusFirstField(event: Event): void {
  const dialog = event.currentTarget as HTMLElement
  const field = dialog.querySelector<HTMLElement>(
    'input:enabled:not([type="checkbox"]), select:enabled, textarea:enabled',
  )
  if (field === null) return
  event.preventDefault()
  field.focus()
}

/**
 * A dialog with a form. `onSubmit` does the work; while it runs the button is busy, if it fails the error
 * is shown above the buttons, and if it succeeds the dialog closes. With `onAgain` there is a second button
 * that does the same work, and goes on with the next form instead.
 */
export function FormDialog({
  title,
  description,
  action,
  isDangerous = false,
  isDisabled = false,
  wide = false,
  onSubmit,
  onDone,
  onAgain,
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
  /** Called instead of `onClose` after the work. */
  onDone?: () => void
  onAgain?: () => void
  onClose: () => void
  children?: ReactNode
}) {
  const form = useRef<HTMLFormElement>(null)
  const [error, setError] = useState<unknown>(null)
  const [isBusy, setBusy] = useState(false)
  const submit = async (then: () => void) => {
    if (isBusy || isDisabled || form.current?.reportValidity() === false) return
    setBusy(true)
    setError(null)
    try {
      await onSubmit()
      then()
    } catch (caught) {
      setError(caught)
    } finally {
      setBusy(false)
    }
  }
  return (
    <Dialog title={title} description={description} onClose={onClose} wide={wide}>
      <form
        ref={form}
        className="form"
        onSubmit={(event) => {
          event.preventDefault()
          void submit(onDone ?? onClose)
        }}
      >
        {children}
        <ErrorNote error={error} />
        <div className="row end">
          <Button onClick={onClose}>{onAgain === undefined ? 'Cancel' : 'Close'}</Button>
          {onAgain !== undefined && (
            <Button disabled={isDisabled || isBusy} onClick={() => void submit(onAgain)}>
              {action} and next
            </Button>
          )}
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
