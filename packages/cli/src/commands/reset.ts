import { action, createCommand } from '../shared/command.js'
import { notice, printJson } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { withBranch } from '../shared/target.js'

/** `offshoot reset`: discards the changes of a branch. */
export const resetCommand = () =>
  withBranch(
    createCommand('reset', 'discard all changes of a branch', [
      'offshoot reset feat-login --yes',
      'offshoot reset main --to staging',
      'offshoot reset main --at before-import',
    ]),
  )
    .argument('[branch]', 'branch to reset; default: the current one')
    .option('--to <branch>', 'state to take; default: the source of the branch')
    .option('--at <checkpoint>', 'checkpoint to go back to: its id, its name, or a time')
    .option('--yes', 'do not ask')
    .action(
      action<{ json?: boolean; to?: string; at?: string; yes?: boolean }, [string?]>(
        async (target, { json, to, at, yes }, name) => {
          const branch = name === undefined ? await target.branch() : target.branchNamed(name)
          const state = { ...(to === undefined ? {} : { to }), ...(at === undefined ? {} : { at }) }
          const source = to ?? (at === undefined ? 'its source' : branch.name)
          const goal = at === undefined ? source : `${source} at ${at}`
          await requireConsent(
            `This replaces schema and rows of ${branch.name} of ${target.databaseName} on ${target.url} by those of ${goal}.`,
            yes,
          )
          await branch.reset(state)
          if (json) printJson({ branch: branch.name, ...state })
          else notice(`Reset ${branch.name} to ${goal}.`)
          return 0
        },
      ),
    )
