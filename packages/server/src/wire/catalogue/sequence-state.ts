import type { Node } from 'libpg-query'
import { contentOf, namesOf } from '../../dialect/nodes.js'
import { ident, join, literal, sql } from '../../postgres/sql.js'
import { compileStatement } from '../../postgres/statement.js'

const COLUMNS = ['last_value', 'log_cnt', 'is_called']

/**
 * Returns the statement on the catalogue that a query on a sequence stands for: `select last_value from t_id_seq`. Dumps read the
 * state of sequences in this way.
 */
export function readSequenceState(node: Node): string | undefined {
  const {
    targetList = [],
    fromClause = [],
    limitOption: _,
    op: __,
    ...rest
  } = contentOf(node, 'SelectStmt') ?? {}
  const [relation, ...others] = fromClause
  const { schemaname = 'public', relname = '', alias } = contentOf(relation, 'RangeVar') ?? {}
  const isPlain = others.length === 0 && Object.values(rest).every((each) => each === undefined)
  const isSequence = relname.endsWith('_seq') && schemaname === 'public' && alias === undefined
  if (!isPlain || !isSequence) return undefined
  const columns = targetList.flatMap((each) => {
    const { fields = [] } = contentOf(contentOf(each, 'ResTarget')?.val, 'ColumnRef') ?? {}
    if (contentOf(fields.at(-1), 'A_Star') !== undefined) return COLUMNS
    return [namesOf(fields).at(-1) ?? '']
  })
  if (columns.length === 0 || !columns.every((each) => COLUMNS.includes(each))) return undefined
  const name = compileStatement(sql`public.${ident(relname)}`).text
  return compileStatement(sql`
    select ${join(columns.map(ident), ', ')}
    from (select d.last_value, 0::bigint as log_cnt, d.is_called
      from pg_catalog.pg_get_sequence_data(${literal(name)}::pg_catalog.regclass) d) s`).text
}
