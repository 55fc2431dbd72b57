import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { BranchParamsSchema } from '@offshoot/contract/branches'
import { AtQuerySchema } from '@offshoot/contract/checkpoints'
import { OperationStartedSchema } from '@offshoot/contract/operations'
import type { Column } from '@offshoot/contract/schema'
import {
  AlterColumnRequestSchema,
  ApplyEditsSchema,
  ColumnParamsSchema,
  ColumnPreviewSchema,
  CompareBranchParamsSchema,
  CompareBranchSchema,
  CompareSchemaSchema,
  ComparisonSchema,
  ConstraintParamsSchema,
  ConstraintPreviewSchema,
  CreatedTableSchema,
  CreateTableSchema,
  DeletedTableSchema,
  FlatColumnsSchema,
  HistoryRequestSchema,
  HistorySchema,
  PreviewEditsSchema,
  PreviewSchema,
  PushMigrationsSchema,
  type PutConstraint,
  PutConstraintSchema,
  ReplaceColumnsSchema,
  type SchemaUpdate,
  SchemaUpdateSchema,
  TableColumnsSchema,
  TableParamsSchema,
  UpdateSchemaSchema,
  UpdateTableSchema,
} from '@offshoot/contract/schema-edits'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { Need } from '../../domain/access/scope.js'
import { withPin } from '../../domain/merges/pins.js'
import {
  alterColumn,
  applySchemaOperations,
  compareWithBranch,
  compareWithSchema,
  type EditContext,
  type EditorContext,
  type LookContext,
  previewColumn,
  previewConstraint,
  previewEdits,
  pushMigrations,
  readColumn,
  readFlatColumns,
  readHistory,
  readTableColumns,
  replaceColumns,
  setConstraint,
  updateSchema,
} from '../../domain/schemas/operations.js'
import { addressed, splitDatabaseBranch } from '../addressed.js'
import { atCheckpoint } from '../at-checkpoint.js'
import type { LongAnswers } from '../long-answers.js'
import { refusals } from '../responses.js'
import { sendLarge } from '../send-json.js'
import type { Services } from '../services.js'

type BranchRequest = FastifyRequest<{ Params: { databaseBranch: string } }>

/** Answers of edits that may take long. */
const EDITED = {
  200: SchemaUpdateSchema,
  202: OperationStartedSchema,
  ...refusals(404, 409, 422),
}

/**
 * PUT    /db/:databaseBranch/tables/:tableName            PATCH, DELETE
 * GET    /db/:databaseBranch/tables/:tableName/schema     PUT
 * GET    /db/:databaseBranch/tables/:tableName/columns    POST
 * GET    /db/:databaseBranch/tables/:tableName/columns/:columnName    PATCH, DELETE
 * PUT    /db/:databaseBranch/tables/:tableName/constraints/:constraintName    DELETE
 * POST   /db/:databaseBranch/schema/compare               /compare/:branchName
 * POST   /db/:databaseBranch/schema/preview               /apply, /update, /history, /push
 */
export function schemaRoutes(
  { database, storage, limits }: Services,
  longAnswers: LongAnswers,
): FastifyPluginAsyncTypebox {
  const { branchOf } = addressed(database)
  /** The branch that a request reads, or the checkpoint of it that the parameter `at` names. */
  const readAt = async (
    request: BranchRequest & { query: { at?: string } },
    reply: FastifyReply,
  ): Promise<EditContext> => {
    const access = await branchOf(request, 'read')
    return { access: await atCheckpoint(database, access, { ...request.query, reply }), limits }
  }

  const edit = async (request: BranchRequest, need: Need): Promise<EditContext> => ({
    access: await branchOf(request, need),
    limits,
  })

  /** Removing a single table or column by name implies the loss of its values. */
  const step = async (request: BranchRequest): Promise<EditorContext> => ({
    ...(await edit(request, 'write')),
    allowDataLoss: true,
    withPin,
  })

  /** Xata clients do not know `allowDataLoss`, so their edits may always remove values. */
  const write = async (
    request: BranchRequest & { body: { allowDataLoss?: boolean } },
  ): Promise<EditorContext> => ({
    ...(await edit(request, 'write')),
    allowDataLoss: request.isXataClient || request.body.allowDataLoss === true,
    withPin,
  })

  /** Applies an edit that may take long. Xata clients do not know operations, and wait for its end. */
  const apply = async (
    request: FastifyRequest,
    reply: FastifyReply,
    context: EditorContext,
    change: (context: EditorContext) => Promise<SchemaUpdate>,
  ) =>
    request.isXataClient
      ? change(context)
      : longAnswers.answer(request, reply, 'migration', (work) => change({ ...context, work }))

  /** Xata clients do not know `dataLoss`, nor the operation that alters a column, which they would not show to anyone. */
  const look = async (request: BranchRequest): Promise<LookContext> => ({
    ...(await edit(request, 'read')),
    showsLoss: !request.isXataClient,
    altersColumns: !request.isXataClient,
  })

  return async (app) => {
    const tags = ['Schema']
    const table = '/db/:databaseBranch/tables/:tableName'

    app.put(
      table,
      {
        schema: {
          tags,
          operationId: 'createTable',
          summary: 'Create a table',
          params: TableParamsSchema,
          body: Type.Union([CreateTableSchema, Type.Null()]),
          response: { 201: CreatedTableSchema, ...refusals(404, 409, 422) },
        },
        preValidation: async (request) => {
          // In the API of Xata, the request has no body, and one that is sent is ignored.
          if (request.isXataClient) request.body = null
        },
      },
      async (request, reply) => {
        const { databaseBranch, tableName } = request.params
        const { id, history } = request.body ?? {}
        const addTable = {
          table: tableName,
          ...(id && { idType: id.type, ...(id.bits && { idBits: id.bits }) }),
          ...(history && { history }),
        }
        const operations = [{ addTable }]
        const { status, entry } = await applySchemaOperations(
          storage,
          await step(request),
          operations,
        )
        return reply.code(201).send({
          ...{ branchName: databaseBranch, tableName, status },
          ...(entry === undefined ? {} : { entry }),
        })
      },
    )

    app.patch(
      table,
      {
        schema: {
          tags,
          operationId: 'updateTable',
          summary:
            'Rename a table, or change the size of its ids or how long versions of records are kept',
          params: TableParamsSchema,
          body: UpdateTableSchema,
          response: { 200: SchemaUpdateSchema, ...refusals(404, 409, 422) },
        },
      },
      async (request) => {
        const { tableName: table } = request.params
        const { name, id, history } = request.body
        const changes = {
          ...(history !== undefined && { history }),
          ...(id && { idBits: id.bits }),
        }
        return applySchemaOperations(storage, await step(request), [
          ...(Object.keys(changes).length === 0 ? [] : [{ alterTable: { table, ...changes } }]),
          ...(name === undefined ? [] : [{ renameTable: { oldName: table, newName: name } }]),
        ])
      },
    )

    app.delete(
      table,
      {
        schema: {
          tags,
          operationId: 'deleteTable',
          summary: 'Delete a table',
          params: TableParamsSchema,
          response: { 200: DeletedTableSchema, ...refusals(404, 409) },
        },
      },
      async (request) => {
        const removeTable = { table: request.params.tableName }
        const context = await step(request)
        const operations = [{ removeTable }]
        const { status, entry } = await applySchemaOperations(storage, context, operations)
        return { status, ...(entry === undefined ? {} : { entry }) }
      },
    )

    app.get(
      `${table}/schema`,
      {
        schema: {
          tags,
          operationId: 'getTableSchema',
          summary: 'Read the columns of a table',
          params: TableParamsSchema,
          querystring: AtQuerySchema,
          response: { 200: TableColumnsSchema, ...refusals(404) },
        },
      },
      async (request, reply) =>
        readTableColumns(database, await readAt(request, reply), request.params.tableName),
    )

    app.put(
      `${table}/schema`,
      {
        schema: {
          tags,
          operationId: 'replaceTableSchema',
          summary: 'Replace the columns of a table',
          description:
            'Adds the columns that are missing in the table, changes those that have another definition and removes those that are not in the request, by name. Records must allow the changes, as in a change of a single column. If a column to remove contains values, the request is refused with `data_loss`, unless `allowDataLoss` is true.',
          params: TableParamsSchema,
          body: ReplaceColumnsSchema,
          response: { 200: SchemaUpdateSchema, ...refusals(404, 409, 422) },
        },
      },
      async (request) =>
        replaceColumns(storage, await write(request), {
          tableName: request.params.tableName,
          columns: request.body.columns,
        }),
    )

    app.get(
      `${table}/columns`,
      {
        schema: {
          tags,
          operationId: 'listColumns',
          summary: 'List the columns of a table, nested ones by dotted name',
          params: TableParamsSchema,
          querystring: AtQuerySchema,
          response: { 200: FlatColumnsSchema, ...refusals(404) },
        },
      },
      async (request, reply) =>
        reply.send(
          (await readFlatColumns(
            database,
            await readAt(request, reply),
            request.params.tableName,
          )) as never,
        ),
    )

    app.post(
      `${table}/columns`,
      {
        schema: {
          tags,
          operationId: 'createColumn',
          summary: 'Add a column',
          params: TableParamsSchema,
          body: Type.Unsafe<Column>(Type.Ref('Column#')),
          response: EDITED,
        },
      },
      async (request, reply) => {
        const addColumn = { table: request.params.tableName, column: request.body }
        return apply(request, reply, await step(request), (context) =>
          applySchemaOperations(storage, context, [{ addColumn }]),
        )
      },
    )

    app.get(
      `${table}/columns/:columnName`,
      {
        schema: {
          tags,
          operationId: 'getColumn',
          summary: 'Read a column',
          params: ColumnParamsSchema,
          querystring: AtQuerySchema,
          response: { 200: Type.Unsafe<Column>(Type.Ref('Column#')), ...refusals(404) },
        },
      },
      async (request, reply) => readColumn(database, await readAt(request, reply), request.params),
    )

    app.patch(
      `${table}/columns/:columnName`,
      {
        schema: {
          tags,
          operationId: 'updateColumn',
          summary: 'Change a column',
          description:
            'Changes the name, the type, the rules, the default value or the description of a column, as one migration. Fields that are not given stay as they are. All records must allow the change: values must convert to a new type as a whole, a column that becomes `notNull` or `unique` must have values that are. Otherwise the request is refused with `invalid_schema`, and `problems` lists the records. With `dryRun`, the answer lists these problems and nothing is changed.',
          params: ColumnParamsSchema,
          body: AlterColumnRequestSchema,
          response: {
            ...EDITED,
            200: Type.Union([SchemaUpdateSchema, ColumnPreviewSchema]),
          },
        },
      },
      async (request, reply) => {
        const { dryRun, ...changes } = request.body
        const change = { ...request.params, changes }
        if (dryRun) return previewColumn(database, await edit(request, 'read'), change)
        return apply(request, reply, await step(request), (context) =>
          alterColumn(storage, context, change),
        )
      },
    )

    app.delete(
      `${table}/columns/:columnName`,
      {
        schema: {
          tags,
          operationId: 'deleteColumn',
          summary: 'Delete a column',
          params: ColumnParamsSchema,
          response: { 200: SchemaUpdateSchema, ...refusals(404, 409) },
        },
      },
      async (request) => {
        const { tableName, columnName } = request.params
        const removeColumn = { table: tableName, column: columnName }
        return applySchemaOperations(storage, await step(request), [{ removeColumn }])
      },
    )

    app.put(
      `${table}/constraints/:constraintName`,
      {
        schema: {
          tags,
          operationId: 'replaceConstraint',
          summary: 'Add or replace a constraint',
          description:
            'Records of the table must keep the constraint from now on. If records violate it, the request is refused with `constraint_violated`, and lists the first of them. With `dryRun`, the answer lists them as `problems` and nothing is changed.',
          params: ConstraintParamsSchema,
          body: PutConstraintSchema,
          response: {
            ...EDITED,
            200: Type.Union([SchemaUpdateSchema, ConstraintPreviewSchema]),
          },
        },
      },
      async (request, reply) => {
        const { tableName, constraintName: name } = request.params
        const { dryRun, ...rule } = request.body as PutConstraint
        const change = { tableName, constraint: { name, ...rule } }
        if (dryRun) return previewConstraint(database, await edit(request, 'read'), change)
        return apply(request, reply, await step(request), (context) =>
          setConstraint(storage, context, change),
        )
      },
    )

    app.delete(
      `${table}/constraints/:constraintName`,
      {
        schema: {
          tags,
          operationId: 'deleteConstraint',
          summary: 'Delete a constraint',
          params: ConstraintParamsSchema,
          response: { 200: SchemaUpdateSchema, ...refusals(404, 409) },
        },
      },
      async (request) => {
        const { tableName, constraintName } = request.params
        const removeConstraint = { table: tableName, constraint: constraintName }
        return applySchemaOperations(storage, await step(request), [{ removeConstraint }])
      },
    )

    const schema = '/db/:databaseBranch/schema'
    const params = BranchParamsSchema

    app.post(
      `${schema}/compare`,
      {
        schema: {
          tags,
          operationId: 'compareSchema',
          summary: 'Compare a branch with a schema',
          description:
            'Lists the operations that turn the schema of the branch into the given one.',
          params,
          body: CompareSchemaSchema,
          response: { 200: ComparisonSchema, ...refusals(404, 422) },
        },
      },
      async (request, reply) =>
        sendLarge(reply, await compareWithSchema(database, await look(request), request.body)),
    )

    app.post(
      `${schema}/compare/:branchName`,
      {
        schema: {
          tags,
          operationId: 'compareBranches',
          summary: 'Compare the schemas of two branches',
          params: CompareBranchParamsSchema,
          body: Type.Union([CompareBranchSchema, Type.Null()]),
          response: { 200: ComparisonSchema, ...refusals(404, 422) },
        },
      },
      async (request, reply) => {
        const { databaseName } = splitDatabaseBranch(request.params.databaseBranch)
        const context = await look(request)
        const other = await branchOf(
          request,
          'read',
          `${databaseName}:${request.params.branchName}`,
        )
        const options = { other, request: request.body ?? {} }
        return sendLarge(reply, await compareWithBranch(database, context, options))
      },
    )

    app.post(
      `${schema}/preview`,
      {
        schema: {
          tags,
          operationId: 'previewSchema',
          summary: 'Preview schema edits',
          description: 'Returns the schema that the edits lead to. Nothing is changed.',
          params,
          body: PreviewEditsSchema,
          response: { 200: PreviewSchema, ...refusals(404, 422) },
        },
      },
      async (request, reply) =>
        sendLarge(reply, await previewEdits(database, await look(request), request.body)),
    )

    app.post(
      `${schema}/apply`,
      {
        schema: {
          tags,
          operationId: 'applySchema',
          summary: 'Apply schema edits as one migration',
          description: 'All operations take effect, or none does.',
          params,
          body: ApplyEditsSchema,
          response: EDITED,
        },
      },
      async (request, reply) => {
        const { operations } = request.body.edits
        return apply(request, reply, await write(request), (context) =>
          applySchemaOperations(storage, context, operations),
        )
      },
    )

    app.post(
      `${schema}/update`,
      {
        schema: {
          tags,
          operationId: 'updateSchema',
          summary: 'Apply operations if the branch is at a given migration',
          params,
          body: UpdateSchemaSchema,
          response: EDITED,
        },
      },
      async (request, reply) =>
        apply(request, reply, await write(request), (context) =>
          updateSchema(storage, context, request.body),
        ),
    )

    app.post(
      `${schema}/history`,
      {
        schema: {
          tags,
          operationId: 'listMigrations',
          summary: 'Read the migrations of a branch',
          params,
          body: Type.Union([HistoryRequestSchema, Type.Null()]),
          response: { 200: HistorySchema, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const context = await edit(request, 'read')
        return sendLarge(reply, await readHistory(database, context, request.body ?? {}))
      },
    )

    app.post(
      `${schema}/push`,
      {
        schema: {
          tags,
          operationId: 'pushMigrations',
          summary: 'Push migrations of another branch or instance',
          params,
          body: PushMigrationsSchema,
          response: EDITED,
        },
      },
      async (request, reply) =>
        apply(request, reply, await write(request), (context) =>
          pushMigrations(storage, context, request.body),
        ),
    )
  }
}
