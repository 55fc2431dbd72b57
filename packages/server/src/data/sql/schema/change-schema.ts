import type { Limits } from '@offshoot/contract/limits'
import type { JsonText } from '../../../common/write-json.js'
import { withPin } from '../../../domain/merges/pins.js'
import { setIndexes } from '../../../domain/schemas/indexes.js'
import { editDirectly, editWithin } from '../../../domain/schemas/operations.js'
import { toPublicSchema } from '../../../domain/schemas/public-schema.js'
import { columnIdsOf } from '../../../domain/schemas/store-constraint.js'
import type { Bounds } from '../../../postgres/bounds.js'
import type { Transaction } from '../../../postgres/run-transaction.js'
import { listAllColumns, type StoredSchema } from '../../../rows/columns/stored-schema.js'
import type { Storage } from '../../../rows/storage.js'
import { answerOnce, type IdempotencyContext, keepAnswer } from '../../records/idempotency.js'
import type { SchemaTypes } from './enum-types.js'
import type { ParsedSchema } from './parse-schema.js'
import { planSchema, type SchemaPlan } from './plan-schema.js'
import { SchemaModel } from './schema-model.js'

interface ChangeContext extends IdempotencyContext {
  readonly storage: Storage
  readonly limits: Limits
  readonly bounds: Bounds
  /** Called with the entry of the log of a change that has taken effect. */
  readonly onEntry?: ((id: string) => void) | undefined
}

/** What a client has allowed and made before. */
export interface ChangeOptions {
  /** Whether statements may remove tables and columns that hold values. */
  readonly allowDataLoss: boolean
  /** The enums that its statements can name. */
  readonly types?: SchemaTypes | undefined
}

type SchemaResult = Pick<SchemaPlan, 'tags' | 'notices' | 'types'>

interface SchemaAnswer extends ChangeOptions {
  /** Joins the results of the texts. */
  toAnswer(results: readonly SchemaResult[]): JsonText
}

/** Applies statements that change the schema as one migration. */
export async function changeSchema(
  context: ChangeContext,
  parsed: ParsedSchema,
  { allowDataLoss, types, toAnswer }: SchemaAnswer,
): Promise<JsonText> {
  const { session, storage, limits } = context
  const { access, branch } = session
  const execute = async () => {
    // Sessions are kept. The guard tells whether key and branch are still those of the session.
    await branch.runReads([], context.bounds)
    let answer: JsonText = ''
    let indexes: SchemaPlan['indexes'] = []
    const { entry } = await editDirectly(
      storage,
      { access, limits, allowDataLoss, withPin },
      async ({ schema }, transaction) => {
        const plan = planSchema(parsed, modelOf(schema), types)
        indexes = plan.indexes
        answer = toAnswer(
          parsed.texts.map((_, index) => ({
            tags: plan.tags,
            types: plan.types,
            notices: index === 0 ? plan.notices : [],
          })),
        )
        await keepAnswer(branch.inTransaction(transaction.client), context, answer)
        return [{ operations: [...plan.operations] }]
      },
      (transaction) => setIndexes(transaction, { access, limits }, indexes),
    )
    if (entry !== undefined) context.onEntry?.(entry)
    return answer
  }
  return answerOnce(context, execute, { isShort: true })
}

/** Applies statements that change the schema as a migration, in a transaction that has the branch alone. */
export async function changeSchemaWithin(
  { session, limits }: Pick<ChangeContext, 'session' | 'limits'>,
  transaction: Transaction,
  { parsed, allowDataLoss, types }: ChangeOptions & { parsed: ParsedSchema },
): Promise<SchemaResult> {
  const { access } = session
  let found: SchemaPlan | undefined
  await editWithin(
    transaction,
    { access, limits, allowDataLoss },
    async ({ schema }) => {
      found = planSchema(parsed, modelOf(schema), types)
      return [{ operations: [...found.operations] }]
    },
    () => setIndexes(transaction, { access, limits }, found?.indexes ?? []),
  )
  if (found === undefined) throw new Error('a change of the schema must be planned')
  return found
}

const modelOf = (schema: StoredSchema): SchemaModel =>
  new SchemaModel(toPublicSchema(schema), {
    usedBy: constraintColumns(schema),
    hasIndex(tableName, columnName) {
      const table = schema.tables.find(({ name }) => name === tableName)
      return table?.columns.find(({ name }) => name === columnName)?.index === true
    },
  })

/** Returns the names of the columns that a constraint uses. */
function constraintColumns({ tables }: StoredSchema) {
  return (tableName: string, constraintName: string): string[] => {
    const table = tables.find(({ name }) => name === tableName)
    const constraint = table?.constraints?.find(({ name }) => name === constraintName)
    const ids = new Set(constraint && columnIdsOf(constraint))
    return (table?.columns ?? [])
      .filter((column) => listAllColumns([column]).some(({ id }) => ids.has(id)))
      .map(({ name }) => name)
  }
}
