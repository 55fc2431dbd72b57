import { LIMITS } from '@offshoot/contract/limits'
import { describe, expect, it } from 'vitest'
import { sql } from '../../postgres/sql.js'
import type { Call, Statement } from '../../postgres/statement.js'
import { compileTable } from '../columns/table-codec.js'
import type { Layer, Layout, Level } from '../layout/layout.js'
import { TableRead } from '../reading/table-read.js'
import { TableRows } from '../reading/table-rows.js'
import { TableWriter } from './table-writer.js'

const codec = compileTable(
  {
    id: 1,
    name: 'people',
    columns: [
      { id: 2, name: 'age', type: 'int' },
      { id: 3, name: 'email', type: 'email', unique: true },
    ],
  },
  { limits: LIMITS, jsonAsText: false },
)

const KEY = { id: 3, name: undefined, isIndex: false, columns: [1] }

const heap = (heapId: string) => ({ databaseId: '7', heapId, columnIds: new Set([2, 3]) })

function level(index: number, layer?: Layer): Level {
  return {
    branchId: `b${index}`,
    asOf: index === 0 ? undefined : 1,
    heaps: new Map([[1, heap(String(10 + index))]]),
    layers: layer === undefined ? new Map() : new Map([[1, layer]]),
  }
}

function layoutOf(levels: readonly Level[], options: { hasForks: boolean }): Layout {
  return {
    branchId: 'b0',
    databaseId: '7',
    stamp: '1',
    schemaId: '1',
    epoch: options.hasForks ? 4 : 1,
    latestFork: options.hasForks ? 3 : 0,
    hasForks: options.hasForks,
    resets: 0,
    levels,
  }
}

const layer = { ...heap('20'), nextBranchId: 'b0', epoch: 3, latestFork: 2 }

const LAYOUTS: readonly (readonly [string, Layout])[] = [
  ['plain', layoutOf([level(0)], { hasForks: false })],
  ['forked', layoutOf([level(0)], { hasForks: true })],
  ['inheriting', layoutOf([level(0), level(1)], { hasForks: false })],
  ['inheriting and forked', layoutOf([level(0), level(1)], { hasForks: true })],
  ['layered', layoutOf([level(0, layer)], { hasForks: true })],
]

/** Lists all calls that write to a table, with those that run before them. */
function listCalls(writer: TableWriter): Call[] {
  const row = { id: 'x', values: ['1', 'a@example.com'] }
  const update = {
    columns: [1],
    values: ['b@example.com'],
    arithmetic: [{ column: 0, operator: '+' as const, operand: '1' }],
  }
  const plain = { ...update, arithmetic: [] }
  const stage = writer.stage(sql`"offshoot_db_7"."stream_1"`)
  const statementCall = (statement: Statement): Call => ({ statement, values: [] })
  const calls = [
    writer.insert([row], 'id'),
    writer.insertNew([{ ...row, isNewId: true }]),
    writer.insertOne(row),
    writer.insertOne({ ...row, isNewId: true }),
    writer.replaceOne(row),
    writer.replaceOne({ ...row, ifVersion: 1 }),
    writer.replace([row], 'metadata'),
    writer.replace([{ ...row, ifVersion: 1 }], 'id'),
    writer.delete(['x']),
    writer.delete(['x', 'y']),
    writer.update([row], [0, 1]),
    writer.updateOne({ id: 'x', update }),
    writer.updateOne({ id: 'x', update: plain }),
    ...writer.checkRows([row]).map(({ call }) => call),
    writer.findValues(KEY, [row]),
    stage.insert,
    stage.insertPart(1, 2),
    ...[stage.copy, stage.count, stage.findTakenId, stage.findTakenValue(KEY)].map(statementCall),
    statementCall(stage.findInherited(KEY)),
    statementCall(writer.copyStatement),
  ]
  return calls.flatMap((call) => [...(call.before ?? []), call])
}

describe.each(LAYOUTS)('the statements of a branch that is %s', (_name, layout) => {
  it('touch the schema of the database alone', () => {
    const writer = new TableWriter(layout, codec, {
      heap: heap('10'),
      statements: new Map(),
      isLinked: false,
      nameOf: () => '',
    })
    const rowsOf = () => new TableRows(layout, codec)
    const lookup = { rows: layout, tableById: () => codec, rowsOf }
    const read = TableRead.plan(lookup, codec, ['*']) as TableRead
    const texts = [
      ...listCalls(writer).map(({ statement }) => statement.text),
      read.one.text,
      read.many.text,
    ]
    for (const text of texts) {
      const schemas = [...text.matchAll(/"?(offshoot\w*)"?\./g)].map(([, schema]) => schema)
      expect(new Set(schemas)).toEqual(new Set(['offshoot_db_7']))
    }
  })

  it('take the moment from the transaction if the branch has forks', () => {
    const writer = new TableWriter(layout, codec, {
      heap: heap('10'),
      statements: new Map(),
      isLinked: false,
      nameOf: () => '',
    })
    const takesMoment = (call: Call) => 'takesMoment' in call
    expect(takesMoment(writer.updateOne({ id: 'x', update: NO_UPDATE }))).toBe(layout.hasForks)
    expect(takesMoment(writer.delete(['x']))).toBe(layout.hasForks)
  })
})

const NO_UPDATE = { columns: [], values: [], arithmetic: [] }
