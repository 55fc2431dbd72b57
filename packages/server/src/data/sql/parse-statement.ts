import type { Node } from 'libpg-query'
import { invalidSql, unusedParameters } from '../../dialect/invalid-sql.js'
import { contentOf, kindOf, type NodeKind, type NodeOf } from '../../dialect/nodes.js'
import { parseSql, SqlSyntaxError } from '../../dialect/parser.js'

/** A syntactically valid statement of a supported kind. */
export interface ParsedStatement {
  readonly text: string
  readonly node: Node
  readonly nodeCount: number
  readonly callCount: number
  readonly relationNames: ReadonlySet<string>
  readonly typeNames: ReadonlySet<string>
}

const WRITING_KINDS = ['InsertStmt', 'UpdateStmt', 'DeleteStmt'] as const
const KINDS: ReadonlySet<NodeKind> = new Set(['SelectStmt', ...WRITING_KINDS, 'TruncateStmt'])

/** Returns the WITH clause of a statement if one of its queries writes. */
export function writingWith(node: Node): NodeOf<'WithClause'> | undefined {
  const { withClause } =
    contentOf(node, 'SelectStmt') ??
    contentOf(node, 'InsertStmt') ??
    contentOf(node, 'UpdateStmt') ??
    contentOf(node, 'DeleteStmt') ??
    {}
  const writes = (withClause?.ctes ?? []).some((each) => {
    const query = contentOf(each, 'CommonTableExpr')?.ctequery
    return query !== undefined && kindOf(query) !== 'SelectStmt'
  })
  return writes ? withClause : undefined
}

export async function parseStatement(
  text: string,
  parameterCount: number,
): Promise<ParsedStatement> {
  const {
    nodes,
    texts: _texts,
    ...counted
  } = await parseSql(text).catch((error: unknown) => {
    throw error instanceof SqlSyntaxError ? describeSyntax(error, text, parameterCount) : error
  })
  const [node, ...others] = nodes
  if (node === undefined) throw invalidSql('the statement is empty')
  if (others.length > 0) throw invalidSql('only one statement can be run at a time')
  if (!KINDS.has(kindOf(node))) {
    throw invalidSql(
      `${wordsOf(node)} is not supported: only SELECT, INSERT, UPDATE, DELETE, TRUNCATE and statements that change the schema are`,
    )
  }
  return { text, node, ...counted }
}

/** Returns what a statement begins with. */
export function wordsOf(node: Node): string {
  const kind = kindOf(node)
  if (contentOf(node, 'CreateTableAsStmt')?.objtype === 'OBJECT_MATVIEW') {
    return 'CREATE MATERIALIZED VIEW'
  }
  if (contentOf(node, 'GrantStmt')?.is_grant === undefined && kind === 'GrantStmt') return 'REVOKE'
  const defined = contentOf(node, 'DefineStmt')?.kind?.replace('OBJECT_', '')
  if (defined !== undefined) return `CREATE ${defined}`
  const words = kind.replace(/Stmt$/, '').replace(/([a-z])([A-Z])/g, '$1 $2')
  return WORDS[kind] ?? words.toUpperCase()
}

/** The words of statements whose nodes have other names. */
const WORDS: Readonly<Partial<Record<NodeKind, string>>> = {
  ViewStmt: 'CREATE VIEW',
  RuleStmt: 'CREATE RULE',
  CreateTrigStmt: 'CREATE TRIGGER',
  CreatePLangStmt: 'CREATE LANGUAGE',
  CreatePolicyStmt: 'CREATE POLICY',
  CompositeTypeStmt: 'CREATE TYPE of columns',
  CreateRangeStmt: 'CREATE TYPE of a range',
  CreatedbStmt: 'CREATE DATABASE',
  DropdbStmt: 'DROP DATABASE',
  CreateTableSpaceStmt: 'CREATE TABLESPACE',
  CreateStatsStmt: 'CREATE STATISTICS',
  CreateForeignServerStmt: 'CREATE SERVER',
  AlterObjectSchemaStmt: 'ALTER with SET SCHEMA',
  SecLabelStmt: 'SECURITY LABEL',
  CheckPointStmt: 'CHECKPOINT',
  RefreshMatViewStmt: 'REFRESH MATERIALIZED VIEW',
}

/** Reports a parameter at an invalid place as unused, as clients expect. */
function describeSyntax({ message, position }: SqlSyntaxError, text: string, count: number) {
  if (count === 0 || !/ at or near "\$\d+"$/.test(message)) return invalidSql(message, position)
  const before = new Set(text.slice(0, position - 1).match(/\$\d+/g))
  return unusedParameters(Math.min(before.size, count - 1), count)
}
