import type { BranchSummary } from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { useVirtualizer } from '@tanstack/react-virtual'
import { type KeyboardEvent, useMemo, useRef, useState } from 'react'
import { Link } from 'wouter'
import { keys } from '../../api/answers.js'
import { clientOf } from '../../api/clients.js'
import { usePlace } from '../../api/place.js'
import { useBranches } from '../../api/queries.js'
import { clientSample, curlSample } from '../../api/samples.js'
import { useRights } from '../../api/session.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button, IconButton } from '../../ui/button.js'
import { CodeButton } from '../../ui/code-samples.js'
import { ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Icon } from '../../ui/icon.js'
import { Menu } from '../../ui/menu.js'
import { Page } from '../../ui/page.js'
import { Ago, relativeTime } from '../../ui/time.js'
import { type BranchAction, BranchDialog } from './branch-dialogs.js'
import { BranchGraph, FOLD_WIDTH, graphWidth, ROW_HEIGHT } from './graph.js'
import { type BranchRow, layOutBranches } from './layout.js'
import './branches.css'

const NO_BRANCHES: readonly BranchSummary[] = []
const NO_GIT: ReadonlyMap<string, readonly string[]> = new Map()

/** The graph of the branches of a database. */
export function Branches() {
  const place = usePlace()
  const branches = useBranches(place)
  const rights = useRights()
  const git = useGitBranches()
  const [typed, setTyped] = useState('')
  const [collapsed, setCollapsed] = useState<ReadonlySet<string>>(new Set())
  const [active, setActive] = useState(0)
  const [action, setAction] = useState<BranchAction | null>(null)
  const list = branches.data ?? NO_BRANCHES
  const layout = useMemo(() => {
    const words = typed
      .toLowerCase()
      .split(/\s+/)
      .filter((word) => word !== '')
    const found = list.filter(({ name }) =>
      words.every((word) => name.toLowerCase().includes(word)),
    )
    return layOutBranches(found, words.length > 0 ? new Set() : collapsed)
  }, [list, typed, collapsed])
  const scroller = useRef<HTMLDivElement>(null)
  const rows = useVirtualizer({
    count: layout.rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 6,
  })
  const items = rows.getVirtualItems()
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0]
  const width = graphWidth(layout)
  const toggle = (name: string) => {
    const next = new Set(collapsed)
    if (!next.delete(name)) next.add(name)
    setCollapsed(next)
  }
  const move = (to: number) => {
    const next = Math.max(0, Math.min(layout.rows.length - 1, to))
    setActive(next)
    rows.scrollToIndex(next)
    requestAnimationFrame(() =>
      scroller.current?.querySelector<HTMLElement>(`[data-row="${next}"] a`)?.focus(),
    )
  }
  const onKey = (event: KeyboardEvent) => {
    const row = layout.rows[active]
    if (row === undefined || !(event.target instanceof HTMLAnchorElement)) return
    const isOpen = !collapsed.has(row.branch.name)
    if (event.key === 'ArrowDown') move(active + 1)
    else if (event.key === 'ArrowUp') move(active - 1)
    else if (event.key === 'Home') move(0)
    else if (event.key === 'End') move(layout.rows.length - 1)
    else if (event.key === 'ArrowLeft' && row.below > 0 && isOpen) toggle(row.branch.name)
    else if (event.key === 'ArrowLeft' && row.parent !== undefined) move(row.parent)
    else if (event.key === 'ArrowRight' && row.below > 0 && !isOpen) toggle(row.branch.name)
    else return
    event.preventDefault()
  }
  const main = list.find((branch) => branch.default)?.name ?? list[0]?.name
  return (
    <Page
      title="Branches"
      subtitle={
        branches.data &&
        `${list.length.toLocaleString()} ${list.length === 1 ? 'branch' : 'branches'} of ${place.database}`
      }
      isFull
      actions={
        <>
          <input
            type="search"
            aria-label="Search branches"
            placeholder="Search branches"
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
          {list.length > 20 && (
            <>
              <Button
                onClick={() =>
                  setCollapsed(
                    new Set(
                      layout.rows
                        .filter(({ below, depth }) => below > 0 && depth > 0)
                        .map(({ branch }) => branch.name),
                    ),
                  )
                }
              >
                Collapse
              </Button>
              <Button onClick={() => setCollapsed(new Set())}>Expand</Button>
            </>
          )}
          <CodeButton
            title="List these branches elsewhere"
            samples={() => {
              const sampled = { ...place, branch: main ?? place.branch }
              return {
                'Client code': clientSample(
                  sampled,
                  'for (const { name, from } of await client.database.branches()) console.log(name, from)',
                ),
                curl: curlSample(sampled, '', { of: 'database' }),
              }
            }}
          />
          {rights.canWrite && main !== undefined && (
            <Button
              kind="primary"
              icon="branch"
              onClick={() => setAction({ kind: 'fork', branch: main })}
            >
              New branch
            </Button>
          )}
        </>
      }
    >
      <ErrorNote error={branches.error} onRetry={() => void branches.refetch()} />
      {branches.isPending && <Loading lines={8} />}
      {branches.data && layout.rows.length === 0 && (
        <p className="muted">No branch has “{typed}” in its name.</p>
      )}
      <div className="branch-scroll" ref={scroller}>
        <ul
          className="branch-list"
          aria-label="Branches"
          onKeyDown={onKey}
          style={{ height: rows.getTotalSize() }}
        >
          {items.map(({ index, start }) => {
            const row = layout.rows[index]
            if (row === undefined) return null
            return (
              <BranchItem
                key={row.branch.name}
                row={row}
                index={index}
                start={start}
                indent={width}
                isActive={index === active}
                isCollapsed={collapsed.has(row.branch.name)}
                git={git.get(row.branch.name) ?? []}
                onToggle={() => toggle(row.branch.name)}
                onFocus={() => setActive(index)}
                onAction={setAction}
              />
            )
          })}
        </ul>
        {items.length > 0 && (
          <BranchGraph layout={layout} first={first} last={last} width={width} />
        )}
      </div>
      {action !== null && (
        <BranchDialog action={action} branches={list} onClose={() => setAction(null)} />
      )}
    </Page>
  )
}

/** The git branches of each branch. */
function useGitBranches(): ReadonlyMap<string, readonly string[]> {
  const place = usePlace()
  const { data } = useQuery({
    queryKey: [...keys.database(place), 'git'],
    queryFn: ({ signal }) => clientOf(place).database.gitBranches({ signal }),
  })
  return useMemo(() => {
    if (data === undefined) return NO_GIT
    const mapped = new Map<string, string[]>()
    for (const { gitBranch, serviceBranch } of data) {
      mapped.set(serviceBranch, [...(mapped.get(serviceBranch) ?? []), gitBranch])
    }
    return mapped
  }, [data])
}

function BranchItem({
  row: { branch, below },
  index,
  start,
  indent,
  isActive,
  isCollapsed,
  git,
  onToggle,
  onFocus,
  onAction,
}: {
  row: BranchRow
  index: number
  start: number
  indent: number
  isActive: boolean
  isCollapsed: boolean
  git: readonly string[]
  onToggle: () => void
  onFocus: () => void
  onAction: (action: BranchAction) => void
}) {
  const place = { ...usePlace(), branch: branch.name }
  const { canWrite } = useRights()
  const { name } = branch
  const act = (kind: BranchAction['kind']) => () => onAction({ kind, branch: name })
  return (
    <li
      className="branch-item"
      data-row={index}
      style={{ transform: `translateY(${start}px)`, height: ROW_HEIGHT, paddingLeft: indent }}
    >
      {below > 0 && (
        <button
          type="button"
          className="branch-fold"
          style={{ left: indent - FOLD_WIDTH }}
          aria-expanded={!isCollapsed}
          aria-label={`${isCollapsed ? 'Show' : 'Hide'} ${below} branches below ${name}`}
          title={`${below} below`}
          onClick={onToggle}
        >
          <Icon name={isCollapsed ? 'right' : 'chevron'} size={12} />
        </button>
      )}
      <Link
        className="branch-name clip"
        href={href(paths.branch(place))}
        tabIndex={isActive ? 0 : -1}
        onFocus={onFocus}
        title={name}
      >
        {name}
      </Link>
      <span className="branch-tags">
        {branch.default && <Tag kind="good">default</Tag>}
        {branch.protected && (
          <Tag kind="info" title="Cannot be deleted, and does not expire">
            <Icon name="lock" size={11} /> protected
          </Tag>
        )}
        {branch.protected && (branch.requiredApprovals ?? 0) > 0 && (
          <Tag
            kind="info"
            title="It changes by proposals alone, which that many others have approved"
          >
            {branch.requiredApprovals} {branch.requiredApprovals === 1 ? 'approval' : 'approvals'}
          </Tag>
        )}
        {branch.expiresAt !== undefined && (
          <Tag kind="warn" title={new Date(branch.expiresAt).toLocaleString()}>
            <Icon name="clock" size={11} /> expires {relativeTime(branch.expiresAt)}
          </Tag>
        )}
        {git.map((gitBranch) => (
          <Tag key={gitBranch} title="git branch">
            <Icon name="link" size={11} /> {gitBranch}
          </Tag>
        ))}
        {branch.merges?.map(({ from, at }) => (
          <Tag key={from} title={`${from} was merged into ${name} ${relativeTime(at)}`}>
            <Icon name="merge" size={11} /> {from}
          </Tag>
        ))}
        {isCollapsed && <Tag>{below} below</Tag>}
      </span>
      <span className="grow" />
      <OwnedRows branch={name} />
      <span className="branch-age faint">
        {branch.from === undefined ? 'created ' : `from ${branch.from}, `}
        <Ago time={branch.createdAt} />
      </span>
      <Link className="button quiet small wide-only" href={href(paths.diff(place))}>
        Difference
      </Link>
      <Menu
        label={`Actions of ${name}`}
        trigger={<IconButton label={`Actions of ${name}`} icon="more" />}
        items={[
          { label: 'Open tables', icon: 'table', onSelect: () => goTo(paths.branch(place)) },
          { label: 'Show timeline', icon: 'clock', onSelect: () => goTo(paths.timeline(place)) },
          { label: 'Show difference', icon: 'diff', onSelect: () => goTo(paths.diff(place)) },
          canWrite && { label: 'Fork…', icon: 'branch', startsGroup: true, onSelect: act('fork') },
          branch.from !== undefined && {
            label: `Merge into ${branch.from}…`,
            icon: 'merge',
            onSelect: () => goTo(paths.merge(place)),
          },
          branch.from !== undefined && {
            label: `Pull from ${branch.from}…`,
            icon: 'pull',
            onSelect: () => goTo(`${paths.merge(place)}?action=pull`),
          },
          canWrite &&
            branch.from !== undefined && {
              label: 'Propose a merge…',
              icon: 'check',
              onSelect: () => goTo(paths.propose(place)),
            },
          canWrite &&
            branch.protected === true && {
              label: 'Required approvals…',
              icon: 'people',
              onSelect: act('approvals'),
            },
          canWrite && {
            label: branch.protected ? 'Remove protection' : 'Protect',
            icon: 'lock',
            onSelect: act('protect'),
          },
          canWrite && { label: 'Checkpoint schedule…', icon: 'clock', onSelect: act('schedule') },
          canWrite && { label: 'Expiry…', icon: 'clock', onSelect: act('expiry') },
          canWrite &&
            branch.from !== undefined && {
              label: 'Reset…',
              icon: 'reset',
              startsGroup: true,
              onSelect: act('reset'),
            },
          canWrite &&
            !branch.default &&
            !branch.protected && {
              label: 'Delete…',
              icon: 'trash',
              isDangerous: true,
              onSelect: act('delete'),
            },
        ]}
      />
    </li>
  )
}

/** The rows that the branch stores itself. Asked for only while the row is on the screen. */
function OwnedRows({ branch }: { branch: string }) {
  const place = { ...usePlace(), branch }
  const stats = useQuery({
    queryKey: [...keys.branch(place), 'stats'],
    queryFn: ({ signal }) => clientOf(place).branch().stats({ signal }),
    staleTime: 60_000,
  })
  return (
    <span
      className="branch-rows faint number"
      title="Rows that the branch stores itself; the others are inherited"
    >
      {stats.data === undefined
        ? '…'
        : `${stats.data.rows.owned.toLocaleString('en')} ${stats.data.rows.owned === 1 ? 'row' : 'rows'} owned`}
    </span>
  )
}
