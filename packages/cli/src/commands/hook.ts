import { execFile } from 'node:child_process'
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { createCommand, plainAction } from '../shared/command.js'
import { Failure } from '../shared/failure.js'
import { notice } from '../shared/output.js'

const run = promisify(execFile)

const START = '# offshoot: start'
const END = '# offshoot: end'

/**
 * The hook runs in the background, so that it can never delay or refuse a checkout. Its third argument
 * is 1 if a branch was checked out, and 0 for single files.
 */
const LINES: Readonly<Record<string, readonly string[]>> = {
  'post-checkout': [
    'if [ "$3" = 1 ]; then',
    '  (npx --no-install offshoot checkout -c </dev/null >/dev/null 2>&1 &)',
    'fi',
  ],
  'post-merge': [
    "echo 'offshoot: merge the branch of the merged git branch with: offshoot merge NAME' >&2",
  ],
}

/** `offshoot hook`: makes git create a branch for each git branch. */
export const hookCommand = () =>
  createCommand('hook', 'git hooks that create a branch for each git branch: install, uninstall')
    .addCommand(
      createCommand('install', 'add the hooks to this repository').action(
        plainAction(async () => {
          for (const name of Object.keys(LINES)) {
            const file = path.join(await hooksFolder(), name)
            const before = await readFile(file, 'utf8').catch(() => '#!/bin/sh\n')
            const kept = withoutOurs(before)
            const lines = [START, ...(LINES[name] ?? []), END]
            await mkdir(path.dirname(file), { recursive: true })
            await writeFile(file, `${kept.trimEnd()}\n${lines.join('\n')}\n`)
            await chmod(file, 0o755)
            notice(`Installed ${file}.`)
          }
          return 0
        }),
      ),
    )
    .addCommand(
      createCommand('uninstall', 'remove the hooks from this repository').action(
        plainAction(async () => {
          for (const name of Object.keys(LINES)) {
            const file = path.join(await hooksFolder(), name)
            const before = await readFile(file, 'utf8').catch(() => undefined)
            if (before === undefined || !before.includes(START)) continue
            const kept = withoutOurs(before)
            if (kept.trim() === '#!/bin/sh') await rm(file)
            else await writeFile(file, kept)
            notice(`Removed the lines of offshoot from ${file}.`)
          }
          return 0
        }),
      ),
    )

/** The folder that git runs hooks from; `core.hooksPath` may name another one than the default. */
async function hooksFolder(): Promise<string> {
  try {
    const { stdout } = await run('git', ['rev-parse', '--git-path', 'hooks'])
    return path.resolve(stdout.trim())
  } catch {
    throw new Failure('this folder is not in a git repository')
  }
}

function withoutOurs(text: string): string {
  const start = text.indexOf(START)
  const end = text.indexOf(END)
  if (start < 0 || end < start) return text
  return text.slice(0, start) + text.slice(end + END.length).replace(/^\n/, '')
}
