import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import type { TestService } from './service.js'

/** Returns every row that PostgreSQL stores for the service, as text, by table. */
export async function everythingStored(service: TestService): Promise<Record<string, string[]>> {
  const tables = await service.database.query<{ schema: string; name: string }>(sql`
    select schemaname as schema, tablename as name
    from pg_tables
    where schemaname ~ '^offshoot(_db_[0-9]+)?$' and tablename not like 'gate_%'
    order by 1, 2`)
  const stored: Record<string, string[]> = {}
  for (const { schema, name } of tables) {
    const rows = await service.database.query<{ text: string }>(sql`
      select t::text as text from ${ident(schema)}.${ident(name)} t order by 1`)
    stored[`${schema}.${name}`] = rows.map((row) => row.text)
  }
  return stored
}
