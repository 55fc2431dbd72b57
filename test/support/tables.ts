import type { Column } from '@offshoot/contract/schema'
import { createDatabase } from './people.js'
import type { Answer, CallOptions, TestService } from './service.js'

/** A header that marks a request as one of a Xata client. */
export const XATA_CLIENT = { 'x-xata-agent': 'client=TS_SDK; version=0.30.1' }

export const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
export const GENERATED_ID = /^rec_[0-9a-v]{20}$/

export type BranchCall = (method: string, path: string, options?: CallOptions) => Promise<Answer>

/** Sends requests to a branch, through this or another service on the same database. */
export function branchCall(
  service: TestService,
  database: string,
  options: { branch?: string; via?: TestService } = {},
): BranchCall {
  const { branch = 'main', via = service } = options
  const base = `${service.workspace}/db/${database}:${branch}`
  return (method, path, callOptions) =>
    via.call(method, `${base}${path}`, { key: service.key, ...callOptions })
}

/** Returns operations that create tables and then their columns. */
export function addTables(tables: Readonly<Record<string, readonly Column[]>>) {
  const entries = Object.entries(tables)
  return [
    ...entries.map(([table]) => ({ addTable: { table } })),
    ...entries.flatMap(([table, columns]) =>
      columns.map((column) => ({ addColumn: { table, column } })),
    ),
  ]
}

/** Creates a database whose first branch has the given tables. */
export async function createTables(
  service: TestService,
  database: string,
  tables: Readonly<Record<string, readonly Column[]>>,
): Promise<BranchCall> {
  await createDatabase(service, database)
  const call = branchCall(service, database)
  const body = { operations: addTables(tables) }
  expectOk(await call('POST', '/schema/update', { body }))
  return call
}

/** Returns the answer of a step that must succeed; fails with the answer otherwise. */
export function expectOk(answer: Answer): Answer {
  if (answer.status >= 200 && answer.status < 300) return answer
  throw new Error(`got ${answer.status}: ${JSON.stringify(answer.body)}`)
}
