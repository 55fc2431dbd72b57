import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import { GivenIdSchema, NAME_PATTERN, TableNameSchema } from './names.js'

const closed = { additionalProperties: false } as const

/** Conflicts on one page if the request does not say how many. */
export const CONFLICTS_PAGE_SIZE = 100

export const ConflictPageSchema = Type.Object(
  {
    size: Type.Optional(
      Type.Integer({
        description: `The maximum number of conflicts to list. Default: ${CONFLICTS_PAGE_SIZE}.`,
        minimum: 0,
        maximum: LIMITS.pageSizeMax,
      }),
    ),
    after: Type.Optional(
      Type.String({
        description: 'The `cursor` of the previous page. Requires `dryRun`.',
        minLength: 1,
        maxLength: 4 * LIMITS.nameLengthMax,
      }),
    ),
  },
  { ...closed, description: 'The page of conflicts to list.' },
)

/** A digest of a state that somebody has reviewed. Clients repeat it, and look for no meaning in it. */
const token = (description: string) => Type.String({ description, minLength: 1, maxLength: 64 })

const TakeSchema = Type.Enum(['ours', 'theirs'], {
  description: '`ours` keeps the state of the target, `theirs` takes that of the merged branch.',
})

const ResolutionSchema = Type.Object(
  {
    table: TableNameSchema,
    id: Type.Optional(GivenIdSchema),
    kind: Type.Optional(
      Type.Enum(['schema'], { description: 'Decides a conflict of the schema, not of records.' }),
    ),
    column: Type.Optional(
      Type.String({
        description: 'Only with `kind`: the column in conflict. Without it: the table itself.',
        minLength: 1,
        maxLength: LIMITS.nameLengthMax,
      }),
    ),
    constraint: Type.Optional(
      Type.String({
        description: 'Only with `kind`: the constraint in conflict.',
        minLength: 1,
        maxLength: LIMITS.nameLengthMax,
      }),
    ),
    take: Type.Optional(TakeSchema),
    rename: Type.Optional(
      Type.String({
        description:
          'Only with `kind`, instead of `take`: the name that the table or column of the merged branch ' +
          'gets on the target, so that both sides keep theirs.',
        minLength: 1,
        maxLength: LIMITS.nameLengthMax,
        pattern: NAME_PATTERN,
      }),
    ),
    columns: Type.Optional(
      Type.Record(
        Type.String(),
        Type.Object(
          {
            take: Type.Optional(TakeSchema),
            value: Type.Optional(
              Type.Unknown({ description: 'A value for the column, as in an update.' }),
            ),
          },
          closed,
        ),
        {
          description:
            'The columns in conflict, by name, each with `take` or `value`. With `take` beside it, a record that one ' +
            'side has deleted is kept with these values.',
          minProperties: 1,
        },
      ),
    ),
    token: Type.Optional(
      token(
        'Required. Repeats the `token` of the conflict, or that of the record in `tokens`. For a whole ' +
          'table: the `token` of the table in `conflictTables`.',
      ),
    ),
  },
  {
    ...closed,
    title: 'Resolution',
    description:
      'Decides conflicts. With `id` and `take`: a record as a whole. With `id` and `columns`: single ' +
      'columns of a record; `take` beside them decides the rest. With `kind`: a conflict of the schema. With nothing but `take`: all ' +
      'conflicts of records of the table that no other resolution names. If something that `token` stands ' +
      'for has changed since, the merge is refused with `outdated_resolution`, and the conflicts are ' +
      'listed again.',
    examples: [
      {
        table: 'users',
        id: 'ada',
        take: 'theirs',
        token: '0c9d0bfe42b6f5c1a94ad1e3b86bcd5d',
      },
      {
        table: 'users',
        id: 'bob',
        columns: { age: { value: 41 }, name: { take: 'ours' } },
        token: '7f0d6c2b5ad7e64f9f5c9d9b8f3d1c7e',
      },
      { table: 'orders', take: 'ours', token: 'b1946ac92492d2347c6235b4d2611184' },
      { table: 'orders', kind: 'schema', column: 'note', rename: 'remark' },
    ],
  },
)

export const ResolutionsSchema = Type.Array(ResolutionSchema, {
  maxItems: LIMITS.resolutionsMax,
  description:
    'Decisions about conflicts. They take precedence over `strategy`. A conflict that nothing decides ' +
    'still refuses the whole merge.',
})
export type Resolution = Static<typeof ResolutionSchema>

const values = Type.Object({ base: Type.Unknown(), ours: Type.Unknown(), theirs: Type.Unknown() })

/** All kinds of conflicts in one object, because the kinds have most fields in common. */
const MergeConflictSchema = Type.Object(
  {
    table: TableNameSchema,
    kind: Type.Enum(
      [
        'bothUpdated',
        'bothInserted',
        'deletedHere',
        'deletedThere',
        'notUnique',
        'notNull',
        'limit',
        'check',
        'link',
        'schema',
      ],
      {
        description:
          '`bothUpdated`, `bothInserted`: both sides gave columns of a record different values. ' +
          '`deletedHere`: the target deleted a record that the merged branch changed. ' +
          '`deletedThere`: the opposite. `notUnique`: several records would have the same value in a ' +
          'unique column or constraint. `notNull`: records would have no value in a column that must have one. ' +
          '`limit`: records would have a value that the column cannot have, such as one that the other side has ' +
          'removed from an enum. `check`: records would fail a check constraint, or have no value of a computed column. ' +
          '`link`: records would link to a record that does not exist. ' +
          '`schema`: names or links contradict each other, one side removed a table or column that ' +
          'the other changed, both added a column of the same name with different definitions, their changes of ' +
          'a column exclude each other, or one side uses a column that the other has removed or converted.',
      },
    ),
    id: Type.Optional(Type.String({ description: 'The id of the record in conflict.' })),
    token: Type.Optional(
      token(
        'Identifies what was in conflict when it was listed: the record on both sides, or for `schema`, ' +
          'what both sides have done. A resolution repeats it.',
      ),
    ),
    tokens: Type.Optional(
      Type.Record(Type.String(), Type.String(), {
        description:
          'For `notUnique`, `notNull`, `limit`, `check` and `link`: the token of each of the `ids`.',
      }),
    ),
    columns: Type.Optional(
      Type.Record(Type.String(), values, {
        description: 'The columns in conflict, with the value in the base and on both sides.',
      }),
    ),
    base: Type.Optional(
      Type.Unknown({
        description: 'If a side deleted the record: the record in the base.',
      }),
    ),
    ours: Type.Optional(
      Type.Unknown({
        description:
          'Like `base`, on the target, or null. For a column that both sides added: its definition there.',
      }),
    ),
    theirs: Type.Optional(
      Type.Unknown({ description: 'Like `ours`, on the merged branch, or null.' }),
    ),
    column: Type.Optional(
      Type.String({
        description:
          'For `notUnique`, `notNull`, `limit`, `check`, `link` and `schema`: the column. For a constraint of several: the first one.',
      }),
    ),
    constraint: Type.Optional(
      Type.String({ description: 'For `notUnique`, `check` and `schema`: the constraint.' }),
    ),
    ids: Type.Optional(
      Type.Array(Type.String(), { description: 'Up to 10 of the records in conflict.' }),
    ),
    value: Type.Optional(
      Type.Unknown({
        description:
          'The value that is not unique. Of several columns: an object with their values.',
      }),
    ),
    records: Type.Optional(
      Type.Integer({
        description:
          'For `notNull`, `limit`, `check` and `link`: the number of these records; for a `check` that cannot be ' +
          'evaluated for some of them, counted up to 10. For a removed table or column: the ' +
          'number of records that the other side has changed there.',
      }),
    ),
    target: Type.Optional(
      Type.Object(
        {
          table: TableNameSchema,
          id: Type.String(),
          token: Type.Optional(token('The token of the record, for a resolution with `take`.')),
          takes: Type.Array(TakeSchema, {
            description:
              'The side that has the record. Taking it keeps the record, or gives it back to the target.',
          }),
        },
        { description: 'For `link`: the record that would not exist.' },
      ),
    ),
    takes: Type.Optional(
      Type.Array(TakeSchema, {
        description:
          'Only for `schema`: the decisions that are possible. Empty: change a branch first, or use ' +
          '`rename` if two tables or columns have the same name.',
      }),
    ),
    message: Type.Optional(Type.String()),
  },
  { title: 'MergeConflict' },
)
export type MergeConflict = Static<typeof MergeConflictSchema>

/** Fields about conflicts that a result and a refusal have in common. */
export const conflictFields = {
  conflicts: Type.Array(MergeConflictSchema, {
    description:
      'A page of the conflicts: those of the schemas, then those of each table. At most 4 MiB.',
  }),
  conflictCount: Type.Integer({ description: 'The number of all conflicts.' }),
  conflictTables: Type.Array(
    Type.Object({
      name: TableNameSchema,
      conflicts: Type.Integer(),
      token: Type.Optional(
        token(
          'Identifies all conflicts of records of the table, whether they are listed or not. A resolution ' +
            'of the whole table repeats it. Omitted if there are none left.',
        ),
      ),
    }),
    { description: 'The tables with conflicts, and how many each of them has.' },
  ),
  cursor: Type.Optional(
    Type.String({ description: 'The cursor for the next page of conflicts, if there are more.' }),
  ),
}
