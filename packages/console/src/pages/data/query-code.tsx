import type { TableDefinition } from '@offshoot/client'
import { usePlace } from '../../api/place.js'
import { clientSample, curlSample } from '../../api/samples.js'
import { CodeButton } from '../../ui/code-samples.js'
import { SEARCH_OPTIONS } from './row-pages.js'
import { sortOf, type View } from './view.js'

/** The query on screen as a request, and as code of the client. */
export function QueryCode({ table, view }: { table: TableDefinition; view: View }) {
  const place = usePlace()
  const { filter, sort, search, at } = view
  const question = {
    ...(filter === undefined ? {} : { filter }),
    ...(search !== '' ? SEARCH_OPTIONS : sort.length === 0 ? {} : { sort: sortOf(sort) }),
  }
  const name = JSON.stringify(table.name)
  const path = `/tables/${encodeURIComponent(table.name)}`
  const query = at === '' ? '' : `?at=${encodeURIComponent(at)}`
  const source = at === '' ? 'client' : `client.branch().at(${JSON.stringify(at)})`
  const options = Object.keys(question).length === 0 ? '' : JSON.stringify(question, null, 2)
  return (
    <CodeButton
      title="Use this query elsewhere"
      samples={() => ({
        'Client code': clientSample(
          place,
          search === ''
            ? `const page = await ${source}.table(${name}).query(${options}).page()\nconsole.log(page.records)`
            : `const { records } = await ${source}.table(${name}).search(${JSON.stringify(search)}${options === '' ? '' : `, ${options}`})\nconsole.log(records)`,
        ),
        curl:
          search === ''
            ? curlSample(place, `${path}/query${query}`, { body: question })
            : curlSample(place, `${path}/search${query}`, { body: { query: search, ...question } }),
      })}
    />
  )
}
