import { OffshootError } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { storeBranch } from '../shared/credentials.js'
import { UsageError } from '../shared/failure.js'
import { notice, printJson } from '../shared/output.js'
import { withDatabase } from '../shared/target.js'

/** `offshoot checkout`: chooses the branch of later commands in this folder. */
export const checkoutCommand = () =>
  withDatabase(
    createCommand('checkout', 'choose the branch of later commands in this folder', [
      'offshoot checkout feat-login',
      'offshoot checkout -c feat-login',
      'offshoot checkout -c      # the branch of the git branch, created if needed',
      'offshoot checkout --git   # follow the git branch again',
    ]),
  )
    .argument('[name]', 'name of the branch; default: the branch of the git branch')
    .option('-c, --create', 'create the branch if it does not exist')
    .option('--from <branch>', 'branch to fork with --create; default: main')
    .option('--git', 'follow the git branch')
    .action(
      action<{ json?: boolean; create?: boolean; from?: string; git?: boolean }, [string?]>(
        async (target, { json, create, from = 'main', git }, name) => {
          const { folder } = target.project
          if (name === undefined) {
            if (!git && !create) throw new UsageError('name a branch, or use -c or --git')
            await storeBranch(folder, undefined)
            const found = await target.findBranch({ create: create === true })
            if (json) printJson({ branch: found.name, reason: found.reason })
            else notice(`On branch ${found.name} (${found.reason}).`)
            return 0
          }
          const exists = await target
            .branchNamed(name)
            .get()
            .then(() => true)
            .catch((error: unknown) => {
              if (error instanceof OffshootError && error.code === 'branch_not_found') return false
              throw error
            })
          if (!exists && !create) {
            throw new UsageError(
              `database [${target.databaseName}] has no branch [${name}]\n  Create it with: offshoot checkout -c ${name}`,
            )
          }
          if (!exists) await target.branchNamed(from).fork(name)
          await storeBranch(folder, name)
          if (json) printJson({ branch: name, created: !exists })
          else notice(`${exists ? 'On' : 'Created and on'} branch ${name}.`)
          return 0
        },
      ),
    )
