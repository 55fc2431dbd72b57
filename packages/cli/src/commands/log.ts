import { action, createCommand } from '../shared/command.js'
import { age, colorsFor, printJson, stdoutWriter } from '../shared/output.js'
import { withBranch } from '../shared/target.js'
import { describeOperation } from './diff.js'

/** Migrations that are shown without `--all`. */
const SHOWN = 20

/** `offshoot log`: shows the migrations of a branch, newest first. */
export const logCommand = () =>
  withBranch(createCommand('log', 'show the migrations of a branch, newest first'))
    .argument('[branch]', 'branch to show; default: the current one')
    .option('--all', `show all migrations instead of ${SHOWN}`)
    .action(
      action<{ json?: boolean; all?: boolean }, [string?]>(async (target, { json, all }, name) => {
        const branch = name === undefined ? await target.branch() : target.branchNamed(name)
        const colors = colorsFor(process.stdout)
        const out = stdoutWriter('text')
        const migrations = []
        for await (const migration of branch.migrations()) {
          migrations.push(migration)
          if (!all && migrations.length === SHOWN) break
        }
        if (json) printJson(migrations)
        else {
          for (const { id, title, createdAt, operations } of migrations) {
            const heading = [colors.yellow(id), `${age(createdAt)} ago`, title ?? ''].join('  ')
            const lines = operations.map((operation) => `    ${describeOperation(operation)}\n`)
            out.write(`${heading.trimEnd()}\n${lines.join('')}`)
          }
        }
        return 0
      }),
    )
