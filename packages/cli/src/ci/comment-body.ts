import type { Change, Difference, MergeResult, ProposalSummary } from '@offshoot/client'
import { describeChange, describeOperation } from '../commands/diff.js'
import { describeConflict } from '../shared/describe-conflict.js'
import { oneLine, printable } from '../shared/output.js'

/** Changed records and conflicts that a comment shows. */
export const RECORDS_MAX = 50
const CONFLICTS_MAX = 20
/** GitHub refuses comments of more than 65,536 characters. */
const COMMENT_LENGTH_MAX = 60_000

interface Report {
  readonly database: string
  readonly difference: Difference
  /** The first changed records, up to one more than are shown; empty to show counts only. */
  readonly changes: readonly Change[]
  readonly merge: MergeResult
  /** The open proposals of the branch. */
  readonly proposals: readonly ProposalSummary[]
  /** The address of the database in the console; undefined if its workspace is not known. */
  readonly page: string | undefined
}

/** Marks the comment of a database, so that it is found again. */
export function markerOf(database: string): string {
  return `<!-- offshoot: ${database.replaceAll('-->', '')} -->`
}

/** Writes the comment: schema, rows, and whether the branch can be merged. */
export function commentOf(report: Report): string {
  const { database, difference, changes, merge } = report
  const { operations } = difference.schema
  const parts = [
    markerOf(database),
    `### Branch ${code(difference.branch)} of database ${code(database)}`,
    '',
    conflictLine(merge),
    ...proposalLines(report),
    '',
    ...section(
      'Conflicts',
      merge.conflicts
        .slice(0, CONFLICTS_MAX)
        .map((conflict) => describeConflict(conflict).join('\n')),
      merge.conflictCount,
    ),
    ...lossLines(merge),
    operations.length === 0 && difference.tables.length === 0
      ? 'The branch has changed neither schema nor rows.'
      : '',
    ...section('Schema', operations.map(describeOperation), operations.length),
    ...tableLines(difference),
  ]
  const records = recordLines(changes, COMMENT_LENGTH_MAX - parts.join('\n').length)
  return `${printable([...parts, ...records].join('\n'))
    .replace(/\n{3,}/g, '\n\n')
    .slice(0, COMMENT_LENGTH_MAX)
    .trimEnd()}\n`
}

function conflictLine({ conflictCount, dataLoss, into }: MergeResult): string {
  if (conflictCount > 0) {
    return `❌ **${count(conflictCount, 'conflict')}** with ${code(into)}: it cannot be merged.`
  }
  if (dataLoss.length > 0) return `⚠️ Merging it into ${code(into)} would lose values.`
  return `✅ It can be merged into ${code(into)} without conflicts.`
}

/** Links the proposals of the branch. Titles are left out: they are texts of users, and could be markup. */
function proposalLines({ proposals, page }: Report): string[] {
  return proposals.flatMap(({ number, into }) => {
    const name = page === undefined ? `#${number}` : `[#${number}](${page}/proposals/${number})`
    return ['', `Proposal ${name}${into === undefined ? '' : ` into ${code(into)}`} is open.`]
  })
}

function lossLines({ dataLoss }: MergeResult): string[] {
  return dataLoss.map(({ table, column, records, more }) => {
    const name = column === undefined ? table : `${table}.${column}`
    return `- ${code(name)} would be removed with ${more ? 'more than ' : ''}${count(records, 'value')}`
  })
}

function tableLines({ tables }: Difference): string[] {
  if (tables.length === 0) return []
  return [
    '',
    '| Table | Inserted | Updated | Deleted |',
    '| --- | ---: | ---: | ---: |',
    ...tables.map(
      ({ name, inserted, updated, deleted }) =>
        `| ${code(name)} | ${inserted} | ${updated} | ${deleted} |`,
    ),
    '',
  ]
}

/** Shows as many records as there is room for. */
function recordLines(changes: readonly Change[], room: number): string[] {
  const shown: string[] = []
  let length = 0
  for (const change of changes.slice(0, RECORDS_MAX)) {
    const text = describeChange(change)
    length += text.length
    // Room for the frame around the records.
    if (length > room - 500) break
    shown.push(text.trimEnd())
  }
  if (shown.length === 0) return []
  const isAll = shown.length === changes.length
  const title = isAll ? 'Changed records' : `The first ${shown.length} changed records`
  return ['', '<details>', `<summary>${title}</summary>`, '', ...fenced(shown), '', '</details>']
}

function section(title: string, lines: readonly string[], total: number): string[] {
  if (lines.length === 0) return []
  const more = total - lines.length
  return ['', `**${title}**`, '', ...fenced(lines), ...(more > 0 ? [`and ${more} more`] : []), '']
}

/** Frames text with more backticks than it contains, so that no value can end the frame. */
function fenced(lines: readonly string[]): string[] {
  const text = lines.join('\n')
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length))
  const fence = '`'.repeat(longest + 1)
  return [`${fence}diff`, text, fence]
}

/** A name as code. Names have no backticks, and those of a table row no bars. */
function code(name: string): string {
  return `\`${oneLine(name).replaceAll('`', "'").replaceAll('|', '\\|')}\``
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}
