import { action, createCommand } from '../shared/command.js'
import { age, notice, printJson, printTable } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { withServer } from '../shared/target.js'

const withWorkspace = (command: ReturnType<typeof createCommand>) =>
  withServer(command).option('--workspace <id>', 'workspace (OFFSHOOT_WORKSPACE)')

/** `offshoot db`: lists, creates and deletes databases. */
export const dbCommand = () =>
  createCommand('db', 'databases: ls, create, rm')
    .addCommand(
      withWorkspace(createCommand('ls', 'list the databases of a workspace')).action(
        action(async (target, { json }) => {
          const databases = await target.account.databases(await target.workspace())
          if (json) printJson(databases)
          else {
            printTable(
              ['database', 'region', 'age'],
              databases.map(({ name, region, createdAt }) => [name, region, age(createdAt)]),
            )
          }
          return 0
        }),
      ),
    )
    .addCommand(
      withWorkspace(
        createCommand('create', 'create a database with a branch main', [
          'offshoot db create shop',
        ]),
      )
        .argument('<name>', 'name of the database')
        .action(
          action<{ json?: boolean }, [string]>(async (target, { json }, name) => {
            const workspace = await target.workspace()
            await target.account.createDatabase(workspace, name)
            if (json) printJson({ database: name, workspace, branch: 'main' })
            else notice(`Created database ${name} with branch main.`)
            return 0
          }),
        ),
    )
    .addCommand(
      withWorkspace(createCommand('rm', 'delete a database with all its branches').alias('delete'))
        .argument('<name>', 'name of the database')
        .option('--yes', 'do not ask')
        .action(
          action<{ json?: boolean; yes?: boolean }, [string]>(
            async (target, { json, yes }, name) => {
              const workspace = await target.workspace()
              await requireConsent(
                `This deletes the database ${name} on ${target.url} with all its branches and records.`,
                yes,
              )
              await target.account.deleteDatabase(workspace, name)
              if (json) printJson({ database: name, deleted: true })
              else notice(`Deleted database ${name}.`)
              return 0
            },
          ),
        ),
    )
