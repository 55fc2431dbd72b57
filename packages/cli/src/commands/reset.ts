import { action, createCommand } from '../shared/command.js'
import { notice, printJson } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { withBranch } from '../shared/target.js'

/** `offshoot reset`: discards the changes of a branch. */
export const resetCommand = () =>
  withBranch(
    createCommand('reset', 'discard all changes of a branch', [
      'offshoot reset feat-login --yes',
      'offshoot reset main --to before-merge',
    ]),
  )
    .argument('[branch]', 'branch to reset; default: the current one')
    .option('--to <branch>', 'state to take; default: the source of the branch')
    .option('--yes', 'do not ask')
    .action(
      action<{ json?: boolean; to?: string; yes?: boolean }, [string?]>(
        async (target, { json, to, yes }, name) => {
          const branch = name === undefined ? await target.branch() : target.branchNamed(name)
          const goal = to ?? 'its source'
          await requireConsent(
            `This replaces schema and rows of ${branch.name} of ${target.databaseName} on ${target.url} by those of ${goal}.`,
            yes,
          )
          await branch.reset(to === undefined ? {} : { to })
          if (json) printJson({ branch: branch.name, ...(to === undefined ? {} : { to }) })
          else notice(`Reset ${branch.name} to ${goal}.`)
          return 0
        },
      ),
    )
