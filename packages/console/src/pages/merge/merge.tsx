import {
  type ConflictTable,
  type MergeConflict,
  type MergeResult,
  OffshootError,
  type OperationInfo,
  type Take,
} from '@offshoot/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { Link, useSearch } from 'wouter'
import { keys } from '../../api/answers.js'
import { cancelOperation, useLongWork } from '../../api/long-work.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useBranches, useSchema } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { isTyping } from '../../app/shortcuts.js'
import { Button } from '../../ui/button.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Checkbox } from '../../ui/field.js'
import { OperationProgress } from '../../ui/operation-progress.js'
import { Page } from '../../ui/page.js'
import { Counts, SchemaChanges } from '../../ui/schema-changes.js'
import { Switcher } from '../../ui/switcher.js'
import { TableHead } from '../../ui/table-head.js'
import { notify } from '../../ui/toasts.js'
import { type BranchChange, runChange, wordsOf } from './branch-change.js'
import { ConflictCard, nameOf } from './conflict-card.js'
import {
  type Decisions,
  decide,
  decidePart,
  decideTable,
  decisionOf,
  isReopened,
  isSettled,
  keyOf,
  NO_DECISIONS,
  resolutionsOf,
  type Shown,
  tableTake,
  takeByTable,
  takesOf,
  takesOfTable,
  withoutDecisions,
} from './decisions.js'
import './merge.css'

type Action = 'merge' | 'pull'

/** A refused merge: the reason, and the conflicts that were open then. */
interface Refusal {
  readonly error: unknown
  readonly open: readonly string[]
}

const NOTHING: Shown = { conflicts: [], tables: [] }

/** Merge, pull and revert: a dry run first, then conflicts are settled, then everything is applied in one go. */
export function MergePage() {
  const query = new URLSearchParams(useSearch())
  return query.get('action') === 'revert' ? <Revert query={query} /> : <MergeOrPull query={query} />
}

/** Takes back an entry of the log, or what happened between two checkpoints. */
function Revert({ query }: { query: URLSearchParams }) {
  const place = usePlace()
  const entry = query.get('entry')
  const range = { from: query.get('since') ?? '', to: query.get('until') ?? '' }
  const step = entry === null ? range : { entry }
  return (
    <Page
      title="Revert"
      subtitle={
        <>
          Takes back {query.get('what') ?? 'a change'} on <strong>{place.branch}</strong>, and keeps
          what came later
        </>
      }
      actions={
        <Link className="button plain" href={href(paths.timeline(place))}>
          Back to the timeline
        </Link>
      }
    >
      <MergeView key={JSON.stringify(step)} change={{ kind: 'revert', step }} />
    </Page>
  )
}

function MergeOrPull({ query }: { query: URLSearchParams }) {
  const place = usePlace()
  const branches = useBranches(place)
  const action: Action = query.get('action') === 'pull' ? 'pull' : 'merge'
  const source = branches.data?.find(({ name }) => name === place.branch)?.from
  const other = query.get('into') ?? query.get('from') ?? source
  const go = (next: Action, name: string | undefined) => {
    const parameters = new URLSearchParams({
      action: next,
      ...(name === undefined ? {} : { into: name }),
    })
    goTo(`${paths.merge(place)}?${parameters}`)
  }
  const others = (branches.data ?? []).filter(({ name }) => name !== place.branch)
  const switcher = (
    <Switcher
      label={action === 'merge' ? 'Merge into' : 'Pull from'}
      current={other ?? 'choose a branch'}
      choices={others.map(({ name }) => ({ id: name, text: name }))}
      onChoose={({ id }) => go(action, id)}
    />
  )
  return (
    <Page
      title="Merge and pull"
      subtitle={
        <span className="row">
          {action === 'merge' ? (
            <>
              <strong>{place.branch}</strong> <span className="merge-arrow">→</span> {switcher}
            </>
          ) : (
            <>
              {switcher} <span className="merge-arrow">→</span> <strong>{place.branch}</strong>
            </>
          )}
        </span>
      }
      actions={
        <>
          <Button aria-pressed={action === 'merge'} onClick={() => go('merge', other)}>
            Merge
          </Button>
          <Button aria-pressed={action === 'pull'} onClick={() => go('pull', other)}>
            Pull
          </Button>
        </>
      }
    >
      {branches.isSuccess && other === undefined && (
        <Empty
          icon="merge"
          title={`${place.branch} was not forked from a branch`}
          actions={
            <Link className="button primary" href={href(paths.branches(place))}>
              See the branches
            </Link>
          }
        >
          Choose a branch above, or open this page on one of its forks.
        </Empty>
      )}
      {other !== undefined && (
        <MergeView key={`${action} ${other}`} change={{ kind: action, other }} />
      )}
    </Page>
  )
}

function MergeView({ change }: { change: BranchChange }) {
  const place = usePlace()
  const branch = useBranch()
  const queries = useQueryClient()
  const { canWrite } = useRights()
  const schema = useSchema()
  const [decisions, setDecisions] = useState<Decisions>(NO_DECISIONS)
  const [more, setMore] = useState<readonly MergeConflict[]>([])
  const [cursor, setCursor] = useState<string | undefined>()
  const [chosen, setChosen] = useState(0)
  const [allowDataLoss, setAllowDataLoss] = useState(false)
  const [isBusy, setBusy] = useState(false)
  const [refusal, setRefusal] = useState<Refusal | null>(null)
  /** The conflicts that a refused merge has listed. Some come up only when others are decided. */
  const [uncovered, setUncovered] = useState(NOTHING)
  const [done, setDone] = useState<MergeResult | null>(null)
  /** The operation of the dry run, if it takes long. */
  const [compared, setCompared] = useState<OperationInfo | null>(null)
  const work = useLongWork<MergeResult>((outcome) => {
    if ('result' in outcome) void end(outcome.result)
    else setRefusal({ error: outcome.error, open: [] })
  })
  const words = wordsOf(change, place.branch)
  const { sides } = words
  const plan = useQuery({
    queryKey: [...keys.branch(place), 'change', change],
    queryFn: ({ signal }) =>
      runChange(branch, change, { dryRun: true, signal, onProgress: setCompared }),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    enabled: done === null && !work.isUnderWay,
  })
  useEffect(() => {
    setMore([])
    setCursor(plan.data?.cursor)
  }, [plan.data])
  const shown = withUncovered(
    {
      conflicts: [...(plan.data?.conflicts ?? []), ...more],
      tables: plan.data?.conflictTables ?? [],
    },
    uncovered,
  )
  const { conflicts } = shown
  const open = conflicts.filter((conflict) => !isSettled(conflict, decisions, shown))
  const total = shown.tables.reduce((sum, table) => sum + table.conflicts, 0)
  const hidden = shown.tables.reduce((sum, { name, conflicts: count }) => {
    const loaded = conflicts.filter(({ table }) => table === name).length
    return sum + (tableTake(name, decisions, shown) === undefined ? count - loaded : 0)
  }, 0)
  const left = open.length + Math.max(0, hidden)

  const loadMore = async () => {
    setBusy(true)
    try {
      const page = await runChange(branch, change, { dryRun: true, page: { after: cursor ?? '' } })
      setMore([...more, ...page.conflicts])
      setCursor(page.cursor)
    } catch (error) {
      setRefusal({ error, open: [] })
    } finally {
      setBusy(false)
    }
  }
  const apply = async () => {
    setBusy(true)
    setRefusal(null)
    try {
      const resolutions = resolutionsOf(shown, decisions)
      await work.run(async (onProgress) => {
        const options = {
          ...(resolutions.length === 0 ? {} : { resolutions }),
          ...(allowDataLoss ? { allowDataLoss } : {}),
          onProgress,
        }
        await end(await runChange(branch, change, options))
      })
    } catch (error) {
      setRefusal({ error, open: isAboutConflicts(error) ? await reopen(error) : [] })
    } finally {
      setBusy(false)
    }
  }
  const end = async (result: MergeResult) => {
    setDone(result)
    notify(words.done)
    await queries.invalidateQueries({ queryKey: keys.database(place) })
  }
  /**
   * Somebody has changed a record meanwhile, or the result breaks a rule. Reads the conflicts again, and returns the
   * names of those that are open now. Decisions about what was shown before do not count any more.
   */
  const reopen = async ({ code, body }: OffshootError): Promise<string[]> => {
    const found = {
      conflicts: (body.conflicts ?? []) as readonly MergeConflict[],
      tables: (body.conflictTables ?? []) as readonly ConflictTable[],
    }
    const { data } = await plan.refetch()
    const now = withUncovered(
      { conflicts: data?.conflicts ?? [], tables: data?.conflictTables ?? [] },
      found,
    )
    // A merge that found nothing outdated has refused these decisions: they settle nothing.
    const kept =
      code === 'merge_conflict' ? withoutDecisions(decisions, found.conflicts) : decisions
    setUncovered(found)
    setDecisions(kept)
    return now.conflicts.filter((conflict) => !isSettled(conflict, kept, now)).map(nameOf)
  }
  useConflictKeys({
    conflicts,
    chosen,
    setChosen,
    onTake: (conflict, take) => setDecisions(decide(decisions, conflict, take)),
  })

  if (done !== null) return <Done change={change} result={done} />
  if (work.operation !== undefined) {
    return <OperationProgress operation={work.operation} onCancel={cancelOperation} />
  }
  if (work.error !== null) return <ErrorNote error={work.error} onRetry={work.forget} />
  if (plan.isPending) {
    return compared === null ? (
      <Loading lines={8} label="Comparing the branches" />
    ) : (
      <OperationProgress operation={compared} name="comparison" onCancel={cancelOperation} />
    )
  }
  if (plan.isError) return <ErrorNote error={plan.error} onRetry={() => void plan.refetch()} />
  const { data } = plan
  const changed = data.tables.filter((table) => table.inserted + table.updated + table.deleted > 0)
  const listed = data.tables.filter(
    (table) =>
      changed.includes(table) || data.conflictTables.some(({ name }) => name === table.name),
  )
  const isNothing = total === 0 && changed.length === 0 && data.schema.operations.length === 0
  if (isNothing) {
    return (
      <Empty icon="check" title={words.nothing[0]}>
        {words.nothing[1]}
      </Empty>
    )
  }
  const typeOf = (table: string, column: string) =>
    schema.tables.find(({ name }) => name === table)?.columns.find(({ name }) => name === column)
      ?.type ?? 'string'
  return (
    <>
      <section className="card">
        <header className="card-head">
          <h2 className="grow">What {sides.ours} will get</h2>
          <Tag>dry run</Tag>
        </header>
        <div className="card-body stack">
          {data.schema.operations.length > 0 && (
            <SchemaChanges operations={data.schema.operations} />
          )}
          {listed.length > 0 && (
            <table className="facts">
              <TableHead titles={['Table', 'Rows', 'Conflicts']} />
              <tbody>
                {listed.map((table) => (
                  <tr key={table.name}>
                    <td>{table.name}</td>
                    <td>
                      <Counts {...table} />
                    </td>
                    <td>
                      {data.conflictTables.find(({ name }) => name === table.name)?.conflicts ?? 0}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          {total === 0 ? (
            <p className="note good">There are no conflicts.</p>
          ) : (
            <p className="muted">
              Both sides have changed the same values. Click the value that should win, type another
              one, or take a side for a whole record or table.
            </p>
          )}
        </div>
      </section>
      {data.dataLoss.length > 0 && (
        <section className="note warn">
          <div className="stack">
            <p>The schema changes remove values from {sides.ours}:</p>
            <ul>
              {data.dataLoss.map(({ table, column, records, more: isMore }) => (
                <li key={`${table} ${column}`}>
                  {column === undefined ? table : `${table}.${column}`}: {records}
                  {isMore ? ' or more' : ''} records
                </li>
              ))}
            </ul>
            <Checkbox
              label="Lose these values"
              checked={allowDataLoss}
              onChange={setAllowDataLoss}
            />
          </div>
        </section>
      )}
      {shown.tables.map(({ name, conflicts: count }) => (
        <section key={name} className="stack" aria-label={`Conflicts of ${name}`}>
          <header className="row">
            <h2>{name}</h2>
            <Tag kind="warn">
              {count} {count === 1 ? 'conflict' : 'conflicts'}
            </Tag>
            <span className="grow" />
            {takesOfTable(name, shown).length > 0 && (
              <span className="faint">all others of this table:</span>
            )}
            {takesOfTable(name, shown).map((take) => (
              <Button
                key={take}
                className="side small"
                aria-pressed={tableTake(name, decisions, shown) === take}
                onClick={() => setDecisions(decideTable(decisions, { table: name, take }, shown))}
              >
                {take === 'ours' ? `Keep ${sides.ours}` : `Take ${sides.theirs}`}
              </Button>
            ))}
          </header>
          {conflicts.map((conflict, i) =>
            conflict.table !== name ? null : (
              <ConflictCard
                key={keyOf(conflict)}
                conflict={conflict}
                sides={sides}
                decision={decisionOf(conflict, decisions)}
                tableTake={takeByTable(conflict, decisions, shown)}
                isSettled={isSettled(conflict, decisions, shown)}
                isReopened={isReopened(conflict, decisions, shown)}
                isChosen={i === chosen}
                typeOf={(column) => typeOf(name, column)}
                onChoose={() => setChosen(i)}
                onDecide={(take) => setDecisions(decide(decisions, conflict, take))}
                onPart={(part, cell) =>
                  setDecisions(decidePart(decisions, conflict, { name: part, cell }))
                }
              />
            ),
          )}
        </section>
      ))}
      {cursor !== undefined && (
        <div className="row">
          <Button isBusy={isBusy} onClick={() => void loadMore()}>
            Show more conflicts
          </Button>
          <span className="muted">
            {conflicts.length} of {total} are shown
          </span>
        </div>
      )}
      <footer className="merge-foot">
        {refusal !== null && <RefusalNote {...refusal} title={words.refused} />}
        {total > 0 && (
          <>
            <progress
              aria-label="Settled conflicts"
              max={total}
              value={Math.max(0, total - left)}
            />
            <span className="muted">
              {Math.max(0, total - left)} of {total} settled
            </span>
          </>
        )}
        <span className="grow" />
        {total > 0 && (
          <Button
            onClick={() => {
              setDecisions(NO_DECISIONS)
              setRefusal(null)
            }}
            disabled={decisions === NO_DECISIONS}
          >
            Start over
          </Button>
        )}
        {canWrite && (
          <Button
            kind="primary"
            icon={change.kind === 'revert' ? 'undo' : 'merge'}
            isBusy={isBusy}
            disabled={left > 0 || (data.dataLoss.length > 0 && !allowDataLoss)}
            onClick={() => void apply()}
          >
            {words.action}
          </Button>
        )}
      </footer>
    </>
  )
}

/** Returns whether a merge was refused for conflicts that are open, or for decisions that do not fit any more. */
function isAboutConflicts(error: unknown): error is OffshootError {
  return (
    error instanceof OffshootError &&
    (error.code === 'merge_conflict' ||
      error.code === 'outdated_resolution' ||
      error.code === 'invalid_resolution')
  )
}

/**
 * Adds conflicts that only a refused merge has. A conflict of a table that is not shown as a whole may be on the next
 * page.
 */
function withUncovered({ conflicts, tables }: Shown, uncovered: Shown): Shown {
  const known = new Set(conflicts.map(keyOf))
  const countOf = (name: string) => tables.find((table) => table.name === name)?.conflicts ?? 0
  const isWhole = (name: string) =>
    countOf(name) <= conflicts.filter(({ table }) => table === name).length
  const added = uncovered.conflicts.filter(
    (conflict) => !known.has(keyOf(conflict)) && isWhole(conflict.table),
  )
  const names = new Set([...tables.map(({ name }) => name), ...added.map(({ table }) => table)])
  return {
    conflicts: [...conflicts, ...added],
    tables: [...names].map((name) => {
      const [token] = [tables, uncovered.tables].flatMap(
        (list) => list.find((table) => table.name === name)?.token ?? [],
      )
      const count = countOf(name) + added.filter(({ table }) => table === name).length
      return { name, conflicts: count, ...(token === undefined ? {} : { token }) }
    }),
  }
}

/** The maximum number of open conflicts that a refusal names. */
const NAMED_CONFLICTS = 3

/** Why nothing was merged, beside the button, and what to do now. Brings the first open conflict into view. */
function RefusalNote({ error, open, title }: Refusal & { title: string }) {
  const isOpen = open.length > 0
  useEffect(() => {
    if (isOpen) document.querySelector('.conflict.unsettled')?.scrollIntoView({ block: 'center' })
  }, [isOpen])
  const others = open.length - NAMED_CONFLICTS
  return (
    <div className="merge-refusal">
      <ErrorNote error={error}>
        {isOpen && (
          <>
            <strong>{title}</strong>{' '}
            {isOutdated(error)
              ? 'Values have changed since you decided about them. Decide again:'
              : 'There are conflicts that nothing decides yet:'}{' '}
            {open.slice(0, NAMED_CONFLICTS).join(', ')}
            {others > 0 && ` and ${others} more`}
          </>
        )}
      </ErrorNote>
    </div>
  )
}

function isOutdated(error: unknown): boolean {
  return error instanceof OffshootError && error.code !== 'merge_conflict'
}

/** `j` and `k` move between conflicts, `o` and `t` take a side. */
function useConflictKeys({
  conflicts,
  chosen,
  setChosen,
  onTake,
}: {
  conflicts: readonly MergeConflict[]
  chosen: number
  setChosen: (index: number) => void
  onTake: (conflict: MergeConflict, take: Take) => void
}): void {
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return
      const conflict = conflicts[chosen]
      if (conflict === undefined) return
      const move = (to: number) => {
        const next = Math.max(0, Math.min(conflicts.length - 1, to))
        setChosen(next)
        document.querySelectorAll('.conflict')[next]?.scrollIntoView({ block: 'nearest' })
      }
      if (event.key === 'j') move(chosen + 1)
      else if (event.key === 'k') move(chosen - 1)
      else if (event.key === 'o' || event.key === 't') {
        const take = event.key === 'o' ? 'ours' : 'theirs'
        if (!takesOf(conflict).includes(take)) return
        onTake(conflict, take)
        move(chosen + 1)
      }
    }
    window.addEventListener('keydown', listen)
    return () => window.removeEventListener('keydown', listen)
  })
}

function Done({ change, result }: { change: BranchChange; result: MergeResult }) {
  const place = usePlace()
  const target = { ...place, branch: result.into }
  return (
    <Empty
      icon="check"
      title={wordsOf(change, place.branch).done}
      actions={
        <>
          <Link className="button plain" href={href(paths.timeline(target))}>
            See the timeline
          </Link>
          <Link className="button plain" href={href(paths.branches(place))}>
            See the branches
          </Link>
          <Link className="button primary" href={href(paths.branch(target))}>
            Open {result.into}
          </Link>
        </>
      }
    >
      {result.tables.length === 0 ? 'No rows changed.' : null}
      {result.tables.map((table) => (
        <p key={table.name}>
          {table.name} <Counts {...table} />
        </p>
      ))}
    </Empty>
  )
}
