import type { CallOptions, Transport } from './http.js'
import type { InsertRecord, TableName, UpdateFields } from './schema.js'
import { pathsOf, type Selected, type Selection } from './selection.js'

/** One operation of a transaction. */
export type Operation<Schema> = {
  [Table in TableName<Schema>]:
    | {
        readonly insert: {
          readonly table: Table
          readonly record: InsertRecord<Schema, Table>
          readonly createOnly?: boolean
          readonly ifVersion?: number
          readonly columns?: Selection<Schema, Table>
        }
      }
    | {
        readonly update: {
          readonly table: Table
          readonly id: string
          readonly fields: UpdateFields<Schema, Table>
          readonly ifVersion?: number
          readonly upsert?: boolean
          readonly columns?: Selection<Schema, Table>
        }
      }
    | {
        readonly delete: {
          readonly table: Table
          readonly id: string
          readonly failIfMissing?: boolean
          readonly columns?: Selection<Schema, Table>
        }
      }
    | {
        readonly get: {
          readonly table: Table
          readonly id: string
          readonly columns?: Selection<Schema, Table>
        }
      }
}[TableName<Schema>]

type ChosenColumns<Schema, Body> = Body extends { readonly table: infer Table }
  ? Table extends keyof Schema
    ? Body extends { readonly columns: infer Chosen }
      ? Selected<Schema, Table, Chosen>
      : undefined
    : never
  : never

/** The result of one operation of a transaction. */
export type OperationResult<Schema, One> = One extends { readonly insert: infer Body }
  ? {
      readonly operation: 'insert'
      readonly id: string
      readonly rows: number
      readonly columns: ChosenColumns<Schema, Body>
    }
  : One extends { readonly update: infer Body }
    ? {
        readonly operation: 'update'
        readonly id: string
        readonly rows: number
        readonly columns: ChosenColumns<Schema, Body>
      }
    : One extends { readonly delete: infer Body }
      ? {
          readonly operation: 'delete'
          readonly rows: number
          readonly columns: ChosenColumns<Schema, Body> | undefined
        }
      : One extends { readonly get: infer Body }
        ? { readonly operation: 'get'; readonly columns: ChosenColumns<Schema, Body> | undefined }
        : never

export type TransactionResults<Schema, Operations extends readonly unknown[]> = {
  readonly [Index in keyof Operations]: OperationResult<Schema, Operations[Index]>
}

/** Runs operations as one transaction: all of them or none. */
export async function runTransaction<Schema, const Operations extends readonly Operation<Schema>[]>(
  transport: Transport,
  branchPath: string,
  input: { operations: Operations; options: CallOptions },
): Promise<TransactionResults<Schema, Operations>> {
  const { results } = await transport.json<{ results: unknown }>({
    method: 'POST',
    path: `${branchPath}/transaction`,
    json: { operations: input.operations.map(toOperation) },
    isOnce: true,
    signal: input.options.signal,
  })
  return results as TransactionResults<Schema, Operations>
}

function toOperation(operation: object): unknown {
  return Object.fromEntries(
    Object.entries(operation).map(([kind, body]: [string, { columns?: unknown }]) => [
      kind,
      body.columns === undefined ? body : { ...body, columns: pathsOf(body.columns) },
    ]),
  )
}
