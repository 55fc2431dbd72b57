import { action, createCommand } from '../shared/command.js'
import { printJson, printTable } from '../shared/output.js'
import { withServer } from '../shared/target.js'

/** `offshoot whoami`: shows the user of the key and the workspaces. */
export const whoamiCommand = () =>
  withServer(createCommand('whoami', 'show the user of the API key and the workspaces')).action(
    action(async (target, { json }) => {
      const user = await target.account.user()
      const workspaces = await target.account.workspaces()
      if (json) printJson({ url: target.url, user, workspaces })
      else {
        printTable(
          ['server', 'user', 'workspace', 'role'],
          workspaces.map(({ id, role }) => [target.url, user.email, id, role]),
        )
      }
      return 0
    }),
  )
