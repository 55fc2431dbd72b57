import type { Limits } from '@offshoot/contract/limits'
import type { Column, Constraint, Schema } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { type ParsedExpressions, parseRowExpressions } from '../../dialect/row-expression.js'
import { COLUMN_TYPE_ENTRIES } from '../../rows/columns/column-types.js'
import { Fault } from '../../rows/columns/fault.js'
import { detailsOf } from './alter-column.js'
import type { EditOptions } from './schema-draft.js'
import { listExpressions, type TableOfExpressions } from './store-constraint.js'

/** Options of schema edits, with validation of default values by column type. */
export function editOptions(
  options: Pick<EditOptions, 'limits' | 'nextId' | 'expressions'>,
): EditOptions {
  const { limits, nextId, expressions } = options
  const codec = { limits, jsonAsText: false }
  return {
    limits,
    nextId,
    expressions,
    checkDefault(column, text) {
      const { name, type, decimal, bits, maxLength, enum: values } = column
      const stored = {
        id: 0,
        name,
        type,
        ...(decimal && { decimal }),
        ...detailsOf({ bits, maxLength }),
        ...(values && { enum: values }),
      }
      const parsed = COLUMN_TYPE_ENTRIES[type].parseDefault(text, stored, codec)
      return parsed instanceof Fault ? parsed.message : undefined
    },
    defaultFill(column) {
      if (column.defaultValue === undefined) return undefined
      const type = COLUMN_TYPE_ENTRIES[column.type]
      const parsed = type.parseDefault(column.defaultValue, column, codec)
      if (parsed instanceof Fault) return undefined
      if (typeof parsed === 'string') return parsed
      const now = new Date().toISOString()
      return type.atMoment?.(now) ?? now
    },
  }
}

/** Options of a dry run. Its ids are above all ids in use, and are never stored. */
export function dryRunOptions(
  limits: Limits,
  expressions?: EditOptions['expressions'],
): EditOptions {
  let id = Number.MAX_SAFE_INTEGER / 2
  return editOptions({ limits, expressions, nextId: () => ++id })
}

/**
 * Parses the expressions of operations, before they are applied to a schema. `given` is a schema that a client has sent, and
 * has expressions, too.
 */
export function parseExpressions(
  operations: readonly SchemaOperation[],
  { tables: stored }: { readonly tables: readonly TableOfExpressions[] },
  { tables }: Pick<Schema, 'tables'> = { tables: [] },
): Promise<ParsedExpressions> {
  // Expressions of these tables may use a column that gets another type, and are bound again then.
  const retyped = new Set(
    operations.flatMap((operation) =>
      'alterColumn' in operation && operation.alterColumn.type !== undefined
        ? operation.alterColumn.table
        : [],
    ),
  )
  const kept = stored.filter(({ name }) => retyped.has(name))
  const given = [
    ...operations.flatMap(rulesIn),
    ...kept.flatMap(listExpressions),
    ...tables.flatMap(({ columns, constraints = [] }) => [...columns, ...constraints]),
  ]
  const used = operations.flatMap((operation) =>
    'alterColumn' in operation ? (operation.alterColumn.using ?? []) : [],
  )
  return parseRowExpressions([
    ...used,
    ...given.flatMap((each) =>
      'check' in each ? each.check : 'computed' in each ? (each.computed ?? []) : [],
    ),
  ])
}

/** Returns the part of an operation that can have an expression. */
function rulesIn(operation: SchemaOperation): (Constraint | Pick<Column, 'computed'>)[] {
  if ('addConstraint' in operation) return [operation.addConstraint.constraint]
  if ('addColumn' in operation) return [operation.addColumn.column]
  return 'alterColumn' in operation ? [operation.alterColumn] : []
}
