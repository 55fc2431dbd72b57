import type { Limits } from '@offshoot/contract/limits'
import type { JsonText } from '../../../common/write-json.js'
import { setIndexes } from '../../../domain/schemas/indexes.js'
import { editDirectly } from '../../../domain/schemas/operations.js'
import { toPublicSchema } from '../../../domain/schemas/public-schema.js'
import { columnIdsOf } from '../../../domain/schemas/store-constraint.js'
import type { Bounds } from '../../../postgres/bounds.js'
import { listAllColumns, type StoredSchema } from '../../../rows/columns/stored-schema.js'
import type { Storage } from '../../../rows/storage.js'
import { answerOnce, type IdempotencyContext, keepAnswer } from '../../records/idempotency.js'
import type { ParsedSchema } from './parse-schema.js'
import { planSchema, type SchemaPlan } from './plan-schema.js'

interface ChangeContext extends IdempotencyContext {
  readonly storage: Storage
  readonly limits: Limits
  readonly bounds: Bounds
}

interface SchemaAnswer {
  readonly allowDataLoss: boolean
  /** Joins the results of the texts. */
  toAnswer(results: readonly Pick<SchemaPlan, 'tag' | 'notices'>[]): JsonText
}

/** Applies statements that change the schema as one migration. */
export async function changeSchema(
  context: ChangeContext,
  parsed: ParsedSchema,
  { allowDataLoss, toAnswer }: SchemaAnswer,
): Promise<JsonText> {
  const { session, storage, limits } = context
  const { access, branch } = session
  const execute = async () => {
    // Sessions are kept. The guard tells whether key and branch are still those of the session.
    await branch.runReads([], context.bounds)
    let answer: JsonText = ''
    let indexes: SchemaPlan['indexes'] = []
    await editDirectly(
      storage,
      { access, limits, allowDataLoss },
      async ({ schema }, transaction) => {
        const plan = planSchema(parsed, toPublicSchema(schema), constraintColumns(schema))
        indexes = plan.indexes
        answer = toAnswer(
          parsed.texts.map((_, index) => ({
            tag: plan.tag,
            notices: index === 0 ? plan.notices : [],
          })),
        )
        await keepAnswer(branch.inTransaction(transaction.client), context, answer)
        return [{ operations: [...plan.operations] }]
      },
      (transaction) => setIndexes(transaction, { access, limits }, indexes),
    )
    return answer
  }
  return answerOnce(context, execute, { isShort: true })
}

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
