import type { ConstraintDefinition, TableDefinition } from '@offshoot/client'
import { useState } from 'react'
import { FormDialog } from '../../ui/dialog.js'
import { Checkbox, Field, TextField } from '../../ui/field.js'

/** Types of columns whose values are not compared. */
const NEVER_UNIQUE: ReadonlySet<string> = new Set([
  'json',
  'multiple',
  'object',
  'vector',
  'file',
  'file[]',
])

/** Asks for a rule that all records of a table keep. */
export function AddConstraintDialog({
  table,
  onSubmit,
  onClose,
}: {
  table: TableDefinition
  onSubmit: (constraint: ConstraintDefinition) => Promise<unknown>
  onClose: () => void
}) {
  const [name, setName] = useState('')
  const [kind, setKind] = useState<'unique' | 'check'>('unique')
  const [columns, setColumns] = useState<readonly string[]>([])
  const [check, setCheck] = useState('')
  const possible = table.columns.filter(
    ({ type, computed }) => !NEVER_UNIQUE.has(type) && computed === undefined,
  )
  const isIncomplete = kind === 'unique' ? columns.length === 0 : check.trim() === ''
  return (
    <FormDialog
      title={`New constraint of ${table.name}`}
      description="A constraint is only added if all records keep it. Otherwise the first records that break it are listed when the edits are applied."
      action="Add to the edits"
      isDisabled={name === '' || isIncomplete}
      onSubmit={() => onSubmit(kind === 'unique' ? { name, unique: columns } : { name, check })}
      onClose={onClose}
    >
      <TextField
        label="Name"
        hint="Letters, digits and _ - ~"
        maxLength={255}
        spellCheck={false}
        value={name}
        onChange={setName}
      />
      <Field label="Rule">
        <select
          value={kind}
          onChange={(event) => setKind(event.target.value === 'check' ? 'check' : 'unique')}
        >
          <option value="unique">unique: no two records have the same values</option>
          <option value="check">check: a condition that each record meets</option>
        </select>
      </Field>
      {kind === 'unique' ? (
        <fieldset className="check-list">
          <legend>Columns whose values together are unique</legend>
          {possible.map((column) => (
            <Checkbox
              key={column.name}
              label={column.name}
              checked={columns.includes(column.name)}
              onChange={(isChecked) =>
                setColumns(
                  isChecked
                    ? [...columns, column.name]
                    : columns.filter((one) => one !== column.name),
                )
              }
            />
          ))}
        </fieldset>
      ) : (
        <Field
          label="Condition"
          hint="An expression in SQL over the columns of the record, such as price >= 0."
        >
          <input
            className="mono"
            maxLength={2000}
            spellCheck={false}
            value={check}
            onChange={(event) => setCheck(event.target.value)}
          />
        </Field>
      )}
    </FormDialog>
  )
}
