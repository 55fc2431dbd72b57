import { parseArgs } from 'node:util'
import { runBackup } from '@offshoot/server/start'
import { DATABASE_OPTIONS, refuse, selectedDatabase, show } from './usage.js'

const USAGE = `Usage: offshoot backup [--database NAME] [--output FILE]

Writes a consistent snapshot of the whole instance to a file: users, keys, workspaces, databases,
branches, rows, and the content of files. The service may be running. With --database, writes one
database: its branches with their history, rows, and the content of files that rows mention.

The settings select the instance, as for offshoot start. Run the command in the same folder and with
the same environment as the service.

  -o, --output FILE    The file to write; - is standard output. It is compressed, unless its name
                       ends in .tar. Default: backups/offshoot-{time}.tar.gz in the data folder,
                       or backups/{database}-{time}.tar.gz
  --database, --db NAME
                       Write this database only
  --workspace ID       The workspace of the database, if several have one of this name
`

/** `offshoot backup`: writes the instance, or one database, to one file. */
export async function backup(args: readonly string[]): Promise<number> {
  let options: { output?: string; workspace?: string; help?: boolean }
  let database: string | undefined
  try {
    options = parseArgs({
      args: [...args],
      options: {
        ...DATABASE_OPTIONS,
        output: { type: 'string', short: 'o' },
        help: { type: 'boolean', short: 'h' },
      },
    }).values
    database = selectedDatabase({ ...options })
  } catch (error) {
    return refuse('backup', error, USAGE)
  }
  if (options.help) return show(USAGE)
  return runBackup({
    output: options.output || undefined,
    only: database === undefined ? undefined : { name: database, workspaceId: options.workspace },
  })
}
