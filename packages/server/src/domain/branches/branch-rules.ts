import type { BranchRule } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { KeyScope } from '@offshoot/contract/users'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { type LiveBranch, liveBranchSql } from '../access/find-live-branch.js'
import type { DatabaseAccess } from '../access/resolve.js'
import { matchesPattern, requireWholeDatabase, scopeReachesBranch } from '../access/scope.js'
import { logAccess } from '../log/entries.js'

export async function readBranchRules(
  database: Database,
  access: DatabaseAccess,
): Promise<{ rules: BranchRule[] }> {
  const { scope } = access.principal
  const rules = await listBranchRules(database, access.databaseId)
  return { rules: rules.flatMap((rule) => showRule(scope, rule) ?? []) }
}

/** Pattern that matches every name. It reveals no branch name, so every key may see it. */
const ANY_NAME = '*'

/**
 * Returns the rule as a key may see it. Patterns and sources reveal branch names. A rule is hidden if
 * its pattern matches a name outside the scope of the key, and its source is omitted if it is one.
 */
export function showRule(scope: KeyScope, rule: BranchRule): BranchRule | undefined {
  // The scope is matched against the pattern as text. A `*` in that text can only be matched by a `*`
  // of the scope. So if the text matches, every name that the pattern stands for matches too.
  if (rule.pattern !== ANY_NAME && !scopeReachesBranch(scope, rule.pattern)) return undefined
  const { from, ...rest } = rule
  return from === undefined || scopeReachesBranch(scope, from) ? rule : rest
}

/** Replaces all rules of a database. The first rule that matches a name is used. */
export async function writeBranchRules(
  database: Database,
  access: DatabaseAccess,
  rules: readonly BranchRule[],
): Promise<{ rules: BranchRule[] }> {
  requireWholeDatabase(access.principal.scope)
  requireProtectedApprovals(rules)
  return runTransaction(
    database,
    async (transaction) => {
      await lockDatabase(transaction, access)
      await deleteBranchRules(transaction, access.databaseId)
      await insertBranchRules(transaction, access.databaseId, rules)
      await logAccess(transaction, access, { kind: 'rulesChanged', details: { rules } })
      return { rules: await listBranchRules(transaction, access.databaseId) }
    },
    // The lock serializes concurrent replacements.
    { isolation: 'read committed' },
  )
}

function requireProtectedApprovals(rules: readonly BranchRule[]): void {
  const index = rules.findIndex((rule) => (rule.requiredApprovals ?? 0) > 0 && !rule.protected)
  if (index < 0) return
  throw new AppError(
    'invalid_request',
    `body: field [rules.${index}.requiredApprovals]: only a protected branch can require approvals; set [protected] too`,
  )
}

/** Finds the rule for a new branch, and the branch that it may be forked from: `from`, or the default branch. */
export async function findRuleAndSource(
  database: Queryable,
  { databaseId, defaultBranchId }: DatabaseAccess,
  { name, from }: { name: string; from: string | undefined },
): Promise<{ rule: BranchRule | undefined; source: LiveBranch | undefined }> {
  const meant = from === undefined ? { id: defaultBranchId } : { name: from }
  const [row] = await database.query<{ rules: RuleRow[] | null; source: LiveBranch | null }>(
    prepared(sql`
    select
      (select json_agg(rules) from (${rulesSql(databaseId)}) rules) as rules,
      (select to_json(source) from (${liveBranchSql({ databaseId, ...meant })}) source) as source`),
  )
  return {
    rule: (row?.rules ?? []).map(toRule).find(({ pattern }) => matchesPattern(name, pattern)),
    source: row?.source ?? undefined,
  }
}

interface RuleRow {
  readonly pattern: string
  readonly settings: Omit<BranchRule, 'pattern'>
}

const toRule = ({ pattern, settings }: RuleRow): BranchRule => ({ pattern, ...settings })

/** The rules of a database. The first one whose pattern matches the name of a new branch is used. */
const rulesSql = (databaseId: string | Sql): Sql => sql`
    select pattern, settings
    from offshoot.branch_rules
    where database_id = ${databaseId}
    order by position`

async function listBranchRules(database: Queryable, databaseId: string): Promise<BranchRule[]> {
  const rows = await database.query<RuleRow>(prepared(rulesSql(databaseId)))
  return rows.map(toRule)
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
