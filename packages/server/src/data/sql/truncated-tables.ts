import { invalidSql } from '../../dialect/invalid-sql.js'
import type { CompiledSchema } from '../session/compiled-schema.js'
import type { StatementPlan } from './statement-plan.js'

/**
 * Completes the plan of a TRUNCATE by what refers to its tables. As in PostgreSQL, CASCADE empties tables whose links require
 * that linked records exist, and the statement is refused without it, whatever these links do when a record is deleted.
 */
export function withReferrers(plan: StatementPlan, schema: CompiledSchema): StatementPlan {
  if (plan.kind !== 'truncate') return plan
  const tables = new Set(plan.tables)
  const notices = [...plan.notices]
  for (const name of tables) {
    const id = schema.tableByName(name)?.table.id
    for (const { table } of id === undefined ? [] : schema.referrersOf(id)) {
      if (tables.has(table.name)) continue
      if (!plan.cascades) throw cannotTruncate(name, table.name)
      tables.add(table.name)
      notices.push(`TRUNCATE ... CASCADE empties table [${table.name}], too`)
    }
  }
  return { ...plan, tables: [...tables], notices }
}

function cannotTruncate(name: string, referrer: string) {
  return invalidSql(
    `table [${name}] cannot be truncated: table [${referrer}] links to it; truncate both in one statement, or use TRUNCATE ... CASCADE`,
  )
}
