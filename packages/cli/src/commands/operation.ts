import { action, createCommand } from '../shared/command.js'
import { age, notice, printJson, printTable } from '../shared/output.js'
import { withBranch, withServer } from '../shared/target.js'

/** `offshoot operation`: work of the service that takes long. */
export const operationCommand = () =>
  createCommand(
    'operation',
    'work that takes long, such as merges and builds of indexes: ls, cancel',
  )
    .addCommand(list())
    .addCommand(cancel())

const list = () =>
  withBranch(
    createCommand('ls', 'list the operations of a branch that run or have ended lately'),
  ).action(
    action(async (target, { json }) => {
      const operations = await (await target.branch()).operations()
      if (json) printJson(operations)
      else {
        printTable(
          ['operation', 'age', 'kind', 'state', 'progress'],
          operations.map(({ id, startedAt, kind, state, progress, error }) => [
            id,
            age(startedAt),
            kind,
            state,
            error === undefined ? percent(progress) : String(error.message),
          ]),
        )
      }
      return 0
    }),
  )

function percent({ step, done, total }: { step: string; done: number; total: number }): string {
  return `${Math.floor((100 * done) / total)} %, ${step}`
}

const cancel = () =>
  withServer(createCommand('cancel', 'cancel an operation; it has changed nothing then'))
    .argument('<operation>', 'id of the operation')
    .action(
      action<{ json?: boolean }, [string]>(async (target, { json }, id) => {
        const operation = await target.account.cancelOperation(id)
        if (json) printJson(operation)
        else notice(`Operation ${id} ends in a moment, unless it takes effect before.`)
        return 0
      }),
    )
