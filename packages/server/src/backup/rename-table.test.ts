import { describe, expect, it } from 'vitest'
import type { TableDefinition } from './archive.js'
import { renameTable } from './rename-table.js'

const TABLE: TableDefinition = {
  schema: 'offshoot_db_7',
  name: 'heap_2',
  columns: [],
  options: [],
  constraints: [{ name: 'heap_2_pkey', definition: 'PRIMARY KEY (id)' }],
  indexes: [],
}
const TO = { schema: 'offshoot_db_12', name: 'heap_54' }

const renamed = (index: string) => renameTable({ ...TABLE, indexes: [index] }, TO).indexes[0]

describe('a renamed table', () => {
  it('has its new name, and so have its constraints', () => {
    expect(renameTable(TABLE, TO)).toEqual({
      ...TABLE,
      ...TO,
      constraints: [{ name: 'heap_54_pkey', definition: 'PRIMARY KEY (id)' }],
    })
  })

  it('has indexes with new names on the same columns', () => {
    expect(
      renamed(
        'CREATE UNIQUE INDEX heap_2_c5_unique ON offshoot_db_7.heap_2 USING btree (c5) WHERE (NOT deleted)',
      ),
    ).toBe(
      'CREATE UNIQUE INDEX heap_54_c5_unique ON offshoot_db_12.heap_54 USING btree (c5) WHERE (NOT deleted)',
    )
    expect(
      renamed(
        `CREATE INDEX heap_2_expr_idx ON offshoot_db_7.heap_2 USING gin (f(c2, 'heap_2 ON heap_2'))`,
      ),
    ).toBe(
      `CREATE INDEX heap_54_expr_idx ON offshoot_db_12.heap_54 USING gin (f(c2, 'heap_2 ON heap_2'))`,
    )
  })

  it.each([
    'CREATE INDEX heap_2_x ON offshoot_db_7.heap_21 USING btree (c5)',
    'CREATE INDEX heap_2_x ON offshoot_db_8.heap_2 USING btree (c5)',
    'DROP TABLE offshoot_db_7.heap_2',
  ])('is refused with the index [%s]', (index) => {
    expect(() => renamed(index)).toThrow('table [offshoot_db_7.heap_2]: an index is of another')
  })
})
