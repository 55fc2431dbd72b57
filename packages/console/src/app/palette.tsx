import { Dialog as Radix } from 'radix-ui'
import { useMemo } from 'react'
import {
  useBranchDetails,
  useBranches,
  useCanAudit,
  useDatabases,
  useWorkspaces,
} from '../api/queries.js'
import { type Choice, ChoiceList } from '../ui/choice-list.js'
import { goTo } from './navigate.js'
import { paths } from './paths.js'
import { usePlaceOfAddress } from './use-address.js'

interface Command extends Choice {
  readonly path: string
}

/** Jumps to any page, table, branch, database or workspace by its name. */
export function Palette({ onClose }: { onClose: () => void }) {
  const commands = useCommands()
  return (
    <Radix.Root open onOpenChange={(open) => !open && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="overlay" />
        <Radix.Content className="palette" aria-describedby={undefined}>
          <Radix.Title className="sr-only">Command palette</Radix.Title>
          <ChoiceList
            label="Go to"
            placeholder="Go to a table, branch, page, database or workspace"
            choices={commands}
            onChoose={({ path }) => {
              onClose()
              goTo(path)
            }}
          />
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}

function useCommands(): readonly Command[] {
  const address = usePlaceOfAddress()
  const { workspace, database } = address
  const workspaces = useWorkspaces().data
  const databases = useDatabases(workspace).data
  const region = databases?.find(({ name }) => name === database)?.region
  const place =
    workspace === undefined || database === undefined || region === undefined
      ? undefined
      : { workspace, database, region }
  const branches = useBranches(place).data
  const branch = address.branch ?? branches?.find((one) => one.default)?.name
  const tables = useTables(place, branch)
  const canAudit = useCanAudit(workspace)
  return useMemo(() => {
    const commands: Command[] = []
    const add = (hint: string, text: string, path: string) =>
      commands.push({ id: `${hint} ${text}`, text, hint, path })
    if (place !== undefined && branch !== undefined) {
      const here = { ...place, branch }
      for (const name of tables) add('table', name, paths.table(here, name))
      add('page', 'Timeline', paths.timeline(here))
      add('page', 'Difference', paths.diff(here))
      add('page', 'Merge and pull', paths.merge(here))
      add('page', 'Schema', paths.schema(here))
      add('page', 'SQL', paths.sql(here))
      add('page', 'Files', paths.files(here))
    }
    if (place !== undefined) {
      add('page', 'Branches', paths.branches(place))
      add('page', 'Proposals', paths.proposals(place))
      add('page', 'Git and rules', paths.git(place))
      add('page', 'Database settings', paths.databaseSettings(place))
      for (const { name } of branches ?? [])
        add('branch', name, paths.branch({ ...place, branch: name }))
    }
    if (workspace !== undefined) {
      add('page', 'Members', paths.members(workspace))
      if (canAudit) add('page', 'Audit log', paths.audit(workspace))
      add('page', 'Workspace settings', paths.workspaceSettings(workspace))
      for (const { name } of databases ?? [])
        add('database', name, paths.branches({ workspace, database: name }))
    }
    add('page', 'API keys', paths.keys())
    add('page', 'Health and metrics', paths.metrics())
    for (const { id, name } of workspaces ?? []) {
      commands.push({
        id: `workspace ${id}`,
        text: name,
        hint: 'workspace',
        path: paths.workspace(id),
      })
    }
    return commands
  }, [workspaces, databases, branches, tables, workspace, branch, place, canAudit])
}

const NONE: readonly string[] = []

function useTables(
  place: { workspace: string; database: string; region: string } | undefined,
  branch: string | undefined,
): readonly string[] {
  const isKnown = place !== undefined && branch !== undefined
  const details = useBranchDetails(
    isKnown ? { ...place, branch } : { workspace: '', database: '', region: '', branch: '' },
    isKnown,
  )
  return details.data?.schema.tables.map(({ name }) => name) ?? NONE
}
