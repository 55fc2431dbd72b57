import type { Change, ColumnChanges, SchemaOperation } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { colorsFor, notice, oneLine, printJson, stdoutWriter } from '../shared/output.js'
import { withBranch } from '../shared/target.js'

/** The state of the other branch that a difference starts at. */
const MOMENTS = {
  fork: ' at the fork',
  base: ' when they were last merged',
  now: '',
  checkpoint: ' at a checkpoint',
} as const

/** `offshoot diff`: shows the changes of a branch in schema and rows. */
export const diffCommand = () =>
  withBranch(
    createCommand('diff', 'show what a branch has changed', [
      'offshoot diff',
      'offshoot diff feat-login --against staging',
      'offshoot diff feat-login --json',
      'offshoot diff main --against-at before-import',
    ]),
  )
    .argument('[branch]', 'branch to show; default: the current one')
    .option('--against <branch>', 'base (the default), fork, source, or the name of a branch')
    .option('--at <checkpoint>', 'show the branch as it was: id or name of a checkpoint, or a time')
    .option(
      '--against-at <checkpoint>',
      'compare with a checkpoint, by default of the branch itself',
    )
    .option('--schema', 'show the schema only')
    .option('--rows', 'show the rows only')
    .option('--table <name>', 'show this table only')
    .action(
      action<
        {
          json?: boolean
          against?: string
          at?: string
          againstAt?: string
          schema?: boolean
          rows?: boolean
          table?: string
        },
        [string?]
      >(async (target, flags, name) => {
        const { json, against, table, againstAt } = flags
        const present = name === undefined ? await target.branch() : target.branchNamed(name)
        const branch = flags.at === undefined ? present : present.at(flags.at)
        const question = {
          ...(against === undefined ? {} : { against }),
          ...(againstAt === undefined ? {} : { againstAt }),
          ...(table === undefined ? {} : { table }),
        }
        const overview = await branch.diff({ ...question, size: 0 })
        const showsSchema = !flags.rows
        const showsRows = !flags.schema
        if (json) {
          const changes: Change[] = []
          if (showsRows) for await (const change of branch.changes(question)) changes.push(change)
          printJson({
            branch: overview.branch,
            against: overview.against,
            ...(showsSchema ? { schema: overview.schema } : {}),
            ...(showsRows ? { tables: overview.tables.map(countsOf), changes } : {}),
          })
          return 0
        }
        // A table whose rows differed and are equal again is listed without changes.
        const changed = overview.tables.filter(
          ({ inserted, updated, deleted }) => inserted + updated + deleted > 0,
        )
        const { branch: other, at } = overview.against
        const moment = againstAt === undefined ? MOMENTS[at] : ` at ${againstAt}`
        const state = flags.at === undefined ? '' : ` at ${flags.at}`
        notice(`${overview.branch}${state} against ${other ?? 'its source'}${moment}`)
        const out = stdoutWriter('text')
        const write = (text: string) =>
          new Promise<void>((resolve) => out.write(text, () => resolve()))
        const colors = colorsFor(process.stdout)
        if (showsSchema) {
          for (const operation of overview.schema.operations) {
            await write(`${colors.cyan(describeOperation(operation))}\n`)
          }
        }
        if (showsRows) {
          for (const one of changed) {
            await write(
              `${colors.bold(one.name)}  +${one.inserted} ~${one.updated} -${one.deleted}\n`,
            )
          }
          for await (const change of branch.changes(question)) {
            await write(describeChange(change, colors))
          }
        }
        if (overview.schema.operations.length === 0 && changed.length === 0) {
          notice('No differences.')
        }
        return 0
      }),
    )

function countsOf(table: { name: string; inserted: number; updated: number; deleted: number }) {
  const { name, inserted, updated, deleted } = table
  return { name, inserted, updated, deleted }
}

/** Shows a changed record, as `git diff` does for lines. */
export function describeChange(
  change: Change,
  colors: ReturnType<typeof colorsFor> = colorsFor({}),
): string {
  const { table, id, record = {}, columns = {} } = change
  const where = `${table}/${oneLine(id)}`
  const fields = (sign: string) =>
    Object.entries(record)
      .filter(([name]) => name !== 'id')
      .map(([name, value]) => `    ${sign} ${name}: ${oneLine(value)}\n`)
      .join('')
  switch (change.change) {
    case 'inserted':
      return colors.green(`+ ${where}\n${fields('+')}`)
    case 'deleted':
      return colors.red(`- ${where}\n${fields('-')}`)
    case 'updated':
      return `${colors.yellow(`~ ${where}`)}\n${Object.entries(columns)
        .map(
          ([name, { from, to }]) =>
            `    ${name}: ${colors.red(oneLine(from ?? null))} → ${colors.green(oneLine(to ?? null))}\n`,
        )
        .join('')}`
  }
}

/** Says in words what a schema operation does. */
export function describeOperation(operation: SchemaOperation): string {
  if ('addTable' in operation) return `+ table ${operation.addTable.table}`
  if ('removeTable' in operation) return `- table ${operation.removeTable.table}`
  if ('renameTable' in operation) {
    return `~ table ${operation.renameTable.oldName} → ${operation.renameTable.newName}`
  }
  if ('addColumn' in operation) {
    const { table, column } = operation.addColumn
    const details = [
      column.type === 'link'
        ? `link to ${column.link?.table}`
        : `${column.type}${column.maxLength === undefined ? '' : `(${column.maxLength})`}`,
      ...(column.bits === undefined ? [] : [`${column.bits} bits`]),
      ...(column.withoutZone ? ['without zone'] : []),
      ...(column.link?.onDelete === undefined ? [] : [`on delete ${column.link.onDelete}`]),
      ...(column.unique ? ['unique'] : []),
      ...(column.notNull ? ['not null'] : []),
      ...(column.generate === undefined ? [] : [`generate ${column.generate}`]),
      ...(column.computed === undefined ? [] : [`computed ${oneLine(column.computed, 40)}`]),
      ...(column.defaultValue === undefined ? [] : [`default ${oneLine(column.defaultValue, 40)}`]),
    ]
    return `+ column ${table}.${column.name} (${details.join(', ')})`
  }
  if ('removeColumn' in operation) {
    return `- column ${operation.removeColumn.table}.${operation.removeColumn.column}`
  }
  if ('addConstraint' in operation) {
    const { table, constraint } = operation.addConstraint
    const rule =
      'unique' in constraint
        ? `unique ${constraint.unique.join(', ')}`
        : `check ${constraint.check}`
    return `+ constraint ${table}.${constraint.name} (${oneLine(rule, 80)})`
  }
  if ('removeConstraint' in operation) {
    return `- constraint ${operation.removeConstraint.table}.${operation.removeConstraint.constraint}`
  }
  if ('alterColumn' in operation) {
    const { table, column, ...changes } = operation.alterColumn
    return `~ column ${table}.${column} (${describeChanges(changes)})`
  }
  if ('alterTable' in operation) {
    const { table, history, idBits } = operation.alterTable
    const changes = [
      ...(history === undefined ? [] : [`history: ${history?.keep ?? 'none'}`]),
      ...(idBits === undefined ? [] : [`ids of ${idBits ?? 64} bits`]),
    ]
    return `~ table ${table} (${changes.join(', ')})`
  }
  const { table, oldName, newName } = operation.renameColumn
  return `~ column ${table}.${oldName} → ${table}.${newName}`
}

function describeChanges(changes: ColumnChanges): string {
  return Object.entries(changes)
    .map(([field, value]) => {
      if (field === 'type' || field === 'name') return `${field} ${value}`
      if (field === 'decimal') return `of ${value.precision} digits, ${value.scale} decimals`
      if (field === 'bits') return `${value ?? 64} bits`
      if (field === 'maxLength') return `maxLength: ${value ?? 'none'}`
      const shown = typeof value === 'string' ? value : JSON.stringify(value)
      return `${field}: ${oneLine(shown, 40)}`
    })
    .join(', ')
}
