import { parseArgs } from 'node:util'
import { runBackup } from '@offshoot/server/backup'
import { refuse, show } from './usage.js'

const USAGE = `Usage: offshoot backup [--output FILE]

Writes the whole instance as of one moment to a file, while its service goes on: users, keys,
workspaces, databases, branches, rows, and the content of files. Which instance it is, the settings
say, as for offshoot start: run it in the same folder with the same environment.

  -o, --output FILE    - is standard output. A name that ends in .tar is not compressed.
                       Default: offshoot-{time}.tar.gz in the folder backups of the data folder
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
