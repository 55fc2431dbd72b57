import { describe, expect, it } from 'vitest'
import type { TableDefinition } from './archive.js'
import { createRulesStatements, createTableStatement, readTableShape } from './table-shape.js'

const fixed = (name: string, type: string, more: object = {}) => ({
  name,
  type,
  collation: null,
  notNull: true,
  fallback: null,
  ...more,
})

const TABLE: TableDefinition = {
  schema: 'offshoot_db_7',
  name: 'heap_2',
  columns: [
    fixed('version', 'integer', { fallback: '0' }),
    fixed('epoch', 'integer'),
    fixed('created_at', 'timestamp(3) with time zone', { fallback: 'now()' }),
    fixed('updated_at', 'timestamp(3) with time zone', { fallback: 'now()' }),
    fixed('deleted', 'boolean', { fallback: 'false' }),
    fixed('id', 'text', { collation: 'C' }),
    fixed('c5', 'jsonb', { notNull: false }),
  ],
  options: ['fillfactor=70'],
  constraints: [{ name: 'heap_2_pkey', definition: 'PRIMARY KEY (id)' }],
  indexes: [],
}

const textsOf = (table: TableDefinition, to: object = {}) => {
  const shape = { ...readTableShape(table), ...to }
  return [createTableStatement(shape), ...createRulesStatements(shape)].map(({ text, values }) => {
    expect(values).toEqual([])
    return text.replaceAll(/\s+/g, ' ').trim()
  })
}
const indexOf = (index: string) => textsOf({ ...TABLE, indexes: [index] }).at(-1)

describe('a table of an archive', () => {
  it('is created from its shape', () => {
    expect(textsOf(TABLE)).toEqual([
      `create table "offshoot_db_7"."heap_2" (${[
        '"version" integer default 0 not null',
        '"epoch" integer not null',
        '"created_at" timestamptz(3) default now() not null',
        '"updated_at" timestamptz(3) default now() not null',
        '"deleted" boolean default false not null',
        '"id" text collate "C" not null',
        '"c5" jsonb',
      ].join(', ')}) with ("fillfactor" = E'70')`,
      'alter table "offshoot_db_7"."heap_2" add constraint "heap_2_pkey" primary key ("id")',
    ])
  })

  it.each([
    [
      'CREATE INDEX heap_2_epoch_idx ON offshoot_db_7.heap_2 USING btree (epoch) WHERE (epoch > 1)',
      'create index "heap_2_epoch_idx" on "offshoot_db_7"."heap_2" ("epoch") where epoch > 1',
    ],
    [
      'CREATE UNIQUE INDEX heap_2_c5_unique ON offshoot_db_7.heap_2 USING btree (c5) WHERE (NOT deleted)',
      'create unique index "heap_2_c5_unique" on "offshoot_db_7"."heap_2" ("c5") where not deleted',
    ],
    [
      'CREATE INDEX heap_2_c5_index ON offshoot_db_7.heap_2 USING btree (c5, id)',
      'create index "heap_2_c5_index" on "offshoot_db_7"."heap_2" ("c5", "id")',
    ],
    [
      `CREATE INDEX heap_2_expr ON offshoot_db_7.heap_2 USING gin (jsonb_path_query_array(c5, '$[*]."sha256"'::jsonpath)) WHERE (c5 IS NOT NULL)`,
      `create index "heap_2_expr" on "offshoot_db_7"."heap_2" using gin (jsonb_path_query_array("c5", '$[*].sha256')) where "c5" is not null`,
    ],
  ])('has the index [%s]', (printed, created) => {
    expect(indexOf(printed)).toBe(created)
  })

  it('keeps the suffixes of its indexes and constraints under another name', () => {
    const index = 'CREATE INDEX heap_2_c5_index ON offshoot_db_7.heap_2 USING btree (c5)'
    const to = { schema: 'offshoot_db_12', name: 'heap_54' }
    expect(textsOf({ ...TABLE, indexes: [index] }, to).slice(1)).toEqual([
      'alter table "offshoot_db_12"."heap_54" add constraint "heap_54_pkey" primary key ("id")',
      'create index "heap_54_c5_index" on "offshoot_db_12"."heap_54" ("c5")',
    ])
  })

  it.each([
    'CREATE INDEX heap_2_x ON offshoot_db_7.heap_21 USING btree (c5)',
    'CREATE INDEX heap_2_x ON offshoot_db_8.heap_2 USING btree (c5)',
    'CREATE INDEX heap_21_x ON offshoot_db_7.heap_2 USING btree (c6)',
    'CREATE INDEX heap_2_x ON offshoot_db_7.heap_2 USING btree (c5, c5)',
    'CREATE INDEX heap_2_x ON offshoot_db_7.heap_2 USING btree (lower(id))',
    'CREATE INDEX heap_2_x ON offshoot_db_7.heap_2 USING btree (c5) WHERE (NOT deleted) WHERE (epoch > 1)',
    'CREATE INDEX heap_2_x ON offshoot_db_7.heap_2 USING btree (c5) WHERE (body IS NOT NULL)',
    `CREATE UNIQUE INDEX heap_2_x ON offshoot_db_7.heap_2 USING gin (jsonb_path_query_array(c5, '$[*]."sha256"'::jsonpath)) WHERE (c5 IS NOT NULL)`,
    `CREATE INDEX heap_2_x ON offshoot_db_7.heap_2 USING gin (jsonb_path_query_array(c5, '$[*]."sha256"'::jsonpath)) WHERE (c6 IS NOT NULL)`,
    'DROP TABLE offshoot_db_7.heap_2',
  ])('is refused with the index [%s]', (index) => {
    expect(() => indexOf(index)).toThrow(
      'table [offshoot_db_7.heap_2]: an index is not one that offshoot creates',
    )
  })
})
