import { OffshootError } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { notice, printJson, printTable } from '../shared/output.js'
import { withBranch } from '../shared/target.js'

/** `offshoot status`: shows server, database, branch, and what the branch has changed. */
export const statusCommand = () =>
  withBranch(createCommand('status', 'show server, database, branch, and its changes')).action(
    action(async (target, { json }) => {
      const database = target.databaseName
      const { name, reason } = await target.findBranch()
      const branch = target.branchNamed(name)
      const { startedFrom, expiresAt, protected: isProtected } = await branch.get()
      const difference =
        startedFrom === undefined
          ? undefined
          : await branch.diff({ size: 0 }).catch((error: unknown) => {
              // The source may have been deleted.
              if (error instanceof OffshootError && error.status === 409) return undefined
              throw error
            })
      const source = startedFrom?.branchName
      if (json) {
        printJson({
          url: target.url,
          database,
          branch: name,
          reason,
          source,
          expiresAt,
          protected: isProtected,
          difference,
        })
        return 0
      }
      notice(`Server    ${target.url}`)
      notice(`Database  ${database}`)
      notice(
        `Branch    ${name} (${reason})${source === undefined ? '' : `, forked from ${source}`}`,
      )
      if (expiresAt !== undefined) notice(`Expires   ${expiresAt}`)
      if (difference === undefined) return 0
      const operations = difference.schema.operations.length
      if (operations === 0 && difference.tables.length === 0) notice('No changes since the fork.')
      else notice(`Schema    ${operations} ${operations === 1 ? 'change' : 'changes'}`)
      if (difference.tables.length > 0) {
        printTable(
          ['table', 'inserted', 'updated', 'deleted'],
          difference.tables.map((table) => [
            table.name,
            `+${table.inserted}`,
            `~${table.updated}`,
            `-${table.deleted}`,
          ]),
        )
      }
      return 0
    }),
  )
