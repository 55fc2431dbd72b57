import { type Static, Type } from 'typebox'

/** Records that a list of a column problem names. */
export const PROBLEM_RECORDS_MAX = 20
/** Records that a column problem counts. */
export const PROBLEM_COUNT_MAX = 10_000
/** Characters of a value that such a list shows. */
export const PROBLEM_VALUE_LENGTH_MAX = 100

export const ColumnProblemSchema = Type.Object(
  {
    table: Type.String(),
    column: Type.Optional(Type.String()),
    constraint: Type.Optional(
      Type.String({ description: 'Instead of the column: the constraint that would be added.' }),
    ),
    kind: Type.Enum(['conversion', 'expression', 'limit', 'notNull', 'unique', 'check', 'link'], {
      description:
        '`conversion`: values do not convert to the new type. `expression`: the expression fails for records. ' +
        '`limit`: values are not among those that the column can have. `notNull`: records have no value. `unique`: records have the same value, ' +
        'or the same values of a unique constraint. `check`: records fail a check constraint. ' +
        '`link`: records link to records that do not exist.',
    }),
    records: Type.Integer({
      description: `The number of records, up to ${PROBLEM_COUNT_MAX}. Those for which an expression fails are counted up to ${PROBLEM_RECORDS_MAX}.`,
    }),
    more: Type.Optional(
      Type.Literal(true, { description: 'There are more records than were counted.' }),
    ),
    samples: Type.Array(
      Type.Object({
        id: Type.String(),
        value: Type.Optional(
          Type.String({ description: `Up to ${PROBLEM_VALUE_LENGTH_MAX} characters of it.` }),
        ),
      }),
      { description: `The first ${PROBLEM_RECORDS_MAX} of these records.` },
    ),
    values: Type.Optional(
      Type.Array(Type.Object({ value: Type.String(), records: Type.Integer() }), {
        description:
          'Of a `limit` of an `enum`: the values that it lacks, and how many records have them.',
      }),
    ),
    message: Type.String(),
  },
  {
    title: 'ColumnProblem',
    description: 'Why records do not allow a change of a column, or a constraint.',
  },
)
export type ColumnProblem = Static<typeof ColumnProblemSchema>
