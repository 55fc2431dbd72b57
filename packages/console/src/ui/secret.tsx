import { Button } from './button.js'
import { Dialog } from './dialog.js'
import { notify } from './toasts.js'

export interface Secret {
  /** Names the secret, if several are shown. */
  readonly label?: string
  readonly text: string
}

/** Shows secrets that the service shows only once. */
export function SecretsOnce({
  title,
  children,
  secrets,
  onClose,
}: {
  title: string
  children: React.ReactNode
  secrets: readonly Secret[]
  onClose: () => void
}) {
  const copy = async (text: string) => {
    await navigator.clipboard.writeText(text)
    notify('Copied')
  }
  return (
    <Dialog title={title} description={children} onClose={onClose}>
      {secrets.map(({ label, text }) => (
        <div key={text}>
          {label !== undefined && <h3>{label}</h3>}
          <div className="note">
            <code className="grow secret">{text}</code>
            {/* Without TLS, browsers give pages no clipboard. */}
            {navigator.clipboard !== undefined && (
              <Button
                icon="copy"
                {...(label === undefined ? {} : { 'aria-label': `Copy: ${label}` })}
                onClick={() => void copy(text)}
              >
                Copy
              </Button>
            )}
          </div>
        </div>
      ))}
      <div className="row end">
        <Button kind="primary" onClick={onClose}>
          I have stored {secrets.length === 1 ? 'it' : 'them'}
        </Button>
      </div>
    </Dialog>
  )
}
