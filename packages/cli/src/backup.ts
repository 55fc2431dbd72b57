import { parseArgs } from 'node:util'
import { runBackup } from '@offshoot/server/backup'
import { refuse, show } from './usage.js'

const USAGE = `Usage: offshoot backup [--output FILE]

Writes a consistent snapshot of the whole instance to a file: users, keys, workspaces, databases,
branches, rows, and the content of files. The service may be running.

The settings select the instance, as for offshoot start. Run the command in the same folder and with
the same environment as the service.

  -o, --output FILE    The file to write; - is standard output. It is compressed, unless its name
                       ends in .tar. Default: backups/offshoot-{time}.tar.gz in the data folder
`

/** `offshoot backup`: writes the instance to one file. */
export async function backup(args: readonly string[]): Promise<number> {
  let options: { output?: string | undefined; help?: boolean | undefined }
  try {
    options = parseArgs({
      args: [...args],
      options: { output: { type: 'string', short: 'o' }, help: { type: 'boolean', short: 'h' } },
    }).values
  } catch (error) {
    return refuse('backup', error, USAGE)
  }
  if (options.help) return show(USAGE)
  return runBackup({ output: options.output || undefined })
}
