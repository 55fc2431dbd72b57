import { createInterface } from 'node:readline/promises'
import { type AnySchema, type Branch, OffshootError, type SqlArrays } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { UsageError } from '../shared/failure.js'
import { inLine, notice, oneLine, printJson, printTable } from '../shared/output.js'
import { readInput } from '../shared/read-input.js'
import { withBranch } from '../shared/target.js'

/** `offshoot sql`: runs SQL from the command line, a file or a prompt. */
export const sqlCommand = () =>
  withBranch(
    createCommand('sql', 'run SQL: one statement, a file, or a prompt', [
      "offshoot sql -c 'select count(*) from users'",
      'offshoot sql report.sql --json',
      'offshoot sql',
    ]),
  )
    .argument('[file]', 'file with one statement; - is standard input')
    .option('-c, --command <statement>', 'the statement')
    .option('--at <checkpoint>', 'read the branch as it was: id or name of a checkpoint, or a time')
    .action(
      action<{ json?: boolean; command?: string; at?: string }, [string?]>(
        async (target, { json, command, at }, file) => {
          const present = await target.branch()
          const branch = at === undefined ? present : present.at(at)
          const statement = command ?? (file === undefined ? undefined : await readInput(file))
          if (statement !== undefined) {
            await run(branch, statement, json)
            return 0
          }
          if (!process.stdin.isTTY) {
            await run(branch, await readInput('-'), json)
            return 0
          }
          return prompt(branch, inLine(`${target.databaseName}:${branch.name}`))
        },
      ),
    )

type AnyBranch = Branch<AnySchema>

const CELL_LENGTH_MAX = 80

async function run(branch: AnyBranch, statement: string, json?: boolean): Promise<void> {
  if (statement.trim() === '') throw new UsageError('there is no statement')
  const [result] = await branch.sql.arrays([{ statement }])
  const { rows = [], columns = [], total = 0 } = result ?? {}
  if (json) {
    printJson(toRecords(columns, rows))
    return
  }
  if (columns.length > 0) {
    // A script gets whole values, and a terminal gets what fits.
    const lengthMax = process.stdout.isTTY ? CELL_LENGTH_MAX : Number.POSITIVE_INFINITY
    printTable(
      columns.map(({ name }) => name),
      rows.map((row) => row.map((value) => oneLine(value ?? null, lengthMax))),
    )
  }
  notice(`${total} ${total === 1 ? 'row' : 'rows'}`)
}

/** An object has one value of each name, so columns with the same name would be lost. */
function toRecords(columns: SqlArrays['columns'], rows: SqlArrays['rows']): object[] {
  const names = columns.map(({ name }) => name)
  const twice = names.find((name, index) => names.indexOf(name) < index)
  if (twice !== undefined) {
    throw new UsageError(
      `--json: the result has two columns [${twice}]; give one of them another name, with AS`,
    )
  }
  return rows.map((row) => Object.fromEntries(names.map((name, index) => [name, row[index]])))
}

/** Reads statements until the end of the input. A statement ends with a semicolon. */
async function prompt(branch: AnyBranch, name: string): Promise<number> {
  notice('A statement ends with ; and \\d lists the tables. Ctrl-D ends the session.')
  const lines = createInterface({ input: process.stdin, output: process.stderr, historySize: 1000 })
  let statement = ''
  lines.setPrompt(`${name}> `)
  lines.prompt()
  for await (const line of lines) {
    if (statement === '' && line.trim() === '\\d') await listTables(branch)
    else {
      statement += `${line}\n`
      if (!line.trimEnd().endsWith(';')) {
        lines.setPrompt(`${' '.repeat(name.length)}> `)
        lines.prompt()
        continue
      }
      await run(branch, statement.trim().replace(/;$/, '')).catch((error: unknown) => {
        if (!(error instanceof OffshootError)) throw error
        notice(error.message)
      })
      statement = ''
    }
    lines.setPrompt(`${name}> `)
    lines.prompt()
  }
  notice('')
  return 0
}

async function listTables(branch: AnyBranch): Promise<void> {
  const { tables } = await branch.schema()
  printTable(
    ['table', 'columns'],
    tables.map(({ name, columns }) => [name, columns.map((column) => column.name).join(', ')]),
  )
}
