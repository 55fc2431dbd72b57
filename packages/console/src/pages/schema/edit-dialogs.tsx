import type {
  ColumnChanges,
  ColumnDefinition,
  TableDefinition,
  TableHistory,
} from '@offshoot/client'
import { useState } from 'react'
import { FormDialog } from '../../ui/dialog.js'
import { Checkbox, TextField } from '../../ui/field.js'
import { changesOf } from './column-changes.js'
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

/** Asks how long versions of the records of a table are kept. */
export function HistoryDialog({
  table,
  onSubmit,
  onClose,
}: {
  table: TableDefinition
  onSubmit: (history: TableHistory | null) => Promise<unknown>
  onClose: () => void
}) {
  const before = table.history?.keep ?? ''
  const [keep, setKeep] = useState(before)
  return (
    <FormDialog
      title={`History of records of ${table.name}`}
      description="Every change of a record makes a version, which can be seen and restored."
      action="Add to the edits"
      isDisabled={keep === before}
      onSubmit={() => onSubmit(keep === '' ? null : { keep })}
      onClose={onClose}
    >
      <TextField
        label="Keep versions for"
        hint="Hours or days, such as 12h or 30d. Empty: no versions, and those that exist are deleted."
        pattern="\d+[hd]"
        title="A number of hours or days, such as 12h or 30d"
        value={keep}
        onChange={setKeep}
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

/** Asks what is to change in a column that has values. */
export function AlterColumnDialog({
  table,
  column: before,
  tables,
  onSubmit,
  onClose,
}: {
  table: string
  column: ColumnDefinition
  tables: readonly string[]
  onSubmit: (changes: ColumnChanges) => Promise<unknown>
  onClose: () => void
}) {
  const [column, setColumn] = useState(before)
  const [isFilling, setFilling] = useState(false)
  const isNewlyRequired = column.notNull === true && before.notNull !== true
  const canFill = isNewlyRequired && column.defaultValue !== undefined
  const changes = changesOf(before, column)
  return (
    <FormDialog
      title={`Change ${table}.${before.name}`}
      description="The values of the column are kept, and converted if its type changes."
      action="Add to the edits"
      isDisabled={Object.keys(changes).length === 0}
      onSubmit={() => onSubmit({ ...changes, ...(canFill && isFilling && { fillNulls: true }) })}
      onClose={onClose}
    >
      <ColumnForm column={column} tables={tables} onChange={setColumn} />
      {canFill && (
        <Checkbox
          label="Fill empty records"
          hint="Records without a value get the default."
          checked={isFilling}
          onChange={setFilling}
        />
      )}
      <TextField
        label="Description"
        hint="What the column is for."
        maxLength={2048}
        value={column.description ?? ''}
        onChange={(description) => {
          const { description: _, ...rest } = column
          setColumn(description === '' ? rest : { ...rest, description })
        }}
      />
    </FormDialog>
  )
}
