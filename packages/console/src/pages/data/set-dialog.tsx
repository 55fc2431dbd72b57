import type {
  AnySchema,
  ColumnDefinition,
  DeletedSet,
  OperationInfo,
  RecordSet,
  TableDefinition,
} from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { cancelOperation } from '../../api/long-work.js'
import { useBranch } from '../../api/place.js'
import { FormDialog } from '../../ui/dialog.js'
import { ErrorNote, Loading } from '../../ui/feedback.js'
import { Field, TextField } from '../../ui/field.js'
import { OperationProgress } from '../../ui/operation-progress.js'
import { inWords } from './conditions.js'
import { parseText, toWire } from './values.js'
import type { AnyFilter } from './view.js'

export type SetChange = { readonly set: Readonly<Record<string, unknown>> } | 'delete'

const NEVER_SET: ReadonlySet<string> = new Set(['file', 'file[]'])

/** Changes or deletes all records that match a filter, after their number was shown. */
export function SetDialog({
  kind,
  table,
  filter,
  running,
  onApply,
  onClose,
}: {
  kind: 'update' | 'delete'
  table: TableDefinition
  /** undefined: all records of the table. */
  filter: AnyFilter | undefined
  /** The operation that changes the records, if it takes long. */
  running: OperationInfo | undefined
  onApply: (change: SetChange) => Promise<unknown>
  onClose: () => void
}) {
  const handle = useBranch().table(table.name)
  const columns = table.columns.filter(
    ({ type, computed }) => !NEVER_SET.has(type) && computed === undefined,
  )
  const [name, setName] = useState(columns[0]?.name ?? '')
  const [text, setText] = useState('')
  const [typed, setTyped] = useState('')
  const column = columns.find((one) => one.name === name)
  const found = useQuery({
    queryKey: ['set', kind, table.name, filter],
    queryFn: async ({ signal }): Promise<DeletedSet> => {
      if (kind === 'delete') return handle.deleteMany(setOf(filter), { dryRun: true, signal })
      return { deleted: await handle.count(filter, { signal }) }
    },
    gcTime: 0,
  })
  const parsed = column === undefined ? { fault: 'choose a column' } : parseText(column, text)
  const count = found.data?.deleted
  const isWhole = filter === undefined
  const amount =
    count === undefined ? '' : `${count.toLocaleString()} ${count === 1 ? 'row' : 'rows'}`
  const apply = () =>
    kind === 'delete'
      ? onApply('delete')
      : onApply({ set: { [name]: 'value' in parsed ? toWire(column, parsed.value) : null } })
  return (
    <FormDialog
      title={kind === 'delete' ? `Delete rows of ${table.name}` : `Change rows of ${table.name}`}
      description={
        isWhole ? (
          'All rows of the table, also those that were not scrolled to.'
        ) : (
          <>
            All rows that match <strong>{inWords(filter)}</strong>, also those that were not
            scrolled to.
          </>
        )
      }
      action={`${kind === 'delete' ? 'Delete' : 'Change'} ${amount}`.trim()}
      isDangerous={kind === 'delete'}
      isDisabled={
        count === undefined ||
        count === 0 ||
        (kind === 'update' && 'fault' in parsed) ||
        (kind === 'delete' && isWhole && typed !== table.name)
      }
      onSubmit={apply}
      onClose={onClose}
    >
      {found.isPending && <Loading lines={1} label="Counting the rows" />}
      <ErrorNote error={found.error} onRetry={() => void found.refetch()} />
      {count !== undefined && (
        <p className={kind === 'delete' && count > 0 ? 'note danger' : 'note'} role="status">
          {count === 0
            ? 'No row matches.'
            : `${kind === 'delete' ? 'A dry run found' : 'Found'} ${amount}. All of them are ${kind === 'delete' ? 'deleted' : 'changed'}, or none.`}
          {linkedInWords(found.data?.linked)}
        </p>
      )}
      {kind === 'update' && (
        <SetField
          columns={columns}
          column={column}
          text={text}
          fault={text !== '' && 'fault' in parsed ? parsed.fault : undefined}
          onColumn={(next) => {
            setName(next)
            setText('')
          }}
          onText={setText}
        />
      )}
      {kind === 'delete' && isWhole && (
        <TextField
          label={`Type ${table.name} to confirm`}
          autoComplete="off"
          value={typed}
          onChange={setTyped}
        />
      )}
      {running !== undefined && (
        <OperationProgress operation={running} onCancel={cancelOperation} />
      )}
    </FormDialog>
  )
}

/** Says what a deletion causes in tables with links to the rows. */
function linkedInWords(linked: DeletedSet['linked'] = {}): string {
  return Object.entries(linked)
    .map(([table, { deleted = 0, cleared = 0 }]) => {
      const parts = [
        ...(deleted > 0 ? [`${deleted.toLocaleString()} deleted`] : []),
        ...(cleared > 0 ? [`${cleared.toLocaleString()} links removed`] : []),
      ]
      return ` In ${table}: ${parts.join(', ')}.`
    })
    .join('')
}

/** The records of a filter, or all of them. */
export function setOf(filter: AnyFilter | undefined): RecordSet<AnySchema, string> {
  return filter === undefined ? { all: true } : { filter }
}

function SetField({
  columns,
  column,
  text,
  fault,
  onColumn,
  onText,
}: {
  columns: readonly ColumnDefinition[]
  column: ColumnDefinition | undefined
  text: string
  fault: string | undefined
  onColumn: (name: string) => void
  onText: (text: string) => void
}) {
  const choices = column?.type === 'bool' ? ['true', 'false'] : column?.enum?.values
  return (
    <>
      <div className="row fields-row">
        <Field label="Column">
          <select value={column?.name} onChange={(event) => onColumn(event.target.value)}>
            {columns.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
        {choices === undefined ? (
          <TextField label="New value" hint="Empty: no value." value={text} onChange={onText} />
        ) : (
          <Field label="New value">
            <select value={text} onChange={(event) => onText(event.target.value)}>
              <option value="">no value</option>
              {choices.map((choice) => (
                <option key={choice}>{choice}</option>
              ))}
            </select>
          </Field>
        )}
      </div>
      {fault !== undefined && (
        <p className="editor-wrong" role="alert">
          {fault}
        </p>
      )}
    </>
  )
}
