import type { RecordHistory, RecordVersion } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { Failure } from '../shared/failure.js'
import { ago, colorsFor, notice, oneLine, printJson, stdoutWriter } from '../shared/output.js'
import { withBranch } from '../shared/target.js'

/** Versions that are shown without `--all`. */
const SHOWN = 20

interface HistoryFlags {
  readonly json?: boolean
  readonly all?: boolean
  readonly restore?: string
}

type Values = Readonly<Record<string, unknown>>

/** `offshoot history`: shows the versions of a record, or restores one of them. */
export const historyCommand = () =>
  withBranch(
    createCommand('history', 'show the versions of a record, newest first, or restore one', [
      'offshoot history users ada',
      'offshoot history users ada --restore 1769851800000000',
    ]),
  )
    .argument('<table>', 'table of the record')
    .argument('<id>', 'id of the record')
    .option('--all', `show all versions instead of ${SHOWN}`)
    .option('--restore <version>', 'give the record the values of this version')
    .action(
      action<HistoryFlags, [string, string]>(async (target, flags, table, id) => {
        const records = (await target.branch()).table(table)
        if (flags.restore !== undefined) {
          const restored = await records.restoreVersion(id, flags.restore)
          if (flags.json) printJson(restored)
          else notice(`Restored version ${flags.restore} of ${id}.`)
          return 0
        }
        const first = (await records.history(id, { size: SHOWN })) as RecordHistory<Values>
        const versions = [...first.versions]
        for (let { meta } = first; flags.all && meta.more && meta.cursor !== undefined; ) {
          const next = (await records.history(id, {
            cursor: meta.cursor,
            size: SHOWN,
          })) as RecordHistory<Values>
          versions.push(...next.versions)
          meta = next.meta
        }
        const isKnown = versions.length > 0 || first.states?.some(({ record }) => record !== null)
        if (!isKnown) {
          throw new Failure(`table [${table}]: record [${id}]: nothing is known of it`)
        }
        if (first.states !== undefined) {
          notice(`Table ${table} keeps no versions. The record at checkpoints and on branches:`)
        }
        if (flags.json) printJson(first.states ?? versions)
        else show({ ...first, versions })
        return 0
      }),
    )

function show({ versions, states }: RecordHistory<Values>): void {
  const colors = colorsFor(process.stdout)
  const out = stdoutWriter('text')
  for (const version of versions) {
    const { at, operation, email, user, cause } = version
    const by = email ?? user ?? 'unknown'
    const what = cause === undefined ? operation : `${operation} by ${cause}`
    const heading = [colors.yellow(version.version), ago(at), what, by].join('  ')
    out.write(`${heading}\n${describe(version)}`)
  }
  for (const { checkpoint, branch, record } of states ?? []) {
    const where = checkpoint === undefined ? `branch ${branch}` : `checkpoint ${checkpoint.name}`
    out.write(`${colors.yellow(where)}\n    ${record === null ? 'none' : oneLine(record)}\n`)
  }
}

function describe({ changes, record, unconverted = {} }: RecordVersion<Values>): string {
  if (record === null) return ''
  const changed =
    changes === undefined
      ? [oneLine(record)]
      : Object.entries(changes).map(
          ([column, { from, to }]) => `${column}: ${oneLine(from)} → ${oneLine(to)}`,
        )
  const lost = Object.entries(unconverted).map(
    ([column, text]) => `${column}: ${oneLine(text)} does not convert to its type now`,
  )
  return [...changed, ...lost].map((line) => `    ${line}\n`).join('')
}
