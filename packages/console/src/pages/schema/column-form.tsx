import type { ColumnDefinition, ColumnGenerator, IntBits, LinkAction } from '@offshoot/client'
import type { ReactNode } from 'react'
import { Button, IconButton } from '../../ui/button.js'
import { Checkbox, Field, TextField } from '../../ui/field.js'
import { CONVERSIONS } from './conversions.js'

type Type = ColumnDefinition['type']

const TYPES: Readonly<Record<Type, string>> = {
  string: 'string: text of up to 2048 characters',
  text: 'text: text of any length',
  int: 'int: whole number',
  float: 'float: number',
  decimal: 'decimal: exact number, such as an amount of money',
  bool: 'bool: true or false',
  datetime: 'datetime: a point in time',
  date: 'date: a day',
  time: 'time: a time of day',
  enum: 'enum: one of a list of values',
  uuid: 'uuid: universally unique identifier',
  email: 'email: e-mail address',
  link: 'link: a record of a table',
  multiple: 'multiple: list of texts',
  json: 'json: any JSON value',
  object: 'object: nested columns',
  vector: 'vector: list of numbers for similarity search',
  file: 'file: one file',
  'file[]': 'file[]: list of files',
}

/** Types of plain values, which can be unique, required and have a default. */
const PLAIN: readonly Type[] = [
  'int',
  'float',
  'decimal',
  'string',
  'email',
  'datetime',
  'date',
  'time',
  'uuid',
  'enum',
]
const UNIQUE: ReadonlySet<Type> = new Set<Type>([...PLAIN, 'link'])
const DEFAULT_HINTS: Readonly<Partial<Record<Type, string>>> = {
  datetime: 'A time, or now. ',
  date: 'A day, or now. ',
  multiple: 'A list such as ["a", "b"]. ',
}
const NOT_NULL: ReadonlySet<Type> = new Set<Type>([...PLAIN, 'bool', 'text', 'json', 'multiple'])
const COMPUTED: ReadonlySet<Type> = new Set<Type>([
  ...PLAIN.filter((type) => type !== 'email' && type !== 'enum'),
  'bool',
  'text',
])
/** What can give columns of a type their value. */
const GENERATORS: Readonly<Partial<Record<Type, readonly ColumnGenerator[]>>> = {
  uuid: ['uuid'],
  string: ['uuid', 'user'],
  text: ['uuid', 'user'],
  datetime: ['updatedAt'],
  date: ['updatedAt'],
  time: ['updatedAt'],
  int: ['sequence'],
}
const GENERATOR_WORDS: Readonly<Record<ColumnGenerator, string>> = {
  uuid: 'uuid: a new UUID',
  user: 'user: the id of the user who creates the record',
  updatedAt: 'updatedAt: the time of each change',
  sequence: 'sequence: the next number, of all branches',
}
/** Each record gets another value of these. */
const DISTINCT: readonly ColumnGenerator[] = ['uuid', 'sequence']
const NESTED_NEVER: ReadonlySet<Type> = new Set(['file', 'file[]'])
const DIMENSION_DEFAULT = 1536
const DECIMAL_DEFAULT = { precision: 12, scale: 2 }
/** The largest number of characters that columns of a type can have. */
const LENGTHS_MAX: Readonly<Partial<Record<Type, number>>> = { string: 2048, text: 1_048_576 }

const ON_DELETE: Readonly<Record<LinkAction, string>> = {
  none: 'nothing: linked records need not exist',
  restrict: 'refuse',
  setNull: 'remove the link',
  cascade: 'delete this record, too',
}

export const BLANK: ColumnDefinition = { name: '', type: 'string' }

/** Whether a column can get a type: by a conversion of its values, or by an expression. A new column can have any. */
function canBecome(before: ColumnDefinition | undefined, type: Type): boolean {
  if (before === undefined || before.type === type || COMPUTED.has(type)) return true
  return before.computed === undefined && CONVERSIONS[before.type].includes(type)
}

/** Sets a type, and leaves out the options that it does not have. */
function withType(
  column: ColumnDefinition,
  type: Type,
  tables: readonly string[],
): ColumnDefinition {
  const { name, notNull, unique, defaultValue, computed, generate, description } = column
  return {
    name,
    type,
    ...(description !== undefined && { description }),
    ...(UNIQUE.has(type) && unique !== undefined ? { unique } : {}),
    ...(NOT_NULL.has(type) && notNull !== undefined ? { notNull } : {}),
    ...(NOT_NULL.has(type) && defaultValue !== undefined ? { defaultValue } : {}),
    ...(COMPUTED.has(type) && computed !== undefined ? { computed } : {}),
    ...(generate !== undefined && GENERATORS[type]?.includes(generate) ? { generate } : {}),
    ...(type === 'link' ? { link: { table: tables[0] ?? '' } } : {}),
    ...(type === 'vector' ? { vector: { dimension: DIMENSION_DEFAULT } } : {}),
    ...(type === 'decimal' ? { decimal: DECIMAL_DEFAULT } : {}),
    ...(type === 'enum' ? { enum: { values: [] } } : {}),
    ...(type === 'object' ? { columns: [BLANK] } : {}),
  }
}

/** Sets the rule of a link, whose name goes with it. */
function withOnDelete(column: ColumnDefinition, onDelete: LinkAction): ColumnDefinition {
  const { table = '', constraint } = column.link ?? {}
  if (onDelete === 'none') return { ...column, link: { table } }
  return { ...column, link: { table, onDelete, ...(constraint !== undefined && { constraint }) } }
}

/** Sets the name of the rule of a link; empty for the usual one. */
function withRuleName(column: ColumnDefinition, constraint: string): ColumnDefinition {
  const { constraint: _, ...link } = column.link ?? { table: '' }
  return { ...column, link: { ...link, ...(constraint !== '' && { constraint }) } }
}

function without<Key extends keyof ColumnDefinition>(
  column: ColumnDefinition,
  key: Key,
): ColumnDefinition {
  const { [key]: _, ...rest } = column
  return rest as ColumnDefinition
}

/** Sets the expression of a computed column, which has neither a default nor unique values. */
function withComputed(column: ColumnDefinition, computed: string): ColumnDefinition {
  const { computed: _, ...written } = column
  if (computed === '') return written
  const { unique: __, defaultValue: ___, generate: ____, ...rest } = written
  return { ...without(without(without(rest, 'bits'), 'maxLength'), 'withoutZone'), computed }
}

/** Sets what gives the column its value. Such a column has no default. */
function withGenerator(column: ColumnDefinition, generate: ColumnGenerator | ''): ColumnDefinition {
  const { generate: _, ...written } = column
  if (generate === '') return written
  const { defaultValue: __, unique, ...rest } = written
  return { ...rest, generate, ...(unique && DISTINCT.includes(generate) ? { unique } : {}) }
}

const SIZES: Readonly<Record<'' | IntBits, string>> = {
  '': '64 bits: all that JSON represents exactly, up to 9007199254740991',
  32: '32 bits: -2147483648 to 2147483647',
  16: '16 bits: -32768 to 32767',
}

/** Asks for the size of whole numbers. */
export function SizeField({
  label = 'Size',
  bits,
  onChange,
}: {
  label?: string
  bits: IntBits | undefined
  onChange: (bits: IntBits | undefined) => void
}) {
  return (
    <Field label={label}>
      <select
        value={bits ?? ''}
        onChange={({ target: { value } }) =>
          onChange(value === '' ? undefined : (Number(value) as IntBits))
        }
      >
        {(['', 32, 16] as const).map((size) => (
          <option key={size} value={size}>
            {SIZES[size]}
          </option>
        ))}
      </select>
    </Field>
  )
}

/** The options of a column. */
export function ColumnForm({
  column,
  tables,
  before,
  isNested = false,
  onChange,
  children,
}: {
  column: ColumnDefinition
  tables: readonly string[]
  /** The column as it is, if it exists. Some of its options stay as they are. */
  before?: ColumnDefinition
  isNested?: boolean
  onChange: (column: ColumnDefinition) => void
  /** Shown below the type. */
  children?: ReactNode
}) {
  const { type } = column
  const isOfType = before?.type === type
  // Options of files and nested columns are set when the column is made.
  const file = !isOfType && (type === 'file' || type === 'file[]') ? type : undefined
  // A written column stays one.
  const isComputable = before === undefined || before.computed !== undefined
  const rule = column.link?.onDelete ?? 'none'
  return (
    <>
      <div className="row fields-row">
        <Field label="Name">
          <input
            // biome-ignore lint/a11y/noAutofocus: the dialog was opened to type a name.
            autoFocus={!isNested}
            required
            maxLength={255}
            pattern="[\p{L}\p{N}_~\-]+"
            title="Letters, digits and _ - ~"
            value={column.name}
            onChange={(event) => onChange({ ...column, name: event.target.value })}
          />
        </Field>
        <Field label="Type">
          <select
            value={type}
            onChange={(event) => onChange(withType(column, event.target.value as Type, tables))}
          >
            {(Object.keys(TYPES) as Type[])
              .filter((one) => (isNested ? !NESTED_NEVER.has(one) : canBecome(before, one)))
              .map((one) => (
                <option key={one} value={one}>
                  {TYPES[one]}
                </option>
              ))}
          </select>
        </Field>
      </div>
      {children}
      {type === 'link' && (
        <Field label="Links to" {...(isOfType && { hint: 'A link keeps its table.' })}>
          <select
            disabled={isOfType}
            value={column.link?.table}
            onChange={(event) =>
              onChange({ ...column, link: { ...column.link, table: event.target.value } })
            }
          >
            {tables.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
      )}
      {type === 'link' && (
        <Field label="If the linked record is deleted">
          <select
            value={rule}
            onChange={(event) => onChange(withOnDelete(column, event.target.value as LinkAction))}
          >
            {(Object.keys(ON_DELETE) as LinkAction[]).map((action) => (
              <option key={action} value={action}>
                {ON_DELETE[action]}
              </option>
            ))}
          </select>
        </Field>
      )}
      {type === 'link' && rule !== 'none' && (
        <TextField
          label="Name of the rule"
          hint="Errors name it. Empty: {table}_{column}_fkey."
          maxLength={255}
          spellCheck={false}
          value={column.link?.constraint ?? ''}
          onChange={(name) => onChange(withRuleName(column, name))}
        />
      )}
      {type === 'vector' && (
        <Field label="Numbers in each vector">
          <input
            type="number"
            min={2}
            max={10_000}
            required
            value={column.vector?.dimension ?? ''}
            onChange={(event) =>
              onChange({ ...column, vector: { dimension: Number(event.target.value) } })
            }
          />
        </Field>
      )}
      {type === 'decimal' && (
        <div className="row fields-row">
          <Field label="Digits in all">
            <input
              type="number"
              min={1}
              max={1000}
              required
              value={column.decimal?.precision ?? ''}
              onChange={(event) =>
                onChange({
                  ...column,
                  decimal: {
                    ...(column.decimal ?? DECIMAL_DEFAULT),
                    precision: Number(event.target.value),
                  },
                })
              }
            />
          </Field>
          <Field label="After the decimal point">
            <input
              type="number"
              min={0}
              max={column.decimal?.precision ?? 1000}
              required
              value={column.decimal?.scale ?? ''}
              onChange={(event) =>
                onChange({
                  ...column,
                  decimal: {
                    ...(column.decimal ?? DECIMAL_DEFAULT),
                    scale: Number(event.target.value),
                  },
                })
              }
            />
          </Field>
        </div>
      )}
      {type === 'int' && column.computed === undefined && (
        <SizeField
          bits={column.bits}
          onChange={(bits) =>
            onChange(bits === undefined ? without(column, 'bits') : { ...column, bits })
          }
        />
      )}
      {LENGTHS_MAX[type] !== undefined && column.computed === undefined && (
        <Field label="Characters at most" hint="Leave it empty for the limit of the type.">
          <input
            type="number"
            min={1}
            max={LENGTHS_MAX[type]}
            value={column.maxLength ?? ''}
            onChange={(event) =>
              onChange(
                event.target.value === ''
                  ? without(column, 'maxLength')
                  : { ...column, maxLength: Number(event.target.value) },
              )
            }
          />
        </Field>
      )}
      {type === 'datetime' && column.computed === undefined && (
        <Checkbox
          label="Without time zone in SQL"
          hint="SQL shows it as a timestamp, at the time of the session."
          checked={column.withoutZone === true}
          onChange={(isZoneless) =>
            onChange(isZoneless ? { ...column, withoutZone: true } : without(column, 'withoutZone'))
          }
        />
      )}
      {type === 'enum' && (
        <Field label="Values" hint="One on each line, in the order by which records are sorted.">
          <textarea
            required
            rows={5}
            defaultValue={(column.enum?.values ?? []).join('\n')}
            onChange={(event) =>
              onChange({
                ...column,
                enum: {
                  values: event.target.value
                    .split('\n')
                    .map((line) => line.trim())
                    .filter((line) => line !== ''),
                },
              })
            }
          />
        </Field>
      )}
      {file !== undefined && (
        <Checkbox
          label="Public by default"
          hint="Everybody with the address can open new files."
          checked={column[file]?.defaultPublicAccess === true}
          onChange={(isPublic) =>
            onChange({ ...column, [file]: { defaultPublicAccess: isPublic } })
          }
        />
      )}
      {!isNested && COMPUTED.has(type) && isComputable && (
        <Field
          label="Computed"
          hint={`An expression in SQL over the other columns, such as price * quantity.${before === undefined ? ' Leave it empty for a column that is written.' : ''}`}
        >
          <input
            className="mono"
            required={before !== undefined}
            value={column.computed ?? ''}
            maxLength={2000}
            onChange={(event) => onChange(withComputed(column, event.target.value))}
          />
        </Field>
      )}
      {!isNested && GENERATORS[type] !== undefined && column.computed === undefined && (
        <Field label="Generated" hint="Gives the column a value if a request does not.">
          <select
            value={column.generate ?? ''}
            onChange={(event) =>
              onChange(withGenerator(column, event.target.value as ColumnGenerator | ''))
            }
          >
            <option value="">no</option>
            {GENERATORS[type]?.map((generator) => (
              <option key={generator} value={generator}>
                {GENERATOR_WORDS[generator]}
              </option>
            ))}
          </select>
        </Field>
      )}
      {!isNested && NOT_NULL.has(type) && (
        <>
          <Field label="Default" hint={`${DEFAULT_HINTS[type] ?? ''}Leave it empty for none.`}>
            <input
              value={column.defaultValue ?? ''}
              disabled={
                column.unique === true ||
                column.computed !== undefined ||
                column.generate !== undefined
              }
              onChange={(event) =>
                onChange(
                  event.target.value === ''
                    ? without(column, 'defaultValue')
                    : { ...column, defaultValue: event.target.value },
                )
              }
            />
          </Field>
          <Checkbox
            label="Required"
            hint="Every record must have a value. Existing records get the default."
            checked={column.notNull === true}
            onChange={(notNull) =>
              onChange(notNull ? { ...column, notNull } : without(column, 'notNull'))
            }
          />
        </>
      )}
      {!isNested && UNIQUE.has(type) && column.computed === undefined && (
        <Checkbox
          label="Unique"
          hint="No two records may have the same value. The column gets an index."
          checked={column.unique === true}
          onChange={(unique) =>
            onChange(
              unique ? { ...without(column, 'defaultValue'), unique } : without(column, 'unique'),
            )
          }
        />
      )}
      {type === 'object' && !isOfType && (
        <fieldset className="nested-columns">
          <legend>Nested columns</legend>
          {(column.columns ?? []).map((nested, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: names change while they are typed.
            <div key={index} className="nested-column">
              <div className="grow">
                <ColumnForm
                  column={nested}
                  tables={tables}
                  isNested
                  onChange={(next) =>
                    onChange({
                      ...column,
                      columns: (column.columns ?? []).map((one, other) =>
                        other === index ? next : one,
                      ),
                    })
                  }
                />
              </div>
              <IconButton
                label={`Remove nested column ${nested.name}`}
                icon="close"
                onClick={() =>
                  onChange({
                    ...column,
                    columns: (column.columns ?? []).filter((_, other) => other !== index),
                  })
                }
              />
            </div>
          ))}
          <Button
            className="small"
            icon="plus"
            onClick={() => onChange({ ...column, columns: [...(column.columns ?? []), BLANK] })}
          >
            Nested column
          </Button>
        </fieldset>
      )}
    </>
  )
}
