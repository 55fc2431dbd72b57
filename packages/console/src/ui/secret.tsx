import { Button } from './button.js'
import { Dialog } from './dialog.js'
import { notify } from './toasts.js'

/** Shows a secret that the service shows only once. */
export function SecretOnce({
  title,
  children,
  secret,
  onClose,
}: {
  title: string
  children: React.ReactNode
  secret: string
  onClose: () => void
}) {
  const copy = async () => {
    await navigator.clipboard.writeText(secret)
    notify('Copied')
  }
  return (
    <Dialog title={title} description={children} onClose={onClose}>
      <div className="note">
        <code className="grow secret">{secret}</code>
        {/* Without TLS, browsers give pages no clipboard. */}
        {navigator.clipboard !== undefined && (
          <Button icon="copy" onClick={() => void copy()}>
            Copy
          </Button>
        )}
      </div>
      <div className="row end">
        <Button kind="primary" onClick={onClose}>
          I have stored it
        </Button>
      </div>
    </Dialog>
  )
}
