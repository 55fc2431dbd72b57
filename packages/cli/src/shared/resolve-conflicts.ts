import {
  type CellConflict,
  type CellResolution,
  type ColumnDefinition,
  type ColumnType,
  type ConflictTable,
  type MergeConflict,
  type MergeOptions,
  type MergeResult,
  OffshootError,
  type Resolution,
  type RuleConflict,
  resolutionOf,
  type SchemaDefinition,
  type Take,
} from '@offshoot/client'
import { describeConflict } from './describe-conflict.js'
import { Failure } from './failure.js'
import { inLine, notice, oneLine } from './output.js'
import { loadPrompts } from './prompts.js'

/** The decisions of a user about the conflicts of a merge. */
interface Decided {
  readonly resolutions: readonly Resolution[]
  /** Whether no conflict is left. */
  readonly isComplete: boolean
}

interface MergedBranch {
  readonly branch: { schema(): Promise<SchemaDefinition> }
  readonly merge: (options: MergeOptions) => Promise<MergeResult>
}

/** Conflicts per request. Each request compares the branches again. */
const PAGE_SIZE = 1000

/** The decision for all further conflicts. */
type Rest = Take | 'skip'

/**
 * Goes through the conflicts of a merge in the terminal, without those that are decided already. Deciding some can
 * bring up others: records are only compared once the schemas fit, and a value may not be unique. So the merge is tried
 * until nothing is left.
 */
export async function resolveConflicts(
  on: MergedBranch,
  options: MergeOptions,
  decided: readonly Resolution[],
): Promise<Decided> {
  let resolutions = decided
  const types = typesOf(await on.branch.schema())
  for (;;) {
    const tried = await listConflicts(on, { ...options, resolutions })
    resolutions = tried.resolutions
    const { conflicts } = tried
    if (conflicts.length === 0) return { resolutions, isComplete: true }
    const added: Resolution[] = []
    for (const [index, conflict] of conflicts.entries()) {
      const answer = await ask(conflict, `${index + 1} of ${conflicts.length}`, types)
      if (answer === 'skip') {
        return { resolutions: [...resolutions, ...added], isComplete: false }
      }
      if (typeof answer === 'string') {
        added.push(...takeAll(answer, { conflicts: conflicts.slice(index), tables: tried.tables }))
        break
      }
      added.push(answer)
    }
    resolutions = joined([...resolutions, ...added])
  }
}

/** Takes a side for conflicts of the schema, and for whole tables. What comes later is not decided by that. */
function takeAll(
  take: Take,
  left: { conflicts: readonly MergeConflict[]; tables: readonly ConflictTable[] },
): Resolution[] {
  const schemas = left.conflicts.flatMap((conflict) =>
    conflict.kind === 'schema' && conflict.takes.includes(take) ? resolutionOf(conflict, take) : [],
  )
  const withRecords = new Set(
    left.conflicts.flatMap((conflict) => ('id' in conflict ? conflict.table : [])),
  )
  const tables = left.tables.flatMap(({ name, token }) =>
    token !== undefined && withRecords.has(name) ? [{ table: name, take, token }] : [],
  )
  return [...schemas, ...tables]
}

/** Joins decisions about columns of the same record, which must be one resolution. */
function joined(resolutions: readonly Resolution[]): Resolution[] {
  const byKey = new Map<string, Resolution>()
  for (const resolution of resolutions) {
    const {
      columns: _columns,
      take: _take,
      token: _token,
      ...key
    } = resolution as Record<string, unknown>
    const name = JSON.stringify(key)
    const earlier = byKey.get(name)
    byKey.set(
      name,
      earlier !== undefined && 'columns' in earlier && 'columns' in resolution
        ? { ...resolution, columns: { ...earlier.columns, ...resolution.columns } }
        : resolution,
    )
  }
  return [...byKey.values()]
}

/** Lists the conflicts that are left, and their tables. Resolutions of what has changed since are dropped. */
async function listConflicts(
  { merge }: MergedBranch,
  options: MergeOptions & { readonly resolutions: readonly Resolution[] },
): Promise<{
  conflicts: MergeConflict[]
  tables: readonly ConflictTable[]
  resolutions: readonly Resolution[]
}> {
  const conflicts: MergeConflict[] = []
  let { resolutions } = options
  for (let after: string | undefined; ; ) {
    const page = { size: PAGE_SIZE, ...(after === undefined ? {} : { after }) }
    try {
      const result = await merge({ ...options, resolutions, dryRun: true, page })
      conflicts.push(...result.conflicts)
      after = result.cursor
      if (after === undefined) return { conflicts, tables: result.conflictTables, resolutions }
    } catch (error) {
      const faults = refusedResolutions(error)
      if (faults === undefined) throw error
      for (const message of faults.values()) notice(`Decide again: ${message}`)
      resolutions = resolutions.filter((_, index) => !faults.has(index))
      conflicts.length = 0
      after = undefined
    }
  }
}

/** Returns the messages about refused resolutions by their index. undefined: that is not the error. */
export function refusedResolutions(error: unknown): ReadonlyMap<number, string> | undefined {
  if (!(error instanceof OffshootError) || error.errors === undefined) return undefined
  if (error.code !== 'outdated_resolution' && error.code !== 'invalid_resolution') return undefined
  return new Map(error.errors.map(({ index, message }) => [index, message]))
}

type TypeOf = (table: string, path: string) => ColumnType | undefined

/** Returns a function for the types of columns, by the name of the table and the path of the column. */
function typesOf({ tables }: SchemaDefinition): TypeOf {
  const types = new Map<string, ColumnType>()
  const add = (prefix: string, columns: readonly ColumnDefinition[]) => {
    for (const { name, type, columns: nested = [] } of columns) {
      types.set(`${prefix}.${name}`, type)
      add(`${prefix}.${name}`, nested)
    }
  }
  for (const { name, columns } of tables) add(name, columns)
  return (table, path) => types.get(`${table}.${path}`)
}

/** Asks about one conflict. Returns its resolution, or what is to be done with all that are left. */
async function ask(
  conflict: MergeConflict,
  position: string,
  typeOf: TypeOf,
): Promise<Resolution | Rest> {
  for (const line of describeConflict(conflict)) notice(line)
  const takes: readonly Take[] =
    conflict.kind === 'schema' ? conflict.takes : 'id' in conflict ? ['ours', 'theirs'] : []
  const choices = [
    ...takes.map((take) => ({ value: take as string, label: TAKES[take] })),
    ...('columns' in conflict ? [{ value: 'columns', label: 'decide each column' }] : []),
    ...('ids' in conflict ? [{ value: 'value', label: 'give a record another value' }] : []),
  ]
  if (choices.length === 0) notice('Only a change of one of the branches decides this conflict.')
  const further = [
    // No side decides the rule of a column.
    ...(takes.length < 2 ? [] : ALL),
    { value: 'skip', label: 'stop here, and merge nothing yet' },
    { value: 'abort', label: 'abort' },
  ]
  const choice = await choose(`Conflict ${position}`, [...choices, ...further])
  switch (choice) {
    case 'all-ours':
      return 'ours'
    case 'all-theirs':
      return 'theirs'
    case 'skip':
      return 'skip'
    case 'abort':
      throw aborted()
    default:
  }
  if (choice === 'columns' && 'columns' in conflict) {
    return resolutionOf(conflict, await askForColumns(conflict, typeOf))
  }
  if ('ids' in conflict) return askForValue(conflict, typeOf)
  return resolutionOf(conflict, choice as Take)
}

const ALL = [
  { value: 'all-ours', label: 'ours for this and all that are left' },
  { value: 'all-theirs', label: 'theirs for this and all that are left' },
]

const TAKES = {
  ours: 'ours: keep what the target has',
  theirs: 'theirs: take what the merged branch has',
} as const

async function askForColumns(
  conflict: CellConflict,
  typeOf: TypeOf,
): Promise<Record<string, CellResolution>> {
  const decided: [string, CellResolution][] = []
  for (const [name, { ours, theirs }] of Object.entries(conflict.columns)) {
    const choice = await choose(`${conflict.table}/${oneLine(conflict.id)}: ${name}`, [
      { value: 'ours', label: `ours: ${oneLine(ours ?? null)}` },
      { value: 'theirs', label: `theirs: ${oneLine(theirs ?? null)}` },
      { value: 'value', label: 'another value' },
      { value: 'null', label: 'no value' },
    ])
    if (choice === 'value') {
      decided.push([name, { value: await askFor(name, typeOf(conflict.table, name)) }])
    } else if (choice === 'null') decided.push([name, { value: null }])
    else decided.push([name, { take: choice as Take }])
  }
  return Object.fromEntries(decided)
}

async function askForValue(conflict: RuleConflict, typeOf: TypeOf): Promise<Resolution> {
  const { table, column, ids } = conflict
  const [only = ''] = ids
  const id =
    ids.length === 1
      ? only
      : await choose(
          `Which record gets another value in ${column}?`,
          ids.map((value) => ({ value, label: oneLine(value) })),
        )
  const value = await askFor(column, typeOf(table, column))
  return { table, id, columns: { [column]: { value } }, token: conflict.tokens[id] ?? '' }
}

/** Types whose values are typed as they are. Others are typed as JSON. */
const PLAIN_TYPES: ReadonlySet<ColumnType | undefined> = new Set([
  'string',
  'text',
  'email',
  'datetime',
  'decimal',
  'date',
  'time',
  'uuid',
  'enum',
  'link',
])

async function askFor(name: string, type: ColumnType | undefined): Promise<unknown> {
  const isPlain = PLAIN_TYPES.has(type)
  const { isCancel, text } = await loadPrompts()
  const answer = await text({
    message: inLine(`${name}${isPlain ? '' : ' (as JSON)'}:`),
    output: process.stderr,
    validate: (input = '') => (isPlain || isJson(input) ? undefined : 'This is not JSON.'),
  })
  if (isCancel(answer)) throw aborted()
  return isPlain ? answer : JSON.parse(answer)
}

function isJson(input: string): boolean {
  try {
    JSON.parse(input)
    return true
  } catch {
    return false
  }
}

async function choose(
  message: string,
  options: readonly { value: string; label: string }[],
): Promise<string> {
  const { isCancel, select } = await loadPrompts()
  const answer = await select({
    message: inLine(message),
    options: options.map(({ value, label }) => ({ value, label: inLine(label) })),
    output: process.stderr,
  })
  if (isCancel(answer)) throw aborted()
  return answer
}

function aborted(): Failure {
  return new Failure('aborted; nothing was merged')
}
