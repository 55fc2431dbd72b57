import type pg from 'pg'
import { ident, join, literal, raw, type Sql, sql } from '../postgres/sql.js'

/*
 * Some relations and functions of PostgreSQL's catalogue tell about the whole server: its databases, roles, settings and
 * connections. A shape database has replacements for them in a schema of its own, which tell about the caller only. They
 * read what they need to know from a setting of the transaction.
 */

/** The setting with a JSON object: `user`, `database`, `version`, `processId`, `startedAt` and `settings`. */
export const SESSION_SETTING = 'offshoot.session'

/** Tools hide schemas whose names begin with `pg_`. Only superusers can create them. */
export const SHOWN_SCHEMAS = { hidden: 'pg_offshoot', visible: 'offshoot_catalogue' } as const

interface ShownRelation {
  /** Expressions for columns. `r` is a row of the source. Others have the value of the source, or null without one. */
  readonly columns?: Readonly<Record<string, string>>
  /** Columns that older versions of PostgreSQL have and this one may not have. Clients of that age ask for them. */
  readonly former?: Readonly<Record<string, string>>
  /** Whether clients read system columns of the relation, which views have none of. */
  readonly hasSystemColumns?: boolean
  /** Functions of PostgreSQL read it as the caller. It tells nothing about the server. */
  readonly staysReadable?: boolean
  /** Where rows come from. Without one, they come from the relation itself. */
  readonly source?: string
  readonly condition?: string
}

const EMPTY: ShownRelation = {
  source: '(select) r',
  condition: 'false',
  hasSystemColumns: true,
}

/** The system columns that clients read: dumps the one, tools that look for changes the other. */
const SYSTEM_COLUMNS: Readonly<Record<string, string>> = { tableoid: 'oid', xmin: 'xid' }

/** A relation without what belongs to the schema of the replacements. */
const withoutShown = (schema: string): ShownRelation => ({
  condition: `r.${schema} <> 'SHOWN'::pg_catalog.regnamespace`,
  hasSystemColumns: true,
  staysReadable: true,
})

/** What the replacements mention. Replaced by names of the shape database. */
const USER = 'SHOWN."current_user"()'
const DATABASE = 'SHOWN.current_database()'
const ROLE = 'ROLE'

/** The role `pg_database_owner` has the same oid on each server. */
const DATABASE_OWNER = '6171'
const ownerName = (oid: string): string =>
  `case ${oid} when ${ROLE} then ${USER} when ${DATABASE_OWNER} then 'pg_database_owner' else 'pg_system' end`

/** Privileges on the catalogue that differ from those of other servers are no concern of a dump: it would revoke them there. */
const PRESENT_PRIVILEGES = `(
  select p.oid as objoid, 'pg_catalog.pg_proc'::pg_catalog.regclass::oid as classoid, 0 as objsubid, p.proacl as acl
  from pg_catalog.pg_proc p
  where p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace and p.proacl is not null
  union all
  select c.oid, 'pg_catalog.pg_class'::pg_catalog.regclass::oid, 0, c.relacl
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname in ('pg_catalog', 'information_schema') and c.relacl is not null
  union all
  select i.objoid, i.classoid, i.objsubid, i.initprivs
  from pg_catalog.pg_init_privs i
  where i.classoid <> all (
    '{pg_catalog.pg_proc,pg_catalog.pg_class}'::pg_catalog.regclass[]::pg_catalog.oid[]
  )
) r`

/** The relations of `pg_catalog` that are replaced. */
export const SHOWN_RELATIONS: Readonly<Record<string, ShownRelation>> = {
  pg_database: {
    columns: { datname: DATABASE, datdba: ROLE, datacl: 'null' },
    former: { daticulocale: 'null::text' },
    hasSystemColumns: true,
    condition: 'r.datname = pg_catalog.current_database()',
  },
  pg_namespace: withoutShown('oid'),
  pg_class: withoutShown('relnamespace'),
  pg_proc: withoutShown('pronamespace'),
  pg_type: withoutShown('typnamespace'),
  pg_rewrite: {
    condition: `r.ev_class not in (
      select c.oid from pg_catalog.pg_class c where c.relnamespace = 'SHOWN'::pg_catalog.regnamespace
    )`,
    hasSystemColumns: true,
    staysReadable: true,
  },
  pg_roles: {
    columns: {
      rolname: ownerName('r.oid'),
      rolcanlogin: `r.oid = ${ROLE}`,
      rolconfig: 'null',
      rolvaliduntil: 'null',
    },
    condition: `r.oid = ${ROLE} or r.oid in (select n.nspowner from pg_catalog.pg_namespace n)`,
  },
  pg_user: {
    source: '(select) r',
    columns: {
      usename: USER,
      usesysid: ROLE,
      usecreatedb: 'false',
      usesuper: 'false',
      userepl: 'false',
      usebypassrls: 'false',
      passwd: `'********'`,
    },
  },
  pg_tablespace: {
    columns: { spcowner: ROLE, spcacl: 'null', spcoptions: 'null' },
    condition: `r.spcname in ('pg_default', 'pg_global')`,
  },
  pg_settings: {
    source: `jsonb_each_text(SHOWN.session_value('settings')::jsonb) r (name, value)`,
    columns: {
      name: 'r.name',
      setting: 'r.value',
      category: `'Offshoot'`,
      short_desc: `''`,
      context: `'user'`,
      vartype: `'string'`,
      source: `'session'`,
      boot_val: 'r.value',
      reset_val: 'r.value',
      pending_restart: 'false',
    },
  },
  pg_stat_activity: {
    source: '(select) r',
    columns: {
      datid: '(select d.oid from SHOWN.pg_database d)',
      datname: DATABASE,
      pid: 'SHOWN.pg_backend_pid()',
      usesysid: ROLE,
      usename: USER,
      application_name: `SHOWN.current_setting('application_name')`,
      state: `'active'`,
      backend_type: `'client backend'`,
    },
  },
  pg_init_privs: {
    source: PRESENT_PRIVILEGES,
    columns: {
      objoid: 'r.objoid',
      classoid: 'r.classoid',
      objsubid: 'r.objsubid',
      privtype: `'i'`,
      initprivs: 'r.acl',
    },
  },
  pg_tables: { columns: { tableowner: USER } },
  pg_views: {
    columns: { viewowner: USER },
    condition: `r.schemaname <> 'SHOWN'::pg_catalog.regnamespace::text`,
  },
  pg_matviews: { columns: { matviewowner: USER } },
  pg_sequences: {
    columns: {
      sequenceowner: USER,
      last_value: `SHOWN.pg_sequence_last_value(format('%I.%I', r.schemaname, r.sequencename)::regclass)`,
    },
  },
  ...Object.fromEntries(
    `pg_auth_members pg_available_extension_versions pg_available_extensions pg_cursors pg_db_role_setting pg_group
    pg_locks pg_parameter_acl pg_prepared_statements pg_prepared_xacts pg_replication_origin pg_replication_slots
    pg_shdepend pg_shdescription pg_shseclabel pg_stat_database pg_stat_gssapi pg_stat_replication pg_stat_ssl
    pg_subscription pg_subscription_rel pg_user_mappings`
      .split(/\s+/)
      .map((name) => [name, EMPTY]),
  ),
}

/** Functions of `pg_catalog` that are replaced. */
const FUNCTIONS: readonly (readonly [head: string, body: string])[] = [
  [`current_database() returns name`, `SHOWN.session_value('database')::name`],
  [`current_catalog() returns name`, `SHOWN.session_value('database')::name`],
  ...['current_user', 'session_user', 'current_role', 'user'].map(
    (name) => [`"${name}"() returns name`, `SHOWN.session_value('user')::name`] as const,
  ),
  [`version() returns text`, `SHOWN.session_value('version')`],
  [
    `pg_postmaster_start_time() returns timestamptz`,
    `SHOWN.session_value('startedAt')::timestamptz`,
  ],
  [`pg_conf_load_time() returns timestamptz`, `SHOWN.session_value('startedAt')::timestamptz`],
  // They are null for a connection by a Unix socket, too.
  ...['inet_client_addr', 'inet_server_addr'].map(
    (name) => [`${name}() returns inet`, 'null::inet'] as const,
  ),
  ...['inet_client_port', 'inet_server_port'].map(
    (name) => [`${name}() returns integer`, 'null::integer'] as const,
  ),
  [`pg_backend_pid() returns integer`, `SHOWN.session_value('processId')::integer`],
  [
    `current_setting(text) returns text`,
    `coalesce(SHOWN.session_value('settings')::jsonb ->> lower($1), SHOWN.unknown_setting($1))`,
  ],
  [
    `current_setting(text, boolean) returns text`,
    `case when $2 then SHOWN.session_value('settings')::jsonb ->> lower($1) else SHOWN.current_setting($1) end`,
  ],
  // Settings are changed by a statement that does nothing else.
  [`set_config(text, text, boolean) returns text`, `$2`],
  // Sequences of a shape have given no numbers: those of the database are values of the session.
  [
    `pg_sequence_last_value(regclass) returns bigint`,
    `(SHOWN.session_value('sequences')::jsonb ->> (select c.relname from pg_catalog.pg_class c where c.oid = $1))::bigint`,
  ],
  [
    `pg_get_sequence_data(regclass, out last_value bigint, out is_called boolean)`,
    `coalesce(SHOWN.pg_sequence_last_value($1), 1), SHOWN.pg_sequence_last_value($1) is not null`,
  ],
  // The name of the shape, for names that are looked up: `(quote_ident(table_catalog) || '.t')::regclass`.
  [`quote_catalog(text) returns text`, `pg_catalog.quote_ident(pg_catalog.current_database())`],
  [`pg_get_userbyid(oid) returns name`, `(${ownerName('$1')})::name`],
  [`shobj_description(oid, name) returns text`, `null::text`],
  [`pg_tablespace_location(oid) returns text`, `''::text`],
  ...['oid', 'name', 'text'].flatMap((type) => [
    [`pg_database_size(${type}) returns bigint`, `null::bigint`] as const,
    [`has_database_privilege(${type}, text) returns boolean`, `true`] as const,
  ]),
]

/** The names of replaced functions. */
export const SHOWN_FUNCTIONS: ReadonlySet<string> = new Set(
  FUNCTIONS.map(([head]) => head.slice(0, head.indexOf('(')).replaceAll('"', '')),
)

/** The columns of views of `information_schema` that tell about the server. */
const OF_DATABASE = /(?:^|_)catalog(?:_name)?$/
const OF_ROLE = /^(?:grantor|grantee|schema_owner|role_name|.*authorization_identifier)$/

/** Functions that read or change something outside of the tables, but cannot be missed. */
const KEPT_FUNCTIONS = `clock_timestamp gen_random_uuid pg_indexes_size pg_is_in_recovery
  pg_is_wal_replay_paused pg_partition_ancestors pg_relation_size pg_sequence_last_value pg_table_size pg_total_relation_size random timeofday`

/** Functions that a role needs no more than those that change something. */
const REVOKED_FUNCTIONS = `current_query cursor_to_xml database_to_xml inet_client_addr inet_client_port
  inet_server_addr inet_server_port pg_database_size pg_show_all_settings pg_stat_get_activity pg_stat_get_backend_activity
  pg_tablespace_location query_to_xml schema_to_xml table_to_xml`

interface Column {
  readonly schema: string
  readonly relation: string
  readonly name: string
  readonly type: string
}

interface ShownOptions {
  readonly schema: string
  /** The oid of the role that statements run as. */
  readonly roleId: number
  readonly isSuperuser: boolean
}

/** Changes with the definitions above, so that databases with older ones are not used. */
export const SHOWN_VERSION = JSON.stringify([
  5,
  SHOWN_RELATIONS,
  FUNCTIONS,
  KEPT_FUNCTIONS,
  REVOKED_FUNCTIONS,
])

/** Creates the replacements in the database of a connection. */
export async function createShown(client: pg.ClientBase, options: ShownOptions): Promise<void> {
  const { rows } = await client.query<Column>(
    `select n.nspname as schema, c.relname as relation, a.attname as name,
      pg_catalog.format_type(a.atttypid, a.atttypmod) as type
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    join pg_catalog.pg_attribute a on a.attrelid = c.oid
    where n.nspname in ('pg_catalog', 'information_schema') and c.relkind in ('r', 'v') and a.attnum > 0
      and c.relname not like '\\_%'
    order by c.relname, a.attnum`,
  )
  const statements = [...defineShown(rows, options), ...revokePrivileges(options)]
  await client.query(join(statements, ';\n').sql)
}

function defineShown(columns: readonly Column[], options: ShownOptions): Sql[] {
  const relations = new Map<string, Column[]>()
  for (const column of columns) {
    const name = `${column.schema}.${column.relation}`
    relations.set(name, [...(relations.get(name) ?? []), column])
  }
  const schema = ident(options.schema)
  const named = (text: string): Sql => raw(fillNames(text, options))
  const functions = [HELPERS, FUNCTIONS].flat().map(
    ([head, body]) => sql`create function ${schema}.${named(head)} language sql stable
      as ${literal(`select ${fillNames(body, options)}`)}`,
  )
  const views = [...relations.values()].flatMap((found) => {
    const [{ schema: from = '', relation = '' } = {}] = found
    if (from === 'information_schema') return [informationView(found, options)]
    const shown = SHOWN_RELATIONS[relation]
    return shown === undefined ? [] : [shownView(found, shown, options)]
  })
  const setUp = options.isSuperuser ? [sql`set allow_system_table_mods = on`] : []
  return [
    ...setUp,
    sql`create schema ${schema}`,
    sql`grant usage on schema ${schema} to public`,
    RAISE(schema),
    ...functions,
    // Those that others refer to come first.
    ...views.sort((left, right) => Number(isLater(left)) - Number(isLater(right))),
    sql`grant select on all tables in schema ${schema} to public`,
  ]
}

const isLater = (view: Sql): boolean => view.sql.includes('."pg_stat_activity"')

const HELPERS: readonly (readonly [string, string])[] = [
  [
    'session_value(text) returns text',
    `nullif(pg_catalog.current_setting('${SESSION_SETTING}', true), '')::jsonb ->> $1`,
  ],
]

/** Fails as PostgreSQL does. */
const RAISE = (schema: Sql): Sql => sql`
  create function ${schema}.unknown_setting(name text) returns text language plpgsql stable as $function$
  begin
    raise undefined_object using message = format('unrecognized configuration parameter "%s"', name);
  end $function$`

function fillNames(text: string, { schema, roleId }: ShownOptions): string {
  return text.replaceAll('SHOWN', ident(schema).sql).replaceAll(/\bROLE\b/g, `${roleId}::oid`)
}

function shownView(
  columns: readonly Column[],
  { columns: changed = {}, former = {}, hasSystemColumns, source, condition }: ShownRelation,
  options: ShownOptions,
): Sql {
  const relation = ident(columns[0]?.relation ?? '')
  const values = columns.map(({ name, type }) => {
    const own = source === undefined ? `r.${ident(name).sql}` : 'null'
    return sql`(${raw(fillNames(changed[name] ?? own, options))})::${raw(type)} as ${ident(name)}`
  })
  const names = new Set(columns.map(({ name }) => name))
  const missing = Object.entries(former).filter(([name]) => !names.has(name))
  for (const [name, value] of missing) values.push(sql`${raw(value)} as ${ident(name)}`)
  for (const [name, type] of hasSystemColumns ? Object.entries(SYSTEM_COLUMNS) : []) {
    // A slot of replication has an `xmin` of its own.
    if (names.has(name)) continue
    const value = source === undefined ? `r.${name}` : 'null'
    values.push(sql`(${raw(value)})::${raw(type)} as ${ident(name)}`)
  }
  const from =
    source === undefined ? sql`pg_catalog.${relation} r` : raw(fillNames(source, options))
  return sql`create view ${ident(options.schema)}.${relation} as
    select ${join(values, ', ')} from ${from}
    where ${condition === undefined ? sql`true` : raw(fillNames(condition, options))}`
}

/** PostgreSQL looks up the encoding in pg_database, which callers cannot read. It is UTF-8. */
const OCTET_LENGTH = sql`case
  when r.character_maximum_length is not null then 4 * r.character_maximum_length
  when r.data_type in ('text', 'character varying', 'character') then 1073741824
end`

/** The view of `information_schema` with the names that the caller knows. */
function informationView(columns: readonly Column[], options: ShownOptions): Sql {
  const relation = ident(columns[0]?.relation ?? '')
  const shown = ident(options.schema)
  const values = columns.map(({ name, type }) => {
    const own = sql`r.${ident(name)}`
    const changed = OF_DATABASE.test(name)
      ? sql`case when ${own} is not null then ${shown}.current_database() end`
      : name === 'character_octet_length'
        ? OCTET_LENGTH
        : OF_ROLE.test(name)
          ? sql`case when ${own} = 'PUBLIC' then 'PUBLIC' when ${own} is not null then ${shown}."current_user"() end`
          : own
    return sql`(${changed})::${raw(type)} as ${ident(name)}`
  })
  const schemas = columns.filter(({ name }) => /^(?:.*_schema|schema_name)$/.test(name))
  const conditions = schemas.map(
    ({ name }) => sql`r.${ident(name)} is distinct from ${literal(options.schema)}`,
  )
  return sql`create view ${shown}.${relation} as
    select ${join(values, ', ')} from information_schema.${relation} r
    where ${conditions.length === 0 ? sql`true` : join(conditions, ' and ')}`
}

/**
 * Revokes what only superusers can revoke: the relations that are replaced, and functions that wait, write, or read
 * something else than tables. Statements that use them are refused before; this is a second wall.
 */
function revokePrivileges({ isSuperuser }: ShownOptions): Sql[] {
  if (!isSuperuser) return []
  const array = (names: string) => literal(`{${names.trim().split(/\s+/).join(',')}}`)
  const replaced = Object.entries(SHOWN_RELATIONS).filter(([, { staysReadable }]) => !staysReadable)
  const names = replaced.map(([name]) => name)
  const relations = array([...names, 'pg_stats', 'pg_stats_ext'].join(' '))
  const body = sql`
    declare
      found text;
    begin
      for found in
        select format('revoke all on pg_catalog.%I from public', relname) from pg_catalog.pg_class
        where relnamespace = 'pg_catalog'::regnamespace and relname = any (${relations}::text[])
      loop
        execute found;
      end loop;
      for found in
        select format('revoke execute on routine %s from public', oid::regprocedure) from pg_catalog.pg_proc
        where pronamespace = 'pg_catalog'::regnamespace and prokind in ('f', 'p')
          and (provolatile = 'v' or proname = any (${array(REVOKED_FUNCTIONS)}::text[]))
          and proname <> all (${array(KEPT_FUNCTIONS)}::text[])
      loop
        execute found;
      end loop;
    end`
  return [sql`do ${literal(body.sql)}`]
}
