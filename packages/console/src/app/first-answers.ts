import { answers } from '../api/answers.js'
import { askFirstRows } from '../pages/data/first-rows.js'
import { parseAddress } from './address.js'
import { queries } from './query-client.js'

/**
 * Reads what the first address shows, while the code of the console is still loading. Otherwise each answer
 * would wait until the one before it is rendered. Failures are left to the page, which asks again.
 */
export async function askFirstAnswers({ pathname, search }: Location): Promise<void> {
  const { workspace, database, branch, table } = parseAddress(pathname)
  const session = await queries.fetchQuery(answers.session())
  if (session === null || workspace === undefined) return
  const [databases] = await Promise.all([
    queries.fetchQuery(answers.databases(workspace)),
    queries.prefetchQuery(answers.workspaces()),
  ])
  const region = databases.find(({ name }) => name === database)?.region
  if (database === undefined || region === undefined) return
  const branches = queries.prefetchQuery(answers.branches({ workspace, database, region }))
  if (branch !== undefined) {
    const place = { workspace, database, region, branch }
    const { schema } = await queries.fetchQuery(answers.branch(place))
    const found = schema.tables.find(({ name }) => name === table)
    if (found !== undefined) await askFirstRows(place, found, search)
  }
  await branches
}
