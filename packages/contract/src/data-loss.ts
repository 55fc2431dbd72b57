import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import { ColumnNameSchema, TableNameSchema } from './names.js'

/** A table or column that a schema edit or a merge would remove together with its values. */
const DataLossSchema = Type.Object(
  {
    table: TableNameSchema,
    column: Type.Optional(ColumnNameSchema),
    records: Type.Integer({
      description:
        'For a column: the records of the branch that have a value in it. For a table: its records.',
    }),
    more: Type.Boolean({
      description:
        'Whether the table has more records than were counted. At most ' +
        `${LIMITS.dataLossRecordsMax} records are counted, unless the limit was changed.`,
    }),
  },
  {
    title: 'DataLoss',
    description: 'A table or a column whose removal would lose values.',
    examples: [{ table: 'users', column: 'name', records: 2000, more: false }],
  },
)
export type DataLoss = Static<typeof DataLossSchema>

export const DataLossListSchema = Type.Array(DataLossSchema, {
  description: 'The values that would be lost. Such a request requires `allowDataLoss: true`.',
})

export const AllowDataLossSchema = Type.Boolean({
  description:
    'Allows the removal of tables and columns that hold values. Without it, such a request is ' +
    'refused with `data_loss`, and nothing is changed.',
})
