import type { DifferenceSchema } from '@offshoot/contract/branch-changes'
import { CreateCheckpointSchema } from '@offshoot/contract/checkpoints'
import { LIMITS } from '@offshoot/contract/limits'
import { CONFLICTS_PAGE_SIZE } from '@offshoot/contract/merge-conflicts'
import { BranchNameSchema } from '@offshoot/contract/names'
import type { Static } from 'typebox'
import { Value } from 'typebox/value'
import type { Session } from '../data/session/session.js'
import { type BranchAccess, resolveAddressedDatabase } from '../domain/access/resolve.js'
import type { Need } from '../domain/access/scope.js'
import { findSource } from '../domain/branches/branch-state.js'
import { createBranch } from '../domain/branches/create-branch.js'
import { readBranches } from '../domain/branches/operations.js'
import { withOther } from '../domain/branches/other-branch.js'
import { readLog } from '../domain/log/operations.js'
import { createCheckpoint } from '../domain/merges/checkpoints.js'
import { readDifference } from '../domain/merges/diff-branch.js'
import { mergeBranches } from '../domain/merges/merge-branch.js'
import type { MergeStrategy } from '../domain/schemas/merge-definitions.js'
import type { Services } from '../http/services.js'
import { WireError } from './wire-error.js'

/* The functions of the schema `offshoot`. They do what requests over HTTP do, by the same operations. */

/** Changes that one call of `diff` returns, and entries of `log`. */
export const CHANGES_MAX = 10_000
const ENTRIES_MAX = 200

type Given = readonly (string | null)[]

/** The branch of a session, and what can be done with it. */
export interface BranchShell {
  readonly services: Services
  readonly branchName: string
  /** Runs an operation on the branch of the session. */
  onBranch<Result>(
    need: Need,
    operation: (access: BranchAccess, session: Session) => Promise<Result>,
  ): Promise<Result>
  /** Makes another branch that of the session. */
  checkout(branchName: string): Promise<void>
}

/** A function of the schema. Its result is a text, or rows. */
export interface BranchFunction {
  /** The least and the largest number of arguments. */
  readonly arguments: readonly [number, number]
  /** It cannot run inside a transaction. */
  readonly isWrite: boolean
  /** What it changes is only the session. */
  readonly isOfSession?: true
  /** The names and types of columns. undefined: the result is a text. */
  readonly columns?: Readonly<Record<string, string>>
  run(shell: BranchShell, given: Given): Promise<string | readonly object[]>
}

export const BRANCH_FUNCTIONS: Readonly<Record<string, BranchFunction>> = {
  current_branch: {
    arguments: [0, 0],
    isWrite: false,
    run: async ({ branchName }) => branchName,
  },
  branches: {
    arguments: [0, 0],
    isWrite: false,
    columns: {
      name: 'text',
      source: 'text',
      is_default: 'boolean',
      is_current: 'boolean',
      is_protected: 'boolean',
      created_at: 'timestamptz',
      expires_at: 'timestamptz',
    },
    run: listBranches,
  },
  fork: { arguments: [1, 2], isWrite: true, run: fork },
  checkout: {
    arguments: [1, 1],
    isWrite: true,
    isOfSession: true,
    async run(shell, [name]) {
      await shell.checkout(required('checkout', name))
      return required('checkout', name)
    },
  },
  checkpoint: { arguments: [0, 2], isWrite: true, run: makeCheckpoint },
  diff: {
    arguments: [0, 2],
    isWrite: false,
    columns: { table: 'text', id: 'text', kind: 'text', before: 'jsonb', after: 'jsonb' },
    run: listChanges,
  },
  merge: {
    arguments: [1, 2],
    isWrite: true,
    columns: { table: 'text', inserted: 'bigint', updated: 'bigint', deleted: 'bigint' },
    run: merge,
  },
  log: {
    arguments: [0, 0],
    isWrite: false,
    columns: { id: 'text', at: 'timestamptz', kind: 'text', entry: 'jsonb' },
    run: listLog,
  },
}

/** Returns the name of a branch. The contract says which names requests may have. */
function required(name: string, value: string | null | undefined): string {
  if (value === null || value === undefined || value === '') {
    throw new WireError('22004', `function offshoot.${name}: the name of a branch must not be null`)
  }
  if (Value.Check(BranchNameSchema, value)) return value
  throw new WireError('22023', `function offshoot.${name}: the name of a branch ${NAME_RULE}`)
}

const NAME_RULE = `has 1 to ${LIMITS.nameLengthMax} letters, digits, "_", "-" and "~"`

function listBranches({ services, branchName, onBranch }: BranchShell): Promise<object[]> {
  return onBranch('read', async (access) => {
    const { branches } = await readBranches(services.database, access)
    return branches.map((branch) => ({
      name: branch.name,
      source: branch.from ?? null,
      is_default: branch.default,
      is_current: branch.name === branchName,
      is_protected: branch.protected ?? false,
      created_at: branch.createdAt,
      expires_at: branch.expiresAt ?? null,
    }))
  })
}

/** Forks the branch of the session, or another one. */
function fork(
  { services, branchName, onBranch }: BranchShell,
  [given, from]: Given,
): Promise<string> {
  const name = required('fork', given)
  const { database, storage, sessions } = services
  return onBranch('write', async (own) => {
    const access = await resolveAddressedDatabase(database, own.principal, {
      address: { workspaceId: own.workspaceId, region: undefined },
      databaseName: own.databaseName,
      need: 'write',
    })
    await createBranch(storage, access, {
      name,
      wishes: { from: from ?? branchName },
      dataDefault: true,
      opens: sessions.opensNew(access.databaseId),
    })
    return name
  })
}

function makeCheckpoint({ services, onBranch }: BranchShell, [name, note]: Given): Promise<string> {
  const { storage, limits } = services
  return onBranch('write', async (access) => {
    const fields = { ...(name == null ? {} : { name }), ...(note == null ? {} : { note }) }
    if (!Value.Check(CreateCheckpointSchema, fields)) {
      throw new WireError(
        '22023',
        `function offshoot.checkpoint: the name ${NAME_RULE}, and the note at most ${LIMITS.labelLengthMax} characters`,
      )
    }
    const { id } = await createCheckpoint(storage, access, { ...fields, limits })
    return id
  })
}

/** Merges another branch into that of the session. */
function merge({ services, onBranch }: BranchShell, [given, strategy]: Given): Promise<object[]> {
  const name = required('merge', given)
  const { database, storage, sessions, limits } = services
  return onBranch('write', async (into) => {
    const source = await findSource(database, into)
    const { tables } = await withOther(database, into, { name, need: 'read' }, (from) =>
      mergeBranches(
        { storage, quotas: sessions.quotas },
        {
          // As over HTTP: a fork pulls from its source.
          kind: from.branchId === source?.branchId ? 'pull' : 'merge',
          from,
          into,
          dryRun: false,
          strategy: strategyOf(strategy),
          tables: {},
          resolutions: [],
          allowDataLoss: false,
          page: { size: CONFLICTS_PAGE_SIZE },
          limits,
        },
      ),
    )
    return tables.map(({ name: table, ...counts }) => ({ table, ...counts }))
  })
}

const STRATEGIES: readonly MergeStrategy[] = ['fail', 'ours', 'theirs']

function strategyOf(given: string | null | undefined): MergeStrategy {
  const strategy = STRATEGIES.find((each) => each === (given ?? 'fail'))
  if (strategy !== undefined) return strategy
  throw new WireError(
    '22023',
    `function offshoot.merge: the strategy must be one of ${STRATEGIES.join(', ')}`,
  )
}

/** Returns what the branch of the session has changed, compared with another one or with its source. */
function listChanges(
  { services, onBranch }: BranchShell,
  [against, onlyTable]: Given,
): Promise<object[]> {
  const { database, limits } = services
  return onBranch('read', async (access) => {
    let length = 0
    const read = async (shown: { tableName?: string; after?: string | undefined }) => {
      const options = { limits, size: limits.pageSizeMax, ...shown }
      const text =
        against == null
          ? await readDifference(database, access, { ...options, against: 'base' })
          : await withOther(database, access, { name: against, need: 'read' }, (other) =>
              readDifference(database, access, { ...options, against: other }),
            )
      length += text.length
      if (length > limits.answerBytesMax) {
        throw new WireError('54000', `the difference has more than ${limits.answerBytesMax} bytes`)
      }
      return JSON.parse(text) as Difference
    }
    const { tables } = await read(onlyTable == null ? {} : { tableName: onlyTable })
    const rows: object[] = []
    for (const { name, ...first } of tables) {
      let { changes, more, cursor } = first
      for (;;) {
        for (const change of changes) rows.push(toRow(name, change))
        if (rows.length > CHANGES_MAX) {
          throw new WireError('54000', `the difference has more than ${CHANGES_MAX} changes`, {
            hint: 'Name a table as the second argument, or use the command line or HTTP.',
          })
        }
        if (!more) break
        const [next] = (await read({ tableName: name, after: cursor })).tables
        if (next === undefined) break
        ;({ changes, more, cursor } = next)
      }
    }
    return rows
  })
}

function toRow(table: string, { change, id, record, columns }: Change): object {
  if (change === 'inserted') return { table, id, kind: change, before: null, after: record }
  if (change === 'deleted') return { table, id, kind: change, before: record, after: null }
  const entries = Object.entries(columns ?? {}) as [string, { from?: unknown; to?: unknown }][]
  const side = (key: 'from' | 'to') =>
    Object.fromEntries(entries.map(([column, values]) => [column, values[key] ?? null]))
  return { table, id, kind: change, before: side('from'), after: side('to') }
}

type Difference = Static<typeof DifferenceSchema>
type Change = Difference['tables'][number]['changes'][number]

function listLog({ services, onBranch }: BranchShell): Promise<object[]> {
  return onBranch('read', async (access) => {
    const { entries } = await readLog(services.database, access, { size: ENTRIES_MAX })
    return entries.map((entry) => ({ id: entry.id, at: entry.at, kind: entry.kind, entry }))
  })
}
