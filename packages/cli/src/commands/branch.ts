import { type BranchSummary, OffshootError } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { UsageError } from '../shared/failure.js'
import { age, notice, printJson, printTable, span } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { type Target, withDatabase } from '../shared/target.js'

/** Branches whose rows are counted at the same time. */
const STATS_AT_ONCE = 4
/** `ls` counts rows by itself up to this number of branches, because each is a request of its own. */
const COUNTED_MAX = 100

/** `offshoot branch`: lists, creates and deletes branches, and changes their expiry and protection. */
export const branchCommand = () =>
  createCommand('branch', 'branches: ls, create, rm, protect, expire')
    .addCommand(list())
    .addCommand(create())
    .addCommand(remove())
    .addCommand(protect())
    .addCommand(expire())

const list = () =>
  withDatabase(createCommand('ls', 'list the branches as a tree'))
    .option('--stats', `count the rows of each branch also when there are more than ${COUNTED_MAX}`)
    .option('--no-stats', 'do not count the rows that each branch stores itself')
    .action(
      action<{ json?: boolean; stats?: boolean }, []>(async (target, { json, stats }) => {
        const branches = await target.database.branches()
        const isCounted = stats ?? branches.length <= COUNTED_MAX
        const rows = isCounted ? await countRows(target, branches) : new Map<string, number>()
        if (json) {
          printJson(
            branches.map((branch) => ({
              ...branch,
              ...(isCounted ? { ownedRows: rows.get(branch.name) } : {}),
            })),
          )
          return 0
        }
        printTable(
          ['branch', 'age', ...(isCounted ? ['own rows'] : []), 'expiry'],
          treeOf(branches).map(({ branch, indent }) => [
            `${indent}${branch.name}`,
            age(branch.createdAt),
            ...(isCounted ? [rows.get(branch.name)?.toLocaleString('en') ?? ''] : []),
            lifeOf(branch),
          ]),
        )
        return 0
      }),
    )

/** Returns how many rows each branch stores itself. A branch that was deleted meanwhile is left out. */
async function countRows(
  target: Target,
  branches: readonly BranchSummary[],
): Promise<Map<string, number>> {
  const rows = new Map<string, number>()
  const waiting = branches.map(({ name }) => name)
  const count = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      try {
        rows.set(name, (await target.branchNamed(name).stats()).rows.owned)
      } catch (error) {
        if (!(error instanceof OffshootError) || error.status !== 404) throw error
      }
    }
  }
  await Promise.all(Array.from({ length: STATS_AT_ONCE }, count))
  return rows
}

/** Orders branches so that each follows the branch that it was forked from. */
function treeOf(branches: readonly BranchSummary[]): { branch: BranchSummary; indent: string }[] {
  const names = new Set(branches.map(({ name }) => name))
  const children = new Map<string | undefined, BranchSummary[]>()
  for (const branch of branches) {
    const parent = branch.from !== undefined && names.has(branch.from) ? branch.from : undefined
    const known = children.get(parent)
    if (known === undefined) children.set(parent, [branch])
    else known.push(branch)
  }
  const ordered: { branch: BranchSummary; indent: string }[] = []
  // A stack instead of recursion, because chains of forks can be long.
  const at =
    (depth: number) => (branch: BranchSummary, index: number, all: readonly unknown[]) => ({
      branch,
      depth,
      isLast: index === all.length - 1,
    })
  const waiting = (children.get(undefined) ?? []).map(at(0)).reverse()
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { branch, depth, isLast } = next
    const mark = isLast ? '└ ' : '├ '
    ordered.push({ branch, indent: depth === 0 ? '' : `${'  '.repeat(depth - 1)}${mark}` })
    const below = children.get(branch.name) ?? []
    waiting.push(...below.map(at(depth + 1)).reverse())
  }
  return ordered
}

function lifeOf({ protected: isProtected, expiresAt, ttl }: BranchSummary): string {
  if (isProtected) return 'protected'
  if (ttl !== undefined) return `${span(ttl * 1000)} after the last use`
  return expiresAt === undefined ? '' : `in ${span(Date.parse(expiresAt) - Date.now())}`
}

const create = () =>
  withDatabase(
    createCommand('create', 'fork a branch with its rows', [
      'offshoot branch create feat-login --from main',
      'offshoot branch create preview --from main --ttl 1d',
    ]),
  )
    .argument('<name>', 'name of the new branch')
    .option('--from <branch>', 'branch to fork; default: the rules of the database, or main')
    .option('--at <checkpoint>', 'fork a checkpoint: its id, its name, or a time')
    .option('--no-data', 'take the schema only, without rows')
    .option('--ttl <duration>', 'delete the branch this long after its last use, such as 12h')
    .action(
      action<{ json?: boolean; from?: string; at?: string; data: boolean; ttl?: string }, [string]>(
        async (target, { json, from = 'main', at, data, ttl }, name) => {
          await target.branchNamed(from).fork(name, {
            ...(at === undefined ? {} : { at }),
            ...(data ? {} : { data: false }),
            ...(ttl === undefined ? {} : { ttl: parseDuration(ttl) }),
          })
          if (json) printJson({ branch: name, from })
          else notice(`Created branch ${name} from ${from}.`)
          return 0
        },
      ),
    )

const remove = () =>
  withDatabase(createCommand('rm', 'delete a branch').alias('delete'))
    .argument('<name>', 'name of the branch')
    .option('--yes', 'do not ask')
    .action(
      action<{ json?: boolean; yes?: boolean }, [string]>(async (target, { json, yes }, name) => {
        await requireConsent(
          `This deletes the branch ${name} of ${target.databaseName} on ${target.url}.`,
          yes,
        )
        await target.branchNamed(name).delete()
        if (json) printJson({ branch: name, deleted: true })
        else notice(`Deleted branch ${name}.`)
        return 0
      }),
    )

const protect = () =>
  withDatabase(createCommand('protect', 'protect a branch against deletion and schema edits'))
    .argument('<name>', 'name of the branch')
    .option('--off', 'end the protection')
    .option('--required-approvals <number>', 'approvals that a proposal needs to change it')
    .action(
      action<{ json?: boolean; off?: boolean; requiredApprovals?: string }, [string]>(
        async (target, { json, off, requiredApprovals }, name) => {
          const life = {
            protected: off !== true,
            ...(requiredApprovals === undefined
              ? {}
              : { requiredApprovals: countOf('--required-approvals', requiredApprovals) }),
          }
          await target.branchNamed(name).update(life)
          if (json) printJson({ branch: name, ...life })
          else {
            notice(off ? `Branch ${name} is no longer protected.` : `Branch ${name} is protected.`)
          }
          return 0
        },
      ),
    )

const expire = () =>
  withDatabase(
    createCommand('expire', 'let a branch expire', [
      'offshoot branch expire preview 12h',
      'offshoot branch expire preview never',
    ]),
  )
    .argument('<name>', 'name of the branch')
    .argument('<duration>', 'time after the last use, such as 90m, 12h or 7d; or never')
    .action(
      action<{ json?: boolean }, [string, string]>(async (target, { json }, name, duration) => {
        const ttl = duration === 'never' ? null : parseDuration(duration)
        await target.branchNamed(name).update({ ttl, ...(ttl === null ? { expiresAt: null } : {}) })
        if (json) printJson({ branch: name, ttl })
        else notice(ttl === null ? `Branch ${name} does not expire.` : `Branch ${name} expires.`)
        return 0
      }),
    )

const SECONDS = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Parses a duration such as `90m`. Returns seconds. */
export function parseDuration(text: string): number {
  const match = /^(\d+)([smhd])$/.exec(text)
  if (match === null) {
    throw new UsageError(`[${text}] is not a duration: use a number with s, m, h or d, such as 12h`)
  }
  return Number(match[1]) * SECONDS[match[2] as keyof typeof SECONDS]
}

/** Reads the number of an option. */
export function countOf(option: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`${option}: [${text}] is not a whole number`)
  return Number(text)
}
