import { describe, expect, it } from 'vitest'
import {
  MergeModel,
  type ModelRow,
  type ModelTable,
  type State,
  type Strategy,
  writeRow,
} from './merge-model.js'

const NAME = { uid: 2, name: 'name', definition: { type: 'string' } } as const
const PRICE = { uid: 3, name: 'price', definition: { type: 'int' } } as const

const table = (columns: ModelTable['columns'], rows: Record<string, ModelRow>): ModelTable => ({
  uid: 1,
  name: 'items',
  idType: 'string',
  columns,
  constraints: [],
  rows: new Map(Object.entries(rows)),
})
const stateOf = (only: ModelTable, removed: readonly number[]): State => ({
  tables: [only],
  removed: new Set(removed),
})
const OLD: ModelRow = {
  version: 0,
  values: new Map<number, unknown>([
    [NAME.uid, 'ink'],
    [PRICE.uid, 7],
  ]),
}
const BEFORE = stateOf(table([NAME, PRICE], { ink: OLD }), [])

/** Reverts the removal of a column. The record is `row` after the removal, and was deleted since. */
function revert(row: ModelRow, strategy: Strategy) {
  const model = new MergeModel('main')
  const [main] = model.branches.values()
  if (main === undefined) throw new Error('the model must have a branch')
  const after = stateOf(table([NAME], { ink: row }), [PRICE.uid])
  main.state = stateOf(table([NAME], {}), [PRICE.uid])
  return model.revert(main, { before: BEFORE, after }, { strategy, tables: {} })
}

describe('the model of a revert that brings back a column', () => {
  it.each(['fail', 'ours', 'theirs'] as const)(
    'leaves a record deleted from which nothing but the column was taken (%s)',
    (strategy) => {
      const tables = new Map([['items', { inserted: 0, updated: 0, deleted: 0 }]])
      expect(revert(OLD, strategy)).toMatchObject({ kind: 'merged', tables })
    },
  )

  it('does not know whether the value is still stored if the record was written since', () => {
    const written = writeRow(OLD, table([NAME], {}), new Map([[NAME.uid, 'ink']]))
    expect(revert(written, 'theirs').kind).toBe('unknown')
  })

  it('brings back a record that was changed, too', () => {
    const changed = writeRow(OLD, table([NAME], {}), new Map([[NAME.uid, 'pen']]))
    const tables = new Map([['items', { inserted: 1, updated: 0, deleted: 0 }]])
    expect(revert(changed, 'theirs')).toMatchObject({ kind: 'merged', tables })
    expect(revert(changed, 'fail').kind).toBe('refused')
  })
})
