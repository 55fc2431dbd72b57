import { useState } from 'react'
import { Link, useSearch } from 'wouter'
import { usePlace } from '../../api/place.js'
import { useBranchAt } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Icon } from '../../ui/icon.js'
import { Page } from '../../ui/page.js'
import { AsOf, AsOfNote } from './as-of.js'
import './data.css'
import { ImportDialog } from './import-dialog.js'
import { PostgresAddress } from './postgres-address.js'

/** All tables of the branch. */
export function Tables() {
  const place = usePlace()
  const at = new URLSearchParams(useSearch()).get('at') ?? ''
  const canWrite = useRights().canWrite && at === ''
  const branch = useBranchAt(place, at)
  const details = branch.data
  const tables = details?.schema.tables ?? []
  const [isImporting, setImporting] = useState(false)
  const creation = (
    <>
      <Button icon="upload" onClick={() => setImporting(true)}>
        Import a CSV file
      </Button>
      <Link className="button primary" href={href(paths.schema(place))}>
        <Icon name="plus" /> Create a table
      </Link>
    </>
  )
  return (
    <Page
      title="Tables"
      subtitle={branch.isSuccess ? `${tables.length} on ${place.branch}` : 'Reading'}
      actions={
        <>
          <AsOf at={at} onChange={(next) => goTo(paths.branch(place, next || undefined))} />
          <Link className="button plain" href={href(paths.timeline(place))}>
            <Icon name="clock" /> Timeline
          </Link>
          {canWrite && details?.startedFrom !== undefined && (
            <Link className="button plain" href={href(paths.propose(place))}>
              <Icon name="merge" /> Propose a merge
            </Link>
          )}
          {canWrite && tables.length > 0 && creation}
        </>
      }
    >
      <AsOfNote at={at} path={paths.branch(place)} />
      <ErrorNote error={branch.error} onRetry={() => void branch.refetch()} />
      {branch.isPending && <Loading lines={6} />}
      {branch.isSuccess && tables.length === 0 && (
        <Empty
          icon="table"
          title={at === '' ? 'No tables yet' : 'The branch had no tables then'}
          actions={canWrite && creation}
        >
          A table has typed columns. Design it in the schema editor, or import a CSV file: its
          columns and their types are found by themselves.
        </Empty>
      )}
      <ul className="cards">
        {tables.map(({ name, columns }) => (
          <li key={name} className="card">
            <Link
              className="card-link"
              href={href(paths.table(place, name, { at: at || undefined }))}
            >
              <strong className="clip">{name}</strong>
              <span className="table-columns">
                {columns.slice(0, 8).map((column) => (
                  <Tag key={column.name} kind={column.type === 'link' ? 'info' : 'plain'}>
                    <span className="clip">{column.name}</span>
                  </Tag>
                ))}
                {columns.length > 8 && <Tag>{columns.length - 8} more</Tag>}
                {columns.length === 0 && <span className="faint">no columns</span>}
              </span>
            </Link>
          </li>
        ))}
      </ul>
      {at === '' && <PostgresAddress />}
      {isImporting && <ImportDialog onClose={() => setImporting(false)} />}
    </Page>
  )
}
