import { action, createCommand } from '../shared/command.js'
import { storeServer } from '../shared/credentials.js'
import { UsageError } from '../shared/failure.js'
import { isLocal } from '../shared/is-local.js'
import { configuredAddress, findLocalServer } from '../shared/local-server.js'
import { notice } from '../shared/output.js'
import { writeProject } from '../shared/project.js'
import { withDatabase } from '../shared/target.js'

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
        const isOnly = (await target.account.workspaces()).length === 1
        const databases = await target.account.databases(workspace)
        if (!databases.some(({ name }) => name === database)) {
          const names = databases.map(({ name }) => name).join(', ') || 'none'
          throw new UsageError(
            `workspace [${workspace}] has no database [${database}]; it has: ${names}\n  Create it with: offshoot db create ${database}`,
          )
        }
        const folder = process.cwd()
        const local = isLocal(target.url)
        // The file is for everybody who works on the project, so it has no address of this machine.
        const file = await writeProject(folder, {
          ...(local ? {} : { url: target.url }),
          ...(isOnly ? {} : { workspace }),
          database,
        })
        const usual = (await findLocalServer([folder]))?.address ?? configuredAddress()
        await storeServer(folder, local && target.url !== usual ? target.url : undefined)
        notice(`Wrote ${file}. Commit it; it contains no secret.`)
        return 0
      }),
    )
