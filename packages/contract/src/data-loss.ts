import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import { ColumnNameSchema, TableNameSchema } from './names.js'

/** What an edit of a schema, or a merge, removes together with values that records hold. */
export const DataLossSchema = Type.Object(
  {
    table: TableNameSchema,
    column: Type.Optional(ColumnNameSchema),
    records: Type.Integer({
      description: 'Records of the branch that hold a value there; of a table, all records.',
    }),
    more: Type.Boolean({
      description:
        'Whether the table has more records than are looked at, which are ' +
        `${LIMITS.dataLossRecordsMax} unless the limit was changed.`,
    }),
  },
  {
    title: 'DataLoss',
    description: 'A table, or a column without which records would lose values.',
    examples: [{ table: 'users', column: 'name', records: 2000, more: false }],
  },
)
export type DataLoss = Static<typeof DataLossSchema>

export const DataLossListSchema = Type.Array(DataLossSchema, {
  description: 'Values that would be lost. A request that loses some needs `allowDataLoss: true`.',
})

export const AllowDataLossSchema = Type.Boolean({
  description:
    'Whether tables and columns may be removed together with the values that records hold. ' +
    'Otherwise such a request is refused with `data_loss`, and nothing is changed.',
})
