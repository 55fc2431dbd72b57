import { parentPort } from 'node:worker_threads'
import { LIMITS, type Limits } from '@offshoot/contract/limits'
import { READY } from '../../common/worker-thread.js'
import { warmUpParser } from '../../dialect/parser.js'
import { compileTable, type TableCodec } from '../../rows/columns/table-codec.js'
import { TableRows } from '../../rows/reading/table-rows.js'
import { BranchTables } from './branch-tables.js'
import { type ParsedStatement, parseStatement } from './parse-statement.js'
import {
  errorAnswer,
  type ParseAnswer,
  type PlanAnswer,
  type PlanRequest,
  type TableDescription,
  toWire,
} from './plan-wire.js'
import { planStatement } from './plans/planner.js'

/* The thread that plans large statements. It answers `parse` and `plan`; see plan-wire.ts. */

let metadataKey: string | undefined
let limits: Limits = LIMITS
let enums: ReadonlyMap<string, readonly string[]> = new Map()
let tables = new Map<string, TableDescription>()
const described = new WeakMap<TableDescription, { codec: TableCodec; rows: TableRows }>()
let parsed: ParsedStatement | undefined

async function handle(request: PlanRequest): Promise<ParseAnswer | PlanAnswer | undefined> {
  switch (request.kind) {
    case 'begin':
      metadataKey = request.metadataKey
      limits = request.limits
      tables = new Map()
      enums = new Map()
      return undefined
    case 'enums':
      enums = request.enums
      return undefined
    case 'table':
      tables.set(request.table.name, request)
      return undefined
    case 'parse':
      parsed = await parseStatement(request.text, request.parameterCount)
      return { names: [...parsed.relationNames], typeNames: [...parsed.typeNames] }
    case 'plan': {
      if (parsed === undefined) throw new Error('a statement is parsed before it is planned')
      const { parameterSizes, parameterTypes } = request
      const options = { tables: openTables(), parameterSizes, parameterTypes }
      return { plan: toWire(planStatement(parsed, options)) }
    }
  }
}

function openTables(): BranchTables {
  return new BranchTables({
    metadataKey,
    enums: () => enums,
    tableNames: [...tables.keys()],
    describe(name) {
      const found = tables.get(name)
      if (found === undefined) return undefined
      const known = described.get(found)
      if (known !== undefined) return known
      const codec = compileTable(found.table, { limits, jsonAsText: false })
      const description = { codec, rows: new TableRows(found.rows, codec) }
      described.set(found, description)
      return description
    },
  })
}

const port = parentPort
if (port === null) throw new Error('this module runs as a thread')
port.on('message', (request: PlanRequest) => {
  handle(request).then(
    (answer) => answer !== undefined && port.postMessage(answer),
    (error: unknown) => port.postMessage(errorAnswer(error)),
  )
})
await warmUpParser()
port.postMessage(READY)
