import { Link } from 'wouter'
import { usePlace } from '../../api/place.js'
import { useBranchDetails } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Icon } from '../../ui/icon.js'
import { Page } from '../../ui/page.js'
import './data.css'

/** All tables of the branch. */
export function Tables() {
  const place = usePlace()
  const { canWrite } = useRights()
  const branch = useBranchDetails(place)
  const tables = branch.data?.schema.tables ?? []
  const schema = (
    <Link className="button primary" href={href(paths.schema(place))}>
      <Icon name="plus" /> Create a table
    </Link>
  )
  return (
    <Page
      title="Tables"
      subtitle={branch.isSuccess ? `${tables.length} on ${place.branch}` : 'Reading'}
      actions={canWrite && tables.length > 0 && schema}
    >
      <ErrorNote error={branch.error} onRetry={() => void branch.refetch()} />
      {branch.isPending && <Loading lines={6} />}
      {branch.isSuccess && tables.length === 0 && (
        <Empty icon="table" title="No tables yet" actions={canWrite && schema}>
          A table has typed columns. Design it in the schema editor; rows can be imported from a CSV
          file afterwards.
        </Empty>
      )}
      <ul className="cards">
        {tables.map(({ name, columns }) => (
          <li key={name} className="card">
            <Link className="card-link" href={href(paths.table(place, name))}>
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
    </Page>
  )
}
