import type { BranchRule } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { KeyScope } from '@offshoot/contract/users'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import type { DatabaseAccess } from '../access/resolve.js'
import { matchesPattern, requireWholeDatabase, scopeReachesBranch } from '../access/scope.js'

export async function readBranchRules(
  database: Database,
  access: DatabaseAccess,
): Promise<{ rules: BranchRule[] }> {
  const { scope } = access.principal
  const rules = await listBranchRules(database, access.databaseId)
  return { rules: rules.flatMap((rule) => showRule(scope, rule) ?? []) }
}

/** Of any name at all, so it names no branch. */
const ANY_NAME = '*'

/**
 * A rule as a key may see it. Patterns name branches: one that stands for a name which the key does not
 * reach is not shown, and neither is the source when it is such a branch.
 */
export function showRule(scope: KeyScope, rule: BranchRule): BranchRule | undefined {
  // A `*` of the rule can only be matched by a `*` of the scope. So if the text of the pattern is
  // reached, then so is every name that it stands for.
  if (rule.pattern !== ANY_NAME && !scopeReachesBranch(scope, rule.pattern)) return undefined
  const { from, ...rest } = rule
  return from === undefined || scopeReachesBranch(scope, from) ? rule : rest
}

/** Replaces all rules of a database; their order decides which one is used. */
export async function writeBranchRules(
  database: Database,
  access: DatabaseAccess,
  rules: readonly BranchRule[],
): Promise<{ rules: BranchRule[] }> {
  requireWholeDatabase(access.principal.scope)
  return runTransaction(
    database,
    async (transaction) => {
      await lockDatabase(transaction, access)
      await deleteBranchRules(transaction, access.databaseId)
      await insertBranchRules(transaction, access.databaseId, rules)
      return { rules: await listBranchRules(transaction, access.databaseId) }
    },
    // The lock orders this against others that do the same.
    { isolation: 'read committed' },
  )
}

/** The rule for a new branch. */
export async function findBranchRule(
  database: Queryable,
  branch: { databaseId: string; name: string },
): Promise<BranchRule | undefined> {
  const rules = await listBranchRules(database, branch.databaseId)
  return rules.find((rule) => matchesPattern(branch.name, rule.pattern))
}

async function listBranchRules(database: Queryable, databaseId: string): Promise<BranchRule[]> {
  const rows = await database.query<{ pattern: string; settings: Omit<BranchRule, 'pattern'> }>(sql`
    select pattern, settings
    from offshoot.branch_rules
    where database_id = ${databaseId}
    order by position`)
  return rows.map(({ pattern, settings }) => ({ pattern, ...settings }))
}

async function deleteBranchRules(database: Queryable, databaseId: string): Promise<void> {
  await database.query(sql`delete from offshoot.branch_rules where database_id = ${databaseId}`)
}

async function insertBranchRules(
  database: Queryable,
  databaseId: string,
  rules: readonly BranchRule[],
): Promise<void> {
  await database.query(sql`
    insert into offshoot.branch_rules (database_id, position, pattern, settings)
    select ${databaseId}, position, rule ->> 'pattern', rule - 'pattern'
    from jsonb_array_elements(${JSON.stringify(rules)}::jsonb)
      with ordinality as given (rule, position)`)
}

/** Makes concurrent changes of the rules wait until the transaction ends. Reads and forks go on. */
async function lockDatabase(
  transaction: Queryable,
  { databaseId, databaseName }: { databaseId: string; databaseName: string },
): Promise<void> {
  const rows = await transaction.query(sql`
    select id from offshoot.databases where id = ${databaseId} for no key update`)
  if (rows.length === 0) {
    throw new AppError('database_not_found', `database [${databaseName}] not found`)
  }
}
