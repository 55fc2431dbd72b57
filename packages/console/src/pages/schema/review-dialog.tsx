import type { ColumnProblem, DataLoss, SchemaOperation } from '@offshoot/client'
import { useState } from 'react'
import { describeLoss } from '../../api/operations.js'
import { FormDialog } from '../../ui/dialog.js'
import { Checkbox } from '../../ui/field.js'
import { Icon } from '../../ui/icon.js'
import { Operations } from './operations.js'

/** Shows what is about to be applied, and asks before values are lost. */
export function ReviewDialog({
  operations,
  dataLoss,
  problems,
  onApply,
  onClose,
}: {
  operations: readonly SchemaOperation[]
  dataLoss: readonly DataLoss[]
  /** Records that do not allow the changes. */
  problems: readonly ColumnProblem[]
  onApply: (allowDataLoss: boolean) => Promise<unknown>
  onClose: () => void
}) {
  const [isAllowed, setAllowed] = useState(false)
  const loses = dataLoss.length > 0
  return (
    <FormDialog
      title="Apply to the branch"
      description="All edits are one migration: all of them are applied, or none."
      action="Apply"
      isDangerous={loses}
      isDisabled={problems.length > 0 || (loses && !isAllowed)}
      wide
      onSubmit={() => onApply(isAllowed)}
      onClose={onClose}
    >
      <Operations operations={operations} />
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
      {problems.length > 0 && (
        <div className="note danger">
          <Icon name="warning" />
          <div className="grow">
            <p>Records do not allow the changes:</p>
            <ul>
              {problems.map(({ table, column, kind, message, samples }) => (
                <li key={`${table}.${column} ${kind}`}>
                  {message}
                  <ul>
                    {samples.map(({ id, value }) => (
                      <li key={id}>
                        <code>{id}</code>
                        {value !== undefined && <>: {value}</>}
                      </li>
                    ))}
                  </ul>
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
