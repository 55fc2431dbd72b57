import { action, createCommand } from '../shared/command.js'
import { UsageError } from '../shared/failure.js'
import { notice } from '../shared/output.js'
import { writeProject } from '../shared/project.js'
import { DEFAULT_URL, withDatabase } from '../shared/target.js'

/** `offshoot link`: writes `.offshoot.json`. */
export const linkCommand = () =>
  withDatabase(
    createCommand('link', 'connect this folder to a database, in a file to commit', [
      'offshoot link shop',
    ]),
  )
    .argument('<database>', 'name of the database')
    .action(
      action<{ json?: boolean }, [string]>(async (target, _flags, database) => {
        const workspace = await target.workspace()
        const databases = await target.account.databases(workspace)
        if (!databases.some(({ name }) => name === database)) {
          const names = databases.map(({ name }) => name).join(', ') || 'none'
          throw new UsageError(
            `workspace [${workspace}] has no database [${database}]; it has: ${names}\n  Create it with: offshoot db create ${database}`,
          )
        }
        const file = await writeProject(process.cwd(), {
          ...(target.url === DEFAULT_URL ? {} : { url: target.url }),
          workspace,
          database,
        })
        notice(`Wrote ${file}. Commit it; it contains no secret.`)
        return 0
      }),
    )
