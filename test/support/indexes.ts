import { sql } from '../../packages/server/src/postgres/sql.js'
import type { TestBranches } from './branches.js'

/** Returns the columns with valid indexes on the own heaps and pasts of a branch. */
export async function listValidIndexes(
  { service, database }: TestBranches,
  { branch, kind }: { branch: string; kind: 'index' | 'search' },
): Promise<string[]> {
  const rows = await service.database.query<{ name: string }>(sql`
    select split_part(c.relname, '_', 1) || ' ' || (
        select col ->> 'name'
        from jsonb_path_query(s.document, '$.**.columns[*]') col
        where c.relname like '%\\_c' || (col ->> 'id') || '\\_' || ${kind}
        limit 1
      ) as name
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.databases d on d.id = b.database_id
    join offshoot.schemas s on s.id = b.schema_id
    join pg_class c on c.relname ~ ('^(heap|past)_' || h.id || '_c[0-9]+_' || ${kind} || '$')
    join pg_index i on i.indexrelid = c.oid
    where d.name = ${database} and b.name = ${branch} and i.indisvalid
    order by 1`)
  return rows.map(({ name }) => name)
}
