import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { keys } from '../../api/answers.js'
import { account } from '../../api/clients.js'
import { useDatabases, useWorkspaces } from '../../api/queries.js'
import { useRights, useSession } from '../../api/session.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { usePlaceOfAddress } from '../../app/use-address.js'
import { SampleButton } from '../../sample/sample-button.js'
import { Button } from '../../ui/button.js'
import { colorOf } from '../../ui/color.js'
import { FormDialog } from '../../ui/dialog.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Field, TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { Ago } from '../../ui/time.js'

/** The databases of a workspace. */
export function Databases() {
  const { workspace = '' } = usePlaceOfAddress()
  const databases = useDatabases(workspace)
  const name = useWorkspaces().data?.find(({ id }) => id === workspace)?.name
  const { hasWholeWorkspace } = useRights()
  const [isCreating, setCreating] = useState(false)
  const isEmpty = databases.data?.length === 0
  const create = hasWholeWorkspace && (
    <Button kind={isEmpty ? 'plain' : 'primary'} icon="plus" onClick={() => setCreating(true)}>
      New database
    </Button>
  )
  return (
    <Page
      title="Databases"
      subtitle={name}
      actions={
        !isEmpty && (
          <>
            {hasWholeWorkspace && <SampleButton workspace={workspace} />}
            {create}
          </>
        )
      }
    >
      <ErrorNote error={databases.error} onRetry={() => void databases.refetch()} />
      {databases.isPending && <Loading />}
      {isEmpty && (
        <Empty
          icon="database"
          title="No database yet"
          actions={
            hasWholeWorkspace && (
              <>
                <SampleButton workspace={workspace} kind="primary" />
                {create}
              </>
            )
          }
        >
          The sample is a small shop with five branches: see what each of them changed, merge one,
          and settle its conflicts. It takes a few seconds, and you can delete it like any other
          database.
        </Empty>
      )}
      <ul className="cards">
        {databases.data?.map((database) => (
          <li key={database.name}>
            <Link
              className="card card-link"
              href={href(paths.branches({ workspace, database: database.name }))}
            >
              <span className="row">
                <span className="dot" style={{ background: colorOf(database.ui?.color) }} />
                <strong className="grow clip">{database.name}</strong>
                <Tag>{database.region}</Tag>
              </span>
              <span className="faint">
                Created <Ago time={database.createdAt} />
              </span>
            </Link>
          </li>
        ))}
      </ul>
      {isCreating && <CreateDatabase workspace={workspace} onClose={() => setCreating(false)} />}
    </Page>
  )
}

function CreateDatabase({ workspace, onClose }: { workspace: string; onClose: () => void }) {
  const { regions } = useSession()
  const [name, setName] = useState('')
  const [branchName, setBranchName] = useState('main')
  const [region, setRegion] = useState(regions[0]?.id ?? 'local')
  const queries = useQueryClient()
  return (
    <FormDialog
      title="New database"
      action="Create database"
      isDisabled={name === '' || branchName === ''}
      onClose={onClose}
      onSubmit={async () => {
        await account.createDatabase(workspace, name, { region, branchName })
        await queries.invalidateQueries({ queryKey: keys.databases(workspace) })
        goTo(paths.schema({ workspace, database: name, branch: branchName }))
      }}
    >
      <TextField label="Name" hint="Letters, digits, and _ - ~" value={name} onChange={setName} />
      <TextField label="First branch" value={branchName} onChange={setBranchName} />
      {regions.length > 1 && (
        <Field label="Region">
          <select value={region} onChange={(event) => setRegion(event.target.value)}>
            {regions.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        </Field>
      )}
    </FormDialog>
  )
}
