import { useState } from 'react'
import { Link } from 'wouter'
import { useBranchDetails, useBranches, useCanAudit, useDatabases } from '../api/queries.js'
import { ErrorNote } from '../ui/feedback.js'
import { Icon, type IconName } from '../ui/icon.js'
import { href } from './navigate.js'
import { paths } from './paths.js'
import { usePlaceOfAddress } from './use-address.js'

/** Above this number of tables, the list gets a filter. */
const FILTER_TABLES_MIN = 8

export function Sidebar({ isOpen }: { isOpen: boolean }) {
  const { workspace, database, branch } = usePlaceOfAddress()
  const canAudit = useCanAudit(workspace)
  return (
    <nav className={`side ${isOpen ? 'open' : ''}`} aria-label="Pages">
      {workspace === undefined ? (
        <Group>
          <Entry to={paths.home()} icon="home" label="Workspaces" />
        </Group>
      ) : database === undefined ? (
        <Group title="Workspace">
          <Entry to={paths.workspace(workspace)} icon="database" label="Databases" />
          <Entry to={paths.members(workspace)} icon="people" label="Members" />
          {canAudit && <Entry to={paths.audit(workspace)} icon="clock" label="Audit log" />}
          <Entry to={paths.workspaceSettings(workspace)} icon="settings" label="Settings" />
        </Group>
      ) : (
        <>
          <Group title="Database">
            <Entry to={paths.branches({ workspace, database })} icon="branch" label="Branches" />
            <Entry to={paths.proposals({ workspace, database })} icon="merge" label="Proposals" />
            <Entry to={paths.git({ workspace, database })} icon="link" label="Git and rules" />
            <Entry
              to={paths.databaseSettings({ workspace, database })}
              icon="settings"
              label="Settings"
            />
          </Group>
          {branch === undefined ? (
            <DefaultBranchTables workspace={workspace} database={database} />
          ) : (
            <BranchGroup place={{ workspace, database, branch }} />
          )}
        </>
      )}
      <span className="grow" />
      <Group>
        <Entry to={paths.keys()} icon="key" label="API keys" />
        <Entry to={paths.metrics()} icon="chart" label="Health and metrics" />
      </Group>
    </nav>
  )
}

interface BranchPlace {
  readonly workspace: string
  readonly database: string
  readonly branch: string
}

/** Pages of a database without a branch in the address show the tables of its default branch. */
function DefaultBranchTables({ workspace, database }: Omit<BranchPlace, 'branch'>) {
  const region = useDatabases(workspace).data?.find(({ name }) => name === database)?.region
  const branches = useBranches(region === undefined ? undefined : { workspace, database, region })
  const branch = branches.data?.find((one) => one.default)?.name ?? branches.data?.[0]?.name
  return branch === undefined ? null : <BranchGroup place={{ workspace, database, branch }} />
}

function BranchGroup({ place }: { place: BranchPlace }) {
  return (
    <>
      <Group title={place.branch}>
        <Entry to={paths.timeline(place)} icon="clock" label="Timeline" />
        <Entry to={paths.diff(place)} icon="diff" label="Difference" />
        <Entry to={paths.merge(place)} icon="merge" label="Merge and pull" />
        <Entry to={paths.schema(place)} icon="schema" label="Schema" />
        <Entry to={paths.sql(place)} icon="code" label="SQL" />
        <Entry to={paths.files(place)} icon="file" label="Files" />
      </Group>
      <TableList place={place} />
    </>
  )
}

function TableList({ place }: { place: BranchPlace }) {
  const region = useDatabases(place.workspace).data?.find(
    ({ name }) => name === place.database,
  )?.region
  if (region === undefined) return null
  return <TableListOf place={{ ...place, region }} />
}

function TableListOf({ place }: { place: BranchPlace & { region: string } }) {
  const [typed, setTyped] = useState('')
  const branch = useBranchDetails(place)
  const tables = branch.data?.schema.tables ?? []
  const shown = tables.filter(({ name }) => name.toLowerCase().includes(typed.toLowerCase()))
  return (
    <Group title="Tables">
      <ErrorNote error={branch.error} />
      {tables.length > FILTER_TABLES_MIN && (
        <input
          className="side-filter"
          aria-label="Filter tables"
          placeholder="Filter tables"
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
        />
      )}
      {shown.map(({ name }) => (
        <Entry key={name} to={paths.table(place, name)} icon="table" label={name} />
      ))}
      {branch.isSuccess && tables.length === 0 && (
        <Entry to={paths.schema(place)} icon="plus" label="Create a table" />
      )}
    </Group>
  )
}

function Group({ title, children }: { title?: string; children: React.ReactNode }) {
  return (
    <div className="side-group">
      {title !== undefined && <h2 className="side-title clip">{title}</h2>}
      <ul>{children}</ul>
    </div>
  )
}

function Entry({ to, icon, label }: { to: string; icon: IconName; label: string }) {
  const isHere = decodeURI(location.pathname) === decodeURI(`/console${to}`)
  return (
    <li>
      <Link
        className="side-link"
        href={href(to)}
        aria-current={isHere ? 'page' : undefined}
        title={label}
      >
        <Icon name={icon} />
        <span className="clip">{label}</span>
      </Link>
    </li>
  )
}
