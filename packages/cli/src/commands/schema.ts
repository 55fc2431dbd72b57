import { readFile, writeFile } from 'node:fs/promises'
import type { SchemaDefinition, SchemaOperation } from '@offshoot/client'
import type { Command } from 'commander'
import { action, createCommand } from '../shared/command.js'
import { EXIT, UsageError } from '../shared/failure.js'
import { notice, print, printJson, showingProgress } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { type Target, withBranch } from '../shared/target.js'
import { describeOperation } from './diff.js'

const DEFAULT_FILE = 'offshoot.schema.json'

interface SchemaFlags {
  readonly json?: boolean
  readonly file: string
  readonly yes?: boolean
  readonly allowDataLoss?: boolean
}

const withFile = (command: Command) =>
  withBranch(command).option('-f, --file <file>', 'the schema file', DEFAULT_FILE)

/** `offshoot schema`: keeps the schema in a file under version control. */
export const schemaCommand = () =>
  createCommand('schema', 'a schema file under version control: pull, plan, apply')
    .addCommand(
      withFile(createCommand('pull', 'write the schema of the branch to the file')).action(
        action<SchemaFlags, []>(async (target, { file }) => {
          const branch = await target.branch()
          const { tables } = await branch.schema()
          await writeFile(file, `${JSON.stringify(withoutIds({ tables }), null, 2)}\n`)
          notice(`Wrote the schema of ${branch.name} to ${file}.`)
          return 0
        }),
      ),
    )
    .addCommand(
      withFile(
        createCommand('plan', 'show the operations that lead to the file; exits with 3 if any'),
      ).action(
        action<SchemaFlags, []>(async (target, { json, file }) => {
          const { operations } = await planOf(target, file)
          if (json) printJson({ operations })
          else show(operations)
          return operations.length === 0 ? EXIT.done : EXIT.conflict
        }),
      ),
    )
    .addCommand(
      withFile(createCommand('apply', 'change the schema of the branch to that of the file'))
        .option('--yes', 'do not ask')
        .option('--allow-data-loss', 'allow the removal of tables and columns that hold values')
        .action(
          action<SchemaFlags, []>(async (target, { json, file, yes, allowDataLoss }) => {
            const { branch, operations } = await planOf(target, file)
            if (!json) show(operations)
            if (operations.length > 0) {
              await requireConsent(
                `This changes the schema of ${target.databaseName}:${branch.name} on ${target.url}.`,
                yes,
              )
              await showingProgress((shown) =>
                branch.applySchema(operations, {
                  ...(allowDataLoss && { allowDataLoss }),
                  ...shown,
                }),
              )
              notice(
                `Applied ${operations.length} ${operations.length === 1 ? 'operation' : 'operations'}.`,
              )
            }
            if (json) printJson({ operations })
            return 0
          }),
        ),
    )

async function planOf(target: Target, file: string) {
  const schema = await readSchema(file)
  const branch = await target.branch()
  return { branch, operations: await branch.compareSchema(schema) }
}

async function readSchema(file: string): Promise<SchemaDefinition> {
  const text = await readFile(file, 'utf8').catch((error: Error) => {
    throw new UsageError(
      `cannot read [${file}]: ${error.message}\n  Write it with: offshoot schema pull`,
    )
  })
  try {
    return JSON.parse(text) as SchemaDefinition
  } catch (error) {
    throw new UsageError(`[${file}] is not valid JSON: ${(error as Error).message}`)
  }
}

/** Ids belong to one database, and links from other tables are theirs. Everything else is what `apply` reads. */
function withoutIds({ tables }: SchemaDefinition): SchemaDefinition {
  return { tables: tables.map(({ id: _, revLinks: __, ...table }) => table) }
}

function show(operations: readonly SchemaOperation[]): void {
  for (const operation of operations) print(`${describeOperation(operation)}\n`)
  if (operations.length === 0) notice('The schema of the branch is that of the file.')
}
