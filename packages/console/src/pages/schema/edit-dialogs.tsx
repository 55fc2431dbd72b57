import type { ColumnDefinition } from '@offshoot/client'
import { useState } from 'react'
import { FormDialog } from '../../ui/dialog.js'
import { TextField } from '../../ui/field.js'
import { BLANK, ColumnForm } from './column-form.js'

/** Asks for the name of a table or column. */
export function NameDialog({
  title,
  action,
  name = '',
  onSubmit,
  onDone,
  onClose,
}: {
  title: string
  action: string
  name?: string
  onSubmit: (name: string) => Promise<unknown>
  onDone?: (name: string) => void
  onClose: () => void
}) {
  const [typed, setTyped] = useState(name)
  return (
    <FormDialog
      title={title}
      action={action}
      isDisabled={typed === '' || typed === name}
      onSubmit={() => onSubmit(typed)}
      {...(onDone && { onDone: () => onDone(typed) })}
      onClose={onClose}
    >
      <TextField
        label="Name"
        hint="Letters, digits and _ - ~"
        autoFocus
        maxLength={255}
        value={typed}
        spellCheck={false}
        onChange={setTyped}
      />
    </FormDialog>
  )
}

/** Asks for columns of a table, one after the other. */
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
  const [added, setAdded] = useState<readonly string[]>([])
  return (
    <FormDialog
      title={`New column of ${table}`}
      action="Add"
      isDisabled={column.name === ''}
      onSubmit={() => onSubmit(column)}
      onAgain={() => {
        setAdded([...added, column.name])
        setColumn(BLANK)
      }}
      onClose={onClose}
    >
      {added.length > 0 && (
        <p className="faint" role="status">
          Added: {added.join(', ')}
        </p>
      )}
      <ColumnForm
        // A new form, so that its first field gets the focus.
        key={added.length}
        column={column}
        tables={tables}
        onChange={setColumn}
      />
    </FormDialog>
  )
}
