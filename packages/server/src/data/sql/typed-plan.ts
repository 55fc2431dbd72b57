import { TEXT } from '../../dialect/declared-types.js'
import { Sql } from '../../postgres/sql.js'
import { Slot } from '../../postgres/statement.js'
import type { ParameterTypes } from './parameters.js'
import { mapMembers } from './plan-wire.js'
import type { StatementPlan } from './statement-plan.js'

/** Declares the types of parameters, by casts. Texts take the type of what is beside them. The names must be those of the server's own list. */
export function withTypes(plan: StatementPlan, types: ParameterTypes = []): StatementPlan {
  if (types.every((type) => type === undefined)) return plan
  return declare(plan, types) as StatementPlan
}

function declare(value: unknown, types: ParameterTypes): unknown {
  if (value instanceof Sql) return declareIn(value, types)
  return mapMembers(value, (member) => declare(member, types))
}

function declareIn({ strings, values }: Sql, types: ParameterTypes): Sql {
  const declared = [...strings]
  for (const [index, value] of values.entries()) {
    const type = value instanceof Slot ? types[value.position] : undefined
    if (type !== undefined && type !== TEXT)
      declared[index + 1] = `::pg_catalog.${type}${strings[index + 1] ?? ''}`
  }
  return new Sql(declared, [...values])
}
