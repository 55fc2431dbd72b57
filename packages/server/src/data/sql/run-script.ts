import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { JsonText } from '../../common/write-json.js'
import { invalidSql } from '../../dialect/invalid-sql.js'
import { kindOf } from '../../dialect/nodes.js'
import { answerOnce } from '../records/idempotency.js'
import { type RunStatement, requireLimits, requireSchemaChange } from './prepare-sql.js'
import type { ResultForm } from './result-forms.js'
import { MissingStorageError, runSql, type SqlRun } from './run-sql.js'
import { isSchemaNode, type ParsedSchema, parseSchema } from './schema/parse-schema.js'
import type { SchemaPlan } from './schema/plan-schema.js'
import { type HoldContext, holdTransaction } from './sql-transaction.js'

/*
 * Scripts: statements that change the schema, with others between them that read and write, as tools for migrations write
 * them. They are one transaction, which has the branch alone. Neighbours that change the schema are one migration.
 */

/** A statement of a script, or neighbours that change the schema. */
interface Part {
  readonly texts: string[]
  readonly isSchema: boolean
}

/** Runs the statements of a request in one transaction. */
export async function runSqlOrScript(context: HoldContext, request: SqlRun): Promise<JsonText> {
  const { statements } = request
  requireLimits(context.limits, statements)
  const parsed = await parseSchema(statements.map(({ statement }) => statement))
  if (parsed === undefined || changesOnly(parsed)) return runSql(context, request)
  return answerOnce(context, () => runScript(context, request, parsed), { isShort: true })
}

const isFrame = ({ node }: ParsedSchema['texts'][number][number]) =>
  kindOf(node) === 'TransactionStmt'

const changesOnly = ({ texts }: ParsedSchema): boolean =>
  texts.flat().every((each) => isSchemaNode(each.node) || isFrame(each))

async function runScript(
  context: HoldContext,
  request: SqlRun,
  { texts }: ParsedSchema,
): Promise<JsonText> {
  const scripts = texts.map(partsOf)
  requirePartCount(context.limits, scripts.flat().length)
  for (const [index, parts] of scripts.entries()) {
    const { params } = request.statements[index] ?? {}
    if (parts.length === 1 && !parts[0]?.isSchema) continue
    requireSchemaChange(context, [{ statement: '', params: params ?? null }])
  }
  for (;;) {
    try {
      return await runParts(context, request, scripts)
    } catch (error) {
      // It needs the branch alone, too, so the transaction has ended.
      if (!(error instanceof MissingStorageError)) throw error
      const { session } = context
      await session.branch.makeWritable(error.tables.map((name) => session.table(name)))
    }
  }
}

function requirePartCount({ sqlScriptStatementsMax: max }: Limits, count: number): void {
  if (count <= max) return
  throw invalidSql(
    `a request that changes the schema and records can have at most ${max} statements`,
  )
}

/** Returns the parts of a text. It is applied all or not at all, also without BEGIN and COMMIT around it. */
function partsOf(found: ParsedSchema['texts'][number]): Part[] {
  const parts: Part[] = []
  for (const [index, each] of found.entries()) {
    if (isFrame(each) && (index === 0 || index === found.length - 1)) continue
    const isSchema = isSchemaNode(each.node)
    const last = parts.at(-1)
    if (isSchema && last?.isSchema) last.texts.push(each.statement)
    else parts.push({ texts: [each.statement], isSchema })
  }
  return parts
}

async function runParts(
  context: HoldContext,
  { statements, form, change, toAnswer }: SqlRun,
  scripts: readonly (readonly Part[])[],
): Promise<JsonText> {
  let answer: JsonText = ''
  // Others wait for the branch, so the whole script has the time of a transaction.
  const endsAt = performance.now() + context.limits.sqlTransactionMs
  const options = { isReadOnly: false, isAlone: true, onWaited: () => undefined }
  await holdTransaction(context, options, async (transaction) => {
    const results: string[] = []
    let types = change?.types
    for (const [index, parts] of scripts.entries()) {
      const notices: string[] = []
      const tags: string[] = []
      const noting: ResultForm = {
        ...form,
        change(made) {
          types = made.types
          tags.push(...made.tags)
          notices.push(...made.notices)
          return form.change(made)
        },
      }
      let result = ''
      for (const { texts } of parts) {
        // A text can end with a comment.
        const statement = { statement: texts.join('\n;\n'), params: paramsOf(statements[index]) }
        const allowed = { allowDataLoss: false, ...change, types }
        const request = { statement, form: noting, change: allowed }
        result = await transaction.run({ ...context, bounds: untilEnd(context, endsAt) }, request)
      }
      const made: SchemaChanged = { tags, notices, types: types ?? new Map() }
      results.push(parts.length === 1 ? result : form.change(made))
    }
    answer = toAnswer(results)
    await transaction.keepAnswer(context, answer)
  })
  return answer
}

/** Returns the bounds of the next statement of a script. */
function untilEnd({ bounds, limits }: HoldContext, endsAt: number): HoldContext['bounds'] {
  const left = Math.ceil(endsAt - performance.now())
  if (left <= 0) {
    throw new AppError('timeout', `the statements take longer than ${limits.sqlTransactionMs} ms`)
  }
  return { ...bounds, timeoutMs: Math.min(left, bounds.timeoutMs) }
}

type SchemaChanged = Pick<SchemaPlan, 'tags' | 'notices' | 'types'>

const paramsOf = (statement: RunStatement | undefined) => statement?.params ?? null
