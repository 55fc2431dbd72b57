import { usePlace } from '../../api/place.js'
import { useSession } from '../../api/session.js'
import { Button } from '../../ui/button.js'
import { notify, notifyError } from '../../ui/toasts.js'

/** The address of the branch for clients of PostgreSQL, if the service listens for them. */
export function PostgresAddress() {
  const { workspace, database, branch } = usePlace()
  const { postgresPort } = useSession()
  if (postgresPort === null) return null
  const part = encodeURIComponent
  const address = `postgresql://${part(workspace)}:API_KEY@${location.hostname}:${postgresPort}/${part(database)}:${part(branch)}`
  return (
    <section className="card" aria-label="PostgreSQL address">
      <header className="card-head">
        <h2 className="grow">Connect with a client of PostgreSQL</h2>
        {/* Without TLS, browsers give pages no clipboard. */}
        {navigator.clipboard !== undefined && (
          <Button
            className="small"
            icon="copy"
            aria-label="Copy the PostgreSQL address"
            onClick={() =>
              void navigator.clipboard.writeText(address).then(() => notify('Copied'), notifyError)
            }
          >
            Copy
          </Button>
        )}
      </header>
      <div className="card-body">
        <code>{address}</code>
        <p className="faint">Replace API_KEY with an API key that may use this branch.</p>
      </div>
    </section>
  )
}
