import { useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { keys } from '../../api/answers.js'
import { account } from '../../api/clients.js'
import { usePlace } from '../../api/place.js'
import { useDatabases } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { goTo } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { ConfirmByName } from '../../ui/dialog.js'
import { ErrorNote } from '../../ui/feedback.js'
import { Field, TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { notify } from '../../ui/toasts.js'

const COLOR_DEFAULT = '#2a8a4a'

/** Name, colour and deletion of a database. */
export function DatabaseSettings() {
  const { workspace, database } = usePlace()
  const info = useDatabases(workspace).data?.find(({ name }) => name === database)
  const { hasWholeWorkspace } = useRights()
  const queries = useQueryClient()
  const [newName, setNewName] = useState(database)
  const [color, setColor] = useState(info?.ui?.color ?? COLOR_DEFAULT)
  const [error, setError] = useState<unknown>(null)
  const [isDeleting, setDeleting] = useState(false)
  const refresh = () => queries.invalidateQueries({ queryKey: keys.databases(workspace) })
  const save = async (event: FormEvent) => {
    event.preventDefault()
    setError(null)
    try {
      const space = account.workspace(workspace)
      if (color !== (info?.ui?.color ?? COLOR_DEFAULT))
        await space.setDatabaseColor(database, color)
      if (newName !== database) await space.renameDatabase(database, newName)
      await refresh()
      notify('Saved')
      goTo(paths.databaseSettings({ workspace, database: newName }), { replace: true })
    } catch (caught) {
      setError(caught)
    }
  }
  return (
    <Page title="Database settings" subtitle={database}>
      <form className="card form pad" onSubmit={(event) => void save(event)}>
        <TextField
          label="Name"
          hint="Clients that use the old name get “not found” after a rename."
          value={newName}
          disabled={!hasWholeWorkspace}
          onChange={setNewName}
        />
        <Field label="Colour">
          <input
            type="color"
            value={/^#[0-9a-f]{6}$/i.test(color) ? color : COLOR_DEFAULT}
            disabled={!hasWholeWorkspace}
            onChange={(event) => setColor(event.target.value)}
          />
        </Field>
        <ErrorNote error={error} />
        {hasWholeWorkspace && (
          <div className="row">
            <Button type="submit" kind="primary">
              Save
            </Button>
          </div>
        )}
      </form>
      {hasWholeWorkspace && (
        <section className="card danger-zone pad row between">
          <div>
            <h2>Delete this database</h2>
            <p className="muted">All branches, rows and files go with it. There is no undo.</p>
          </div>
          <Button kind="danger" icon="trash" onClick={() => setDeleting(true)}>
            Delete database
          </Button>
        </section>
      )}
      {isDeleting && (
        <ConfirmByName
          title="Delete the database"
          name={database}
          description="All branches, rows and files of the database are deleted. There is no undo."
          action="Delete database"
          onClose={() => setDeleting(false)}
          onSubmit={async () => {
            await account.deleteDatabase(workspace, database)
            await refresh()
            notify(`Database ${database} is deleted`)
            goTo(paths.workspace(workspace), { replace: true })
          }}
        />
      )}
    </Page>
  )
}
