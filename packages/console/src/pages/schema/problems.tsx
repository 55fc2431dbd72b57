import type { ColumnProblem } from '@offshoot/client'
import { Link } from 'wouter'
import { usePlace } from '../../api/place.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Icon } from '../../ui/icon.js'

/** Records that do not allow a change of their column, with the first of their values. */
export function Problems({ problems }: { problems: readonly ColumnProblem[] }) {
  const place = usePlace()
  if (problems.length === 0) return null
  return (
    <div className="note danger" role="alert">
      <Icon name="warning" />
      <div className="grow">
        <p>Records do not allow the changes:</p>
        <ul>
          {problems.map(({ table, column, constraint, kind, message, samples, records, more }) => (
            <li key={`${table}.${column ?? constraint} ${kind}`}>
              {message}
              <ul>
                {samples.map(({ id, value }) => (
                  <li key={id}>
                    <Link href={href(paths.table(place, table, { filter: { id } }))}>
                      <code>{id}</code>
                    </Link>
                    {value !== undefined && <>: {value}</>}
                  </li>
                ))}
                {records > samples.length && (
                  <li>
                    and {more && 'at least '}
                    {(records - samples.length).toLocaleString()} more
                  </li>
                )}
              </ul>
            </li>
          ))}
        </ul>
      </div>
    </div>
  )
}
