import type { Branch, LogEntry } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { ago, colorsFor, oneLine, printJson, stdoutWriter } from '../shared/output.js'
import { withBranch } from '../shared/target.js'
import { describeOperation } from './diff.js'

/** Entries that are shown without `--all`. */
const SHOWN = 20

interface LogFlags {
  readonly json?: boolean
  readonly all?: boolean
  readonly kind?: string
  readonly migrations?: boolean
}

/** `offshoot log`: shows what happened to a branch, newest first. */
export const logCommand = () =>
  withBranch(
    createCommand('log', 'show what happened to a branch, newest first', [
      'offshoot log main --kind merge',
      'offshoot log main --migrations',
    ]),
  )
    .argument('[branch]', 'branch to show; default: the current one')
    .option('--all', `show all entries instead of ${SHOWN}`)
    .option('--kind <kind>', 'show entries of this kind only, such as merge or reset')
    .option('--migrations', 'show the schema operations of each migration instead')
    .action(
      action<LogFlags, [string?]>(async (target, flags, name) => {
        const branch = name === undefined ? await target.branch() : target.branchNamed(name)
        if (flags.migrations) await showMigrations(branch, flags)
        else await showEntries(branch, flags)
        return 0
      }),
    )

async function take<Item>(items: AsyncIterable<Item>, { all }: LogFlags): Promise<Item[]> {
  const taken: Item[] = []
  for await (const item of items) {
    taken.push(item)
    if (!all && taken.length === SHOWN) break
  }
  return taken
}

async function showEntries(branch: Branch<unknown>, flags: LogFlags): Promise<void> {
  const { json, kind } = flags
  const entries = await take(branch.log(kind === undefined ? {} : { kind }), flags)
  if (json) return printJson(entries)
  const colors = colorsFor(process.stdout)
  const out = stdoutWriter('text')
  for (const entry of entries) {
    const by = entry.email ?? entry.user ?? 'the service'
    const heading = [colors.yellow(entry.id), ago(entry.at), entry.kind, by].join('  ')
    out.write(`${heading}\n${describeEntry(entry)}`)
  }
}

/** Fields that the heading shows, or that are the same for all entries of a branch. */
const SHOWN_FIELDS = ['id', 'kind', 'at', 'user', 'email', 'database', 'branch', 'requestId']

function describeEntry(entry: LogEntry): string {
  return Object.entries(entry)
    .filter(([field]) => !SHOWN_FIELDS.includes(field))
    .map(([field, value]) => `    ${field}: ${oneLine(value)}\n`)
    .join('')
}

async function showMigrations(branch: Branch<unknown>, flags: LogFlags): Promise<void> {
  const migrations = await take(branch.migrations(), flags)
  if (flags.json) return printJson(migrations)
  const colors = colorsFor(process.stdout)
  const out = stdoutWriter('text')
  for (const { id, title, createdAt, operations } of migrations) {
    const heading = [colors.yellow(id), ago(createdAt), title ?? ''].join('  ')
    const lines = operations.map((operation) => `    ${describeOperation(operation)}\n`)
    out.write(`${heading.trimEnd()}\n${lines.join('')}`)
  }
}
