import type {
  ColumnChanges,
  ColumnDefinition,
  ColumnProblem,
  IntBits,
  TableDefinition,
  TableHistory,
} from '@offshoot/client'
import { useMutation } from '@tanstack/react-query'
import { useState } from 'react'
import { Button } from '../../ui/button.js'
import { FormDialog } from '../../ui/dialog.js'
import { ErrorNote } from '../../ui/feedback.js'
import { Checkbox, Field, TextField } from '../../ui/field.js'
import { changesOf } from './column-changes.js'
import { BLANK, ColumnForm, SizeField } from './column-form.js'
import { Problems } from './problems.js'

type IdType = NonNullable<TableDefinition['idType']>

interface NewTable {
  readonly table: string
  readonly idType?: IdType
  readonly idBits?: IntBits
  readonly history?: TableHistory
}

const ID_TYPES: Readonly<Record<IdType, string>> = {
  string: 'string: any text, generated if none is given',
  int: 'int: a number, generated if none is given',
  uuid: 'uuid: a UUID, generated if none is given',
}

/** Asks for the name of a new table, the type of its ids, and its history. Its columns come afterwards. */
export function AddTableDialog({
  onSubmit,
  onDone,
  onClose,
}: {
  onSubmit: (table: NewTable) => Promise<unknown>
  onDone: (table: string) => void
  onClose: () => void
}) {
  const [table, setTable] = useState('')
  const [idType, setIdType] = useState<IdType>('string')
  const [idBits, setIdBits] = useState<IntBits>()
  const [keep, setKeep] = useState('')
  return (
    <FormDialog
      title="New table"
      action="Create"
      isDisabled={table === ''}
      onSubmit={() =>
        onSubmit({
          table,
          ...(idType !== 'string' && { idType }),
          ...(idType === 'int' && idBits && { idBits }),
          ...(keep !== '' && { history: { keep } }),
        })
      }
      onDone={() => onDone(table)}
      onClose={onClose}
    >
      <NameField value={table} onChange={setTable} />
      <Field label="Type of ids" hint="It cannot be changed later.">
        <select value={idType} onChange={(event) => setIdType(event.target.value as IdType)}>
          {(Object.keys(ID_TYPES) as IdType[]).map((type) => (
            <option key={type} value={type}>
              {ID_TYPES[type]}
            </option>
          ))}
        </select>
      </Field>
      {idType === 'int' && <SizeField label="Size of ids" bits={idBits} onChange={setIdBits} />}
      <KeepField
        hint="Hours or days, such as 12h or 30d. Empty: no versions are kept."
        value={keep}
        onChange={setKeep}
      />
    </FormDialog>
  )
}

interface OwnField {
  readonly value: string
  readonly onChange: (text: string) => void
}

function NameField(field: OwnField) {
  return (
    <TextField
      label="Name"
      hint="Letters, digits and _ - ~"
      autoFocus
      maxLength={255}
      spellCheck={false}
      {...field}
    />
  )
}

function KeepField(field: OwnField & { readonly hint: string }) {
  return (
    <TextField
      label="Keep versions of records for"
      pattern="\d+[hd]"
      title="A number of hours or days, such as 12h or 30d"
      {...field}
    />
  )
}

/** Asks for another name of a table or column. */
export function NameDialog({
  title,
  action,
  name,
  onSubmit,
  onClose,
}: {
  title: string
  action: string
  name: string
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
      <NameField value={typed} onChange={setTyped} />
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
      <KeepField
        hint="Hours or days, such as 12h or 30d. Empty: no versions, and those that exist are deleted."
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

/** Characters of an expression. */
const EXPRESSION_MAX = 2000

/** Asks what is to change in a column that has values. */
export function AlterColumnDialog({
  table,
  column: before,
  tables,
  onTry,
  onSubmit,
  onClose,
}: {
  table: string
  column: ColumnDefinition
  tables: readonly string[]
  /** Returns what prevents the changes, and makes none. */
  onTry: (changes: ColumnChanges) => Promise<readonly ColumnProblem[]>
  onSubmit: (changes: ColumnChanges) => Promise<unknown>
  onClose: () => void
}) {
  const [column, setColumn] = useState(before)
  const [isFilling, setFilling] = useState(false)
  const [using, setUsing] = useState('')
  const isNewlyRequired = column.notNull === true && before.notNull !== true
  const canFill = isNewlyRequired && column.defaultValue !== undefined
  const canConvert = before.computed === undefined && column.computed === undefined
  const changes: ColumnChanges = {
    ...changesOf(before, column),
    ...(canFill && isFilling && { fillNulls: true }),
    ...(canConvert && using !== '' && { using }),
  }
  const attempt = useMutation({ mutationFn: onTry })
  const isTried = JSON.stringify(attempt.variables) === JSON.stringify(changes)
  const isUnchanged = Object.keys(changes).length === 0
  return (
    <FormDialog
      title={`Change ${table}.${before.name}`}
      description="The values of the column are kept, and converted if its type changes."
      action="Add to the edits"
      isDisabled={isUnchanged}
      onSubmit={() => onSubmit(changes)}
      onClose={onClose}
    >
      <ColumnForm column={column} tables={tables} before={before} onChange={setColumn}>
        {canConvert && (
          <TextField
            label="Convert by"
            hint="An expression in SQL over the columns of the record, such as upper(name), whose value the column gets. Empty: values are converted as they are."
            className="mono"
            maxLength={EXPRESSION_MAX}
            spellCheck={false}
            value={using}
            onChange={setUsing}
          />
        )}
      </ColumnForm>
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
      <div className="row">
        <Button
          className="small"
          isBusy={attempt.isPending}
          disabled={isUnchanged}
          onClick={() => attempt.mutate(changes)}
        >
          Dry run
        </Button>
        <span className="faint">Looks for records that do not allow the change.</span>
      </div>
      {isTried && (
        <>
          <ErrorNote error={attempt.error} />
          <Problems problems={attempt.data ?? []} />
          {attempt.data?.length === 0 && (
            <p className="note good" role="status">
              All records allow the change.
            </p>
          )}
        </>
      )}
    </FormDialog>
  )
}
