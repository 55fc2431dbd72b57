import { OffshootError, type TableDefinition } from '@offshoot/client'
import { useMutation } from '@tanstack/react-query'
import { useState } from 'react'
import { useBranch } from '../../api/place.js'
import { notify } from '../../ui/toasts.js'
import { countOf, operationsOf, type Staged } from './staging.js'
import type { Row } from './values.js'
import type { AnyFilter } from './view.js'

/** The present state of records that someone else has changed; null if the record was deleted. */
export type Conflicts = ReadonlyMap<string, Row | null>
/** Faults of rows, by the id of the record or the key of the draft. */
type Faults = ReadonlyMap<string, string>

const NO_CONFLICTS: Conflicts = new Map()
const NO_FAULTS: Faults = new Map()

interface Outcome {
  readonly faults: Faults
  readonly conflicts: Conflicts
  readonly error: unknown
}

const FINE: Outcome = { faults: NO_FAULTS, conflicts: NO_CONFLICTS, error: null }

/** Saves staged changes as one transaction, and finds out why it was refused. */
export function useSave({
  table,
  staged,
  onSaved,
}: {
  table: TableDefinition
  staged: Staged
  onSaved: () => void
}) {
  const branch = useBranch()
  const [outcome, setOutcome] = useState<Outcome>(FINE)
  const saving = useMutation({
    mutationFn: async () => {
      const operations = operationsOf(table, staged)
      await branch.transaction(operations.map(({ operation }) => operation))
    },
  })
  /** Reads the records that were to be changed, and compares their versions. */
  const readConflicts = async (): Promise<Conflicts> => {
    const bases = new Map<string, Row>(staged.deletes)
    for (const [id, { base }] of staged.edits) bases.set(id, base)
    if (bases.size === 0) return NO_CONFLICTS
    const ids = [...bases.keys()]
    const { records } = await branch
      .table(table.name)
      .query({ filter: { id: { $any: ids } } as AnyFilter, size: ids.length })
      .page()
    const present = new Map((records as unknown as Row[]).map((record) => [record.id, record]))
    const conflicts = new Map<string, Row | null>()
    for (const [id, base] of bases) {
      const record = present.get(id)
      if (record?.service.version !== base.service.version) conflicts.set(id, record ?? null)
    }
    return conflicts
  }
  const save = async () => {
    try {
      await saving.mutateAsync()
      setOutcome(FINE)
      const count = countOf(staged)
      notify(`Saved ${count.toLocaleString()} ${count === 1 ? 'row' : 'rows'}`)
      onSaved()
    } catch (error) {
      if (!(error instanceof OffshootError) || error.status === 0 || error.status >= 500) {
        setOutcome({ ...FINE, error })
        return
      }
      const conflicts = await readConflicts().catch(() => NO_CONFLICTS)
      const operations = operationsOf(table, staged)
      const faults = new Map<string, string>()
      for (const { index, message } of error.errors ?? []) {
        const row = operations[index]?.row
        if (row !== undefined && !conflicts.has(row)) faults.set(row, shortFault(message))
      }
      const isExplained = conflicts.size > 0 || faults.size > 0
      setOutcome({ conflicts, faults, error: isExplained ? null : error })
    }
  }
  return {
    ...outcome,
    isSaving: saving.isPending,
    save,
    /** Notes that someone has decided about these records. */
    settle: (ids: readonly string[]) =>
      setOutcome((present) => {
        const conflicts = new Map(present.conflicts)
        for (const id of ids) conflicts.delete(id)
        return { ...present, conflicts }
      }),
    forget: () => setOutcome(FINE),
  }
}

/** Leaves out the name of the table, which the page shows. */
function shortFault(message: string): string {
  return message.replace(/^table \[[^\]]*\]: /, '')
}
