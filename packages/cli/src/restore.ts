import { parseArgs } from 'node:util'
import { runRestore, runRestoreDatabase } from '@offshoot/server/start'
import { DATABASE_OPTIONS, refuse, selectedDatabase, show } from './usage.js'

const USAGE = `Usage: offshoot restore FILE
       offshoot restore --database NAME [--as OTHER] FILE

Fills an empty instance from a backup. If FILE is -, the backup is read from standard input.

With --database, adds the database of a backup that was made with --database to an instance. Its service
may be running. The database appears when all of it is restored and verified.

The settings select the instance, as for offshoot start: OFFSHOOT_DATA_DIR or OFFSHOOT_DATABASE_URL.
Without --database, its service must not be running. The whole backup is verified. If it is damaged, the
instance is left as it was.

  --database, --db NAME
                       The name of the database in the backup
  --as OTHER           The name that the database gets. Default: the same
  --workspace ID       The workspace that the database gets into. Default: the one that it was in, or
                       the only one of the instance
`

/** `offshoot restore`: fills an empty instance from a backup, or adds a database to an instance. */
export async function restore(args: readonly string[]): Promise<number> {
  let files: readonly string[]
  let options: { as?: string; workspace?: string; help?: boolean }
  let database: string | undefined
  try {
    const parsed = parseArgs({
      args: [...args],
      options: {
        ...DATABASE_OPTIONS,
        as: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
      allowPositionals: true,
    })
    options = parsed.values
    if (options.help) return show(USAGE)
    database = selectedDatabase({ ...options })
    files = parsed.positionals
  } catch (error) {
    return refuse('restore', error, USAGE)
  }
  const [input, ...others] = files
  if (input === undefined || others.length > 0) {
    return refuse('restore', new Error('expected one FILE'), USAGE)
  }
  const { as, workspace } = options
  if (database === undefined) return runRestore({ input })
  return runRestoreDatabase({ input, name: database, as, workspaceId: workspace })
}
