import {
  type ColumnProblem,
  type DataLoss,
  OffshootError,
  type OperationInfo,
  type SchemaOperation,
} from '@offshoot/client'
import { useState } from 'react'
import { Link } from 'wouter'
import { cancelOperation } from '../../api/long-work.js'
import { usePlace } from '../../api/place.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { FormDialog } from '../../ui/dialog.js'
import { Checkbox } from '../../ui/field.js'
import { Icon } from '../../ui/icon.js'
import { OperationProgress } from '../../ui/operation-progress.js'
import { SchemaChanges } from '../../ui/schema-changes.js'
import { describeLoss } from '../../ui/schema-words.js'
import { Problems } from './problems.js'

/** A rule that records break, so that it cannot be added. */
interface Broken {
  readonly table: string
  readonly rule: string
  readonly records: readonly string[]
}

function brokenBy(error: unknown): Broken | null {
  if (!(error instanceof OffshootError) || error.code !== 'constraint_violated') return null
  const { table, constraint, column, records } = error.body
  return Array.isArray(records)
    ? { table: String(table), rule: String(constraint ?? column), records: records.map(String) }
    : null
}

/** Shows what is about to be applied, and asks before values are lost. */
export function ReviewDialog({
  operations,
  dataLoss,
  problems,
  running,
  onApply,
  onClose,
}: {
  operations: readonly SchemaOperation[]
  dataLoss: readonly DataLoss[]
  /** Records that do not allow the changes. */
  problems: readonly ColumnProblem[]
  /** The operation that applies the edits, if it takes long. */
  running: OperationInfo | undefined
  onApply: (options: { readonly allowDataLoss: boolean }) => Promise<unknown>
  onClose: () => void
}) {
  const place = usePlace()
  const [isAllowed, setAllowed] = useState(false)
  const [broken, setBroken] = useState<Broken | null>(null)
  const loses = dataLoss.length > 0
  const apply = async () => {
    setBroken(null)
    try {
      await onApply({ allowDataLoss: isAllowed })
    } catch (error) {
      setBroken(brokenBy(error))
      throw error
    }
  }
  return (
    <FormDialog
      title="Apply to the branch"
      description="All edits are one migration: all of them are applied, or none."
      action="Apply"
      isDangerous={loses}
      isDisabled={problems.length > 0 || (loses && !isAllowed)}
      wide
      onSubmit={apply}
      onClose={onClose}
    >
      <SchemaChanges operations={operations} />
      {loses && (
        <div className="note danger">
          <Icon name="warning" />
          <div className="grow">
            <p>Values would be lost:</p>
            <ul>
              {dataLoss.map((loss) => (
                <li key={`${loss.table}.${loss.column}`}>{describeLoss(loss)}</li>
              ))}
            </ul>
            <Checkbox label="Lose these values" checked={isAllowed} onChange={setAllowed} />
          </div>
        </div>
      )}
      <Problems problems={problems} />
      {running !== undefined && (
        <OperationProgress operation={running} onCancel={cancelOperation} />
      )}
      {broken !== null && (
        <div className="note danger">
          <Icon name="warning" />
          <div className="grow">
            <p>
              These records of {broken.table} break <strong>{broken.rule}</strong>. Change them, and
              apply again:
            </p>
            <ul aria-label="Records that break the constraint">
              {broken.records.map((id) => (
                <li key={id}>
                  <Link href={href(paths.table(place, broken.table, { filter: { id } }))}>
                    {id}
                  </Link>
                </li>
              ))}
            </ul>
          </div>
        </div>
      )}
      <details>
        <summary>As JSON</summary>
        <pre className="pad">{JSON.stringify(operations, null, 2)}</pre>
      </details>
    </FormDialog>
  )
}
