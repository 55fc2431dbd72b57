import { Link } from 'wouter'
import { Empty } from '../ui/feedback.js'
import { Page } from '../ui/page.js'

export function NotFound() {
  return (
    <Page title="Not found">
      <Empty
        icon="search"
        title="There is no such page"
        actions={
          <Link className="button primary" href="~/console/">
            Go to the start
          </Link>
        }
      >
        The address may be mistyped, or what it named was deleted.
      </Empty>
    </Page>
  )
}
