import type { ColumnDefinition } from '@offshoot/client'
import { useState } from 'react'
import { FormDialog } from '../../ui/dialog.js'
import { Field } from '../../ui/field.js'
import { BLANK, ColumnForm } from './column-form.js'

/** Asks for the name of a table or column. */
export function NameDialog({
  title,
  action,
  name = '',
  onSubmit,
  onClose,
}: {
  title: string
  action: string
  name?: string
  onSubmit: (name: string) => Promise<unknown>
  onClose: () => void
}) {
  const [typed, setTyped] = useState(name)
  return (
    <FormDialog
      title={title}
      action={action}
      isDisabled={typed === '' || typed === name}
      onSubmit={() => onSubmit(typed)}
      onClose={onClose}
    >
      <Field label="Name" hint="Letters, digits and _ - ~">
        <input
          // biome-ignore lint/a11y/noAutofocus: the dialog was opened to type a name.
          autoFocus
          maxLength={255}
          value={typed}
          spellCheck={false}
          onChange={(event) => setTyped(event.target.value)}
        />
      </Field>
    </FormDialog>
  )
}

export function AddColumnDialog({
  table,
  tables,
  onSubmit,
  onClose,
}: {
  table: string
  tables: readonly string[]
  onSubmit: (column: ColumnDefinition) => Promise<unknown>
  onClose: () => void
}) {
  const [column, setColumn] = useState(BLANK)
  return (
    <FormDialog
      title={`New column of ${table}`}
      action="Add"
      isDisabled={column.name === ''}
      onSubmit={() => onSubmit(column)}
      onClose={onClose}
    >
      <ColumnForm column={column} tables={tables} onChange={setColumn} />
    </FormDialog>
  )
}
