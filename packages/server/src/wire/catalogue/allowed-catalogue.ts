import { FUNCTIONS, SIZED_FUNCTIONS, TYPES } from '../../dialect/allowed.js'
import { SHOWN_FUNCTIONS, SHOWN_RELATIONS } from '../../shapes/shown-catalogue.js'

/*
 * What a statement on the catalogue may use, by name. Everything else is refused: a shape is a database of the server, and
 * what is not listed may tell about the server or change something.
 */

const words = (text: string): string[] => text.trim().split(/\s+/)

/** Relations of `pg_catalog` that tell about one database only, and hold no values of rows. */
const OWN_RELATIONS = words(`
  pg_aggregate pg_am pg_amop pg_amproc pg_attrdef pg_attribute pg_cast pg_class pg_collation pg_constraint pg_conversion
  pg_default_acl pg_depend pg_description pg_enum pg_event_trigger pg_extension pg_foreign_data_wrapper pg_foreign_server
  pg_foreign_table pg_index pg_indexes pg_inherits pg_init_privs pg_language pg_largeobject_metadata pg_namespace pg_opclass
  pg_operator pg_opfamily pg_partitioned_table pg_policies pg_policy pg_proc pg_publication pg_publication_namespace
  pg_publication_rel pg_publication_tables pg_range pg_rewrite pg_rules pg_seclabel pg_seclabels pg_sequence
  pg_stat_all_indexes pg_stat_all_tables pg_stat_user_indexes pg_stat_user_tables pg_statio_all_tables
  pg_statio_user_tables pg_statistic_ext pg_timezone_abbrevs pg_timezone_names pg_transform pg_trigger pg_ts_config
  pg_ts_config_map pg_ts_dict pg_ts_parser pg_ts_template pg_type`)

export const CATALOGUE_RELATIONS: ReadonlySet<string> = new Set([
  ...OWN_RELATIONS,
  ...Object.keys(SHOWN_RELATIONS),
])

/** Views of `information_schema` whose names begin so are internal. */
export const isInformationView = (name: string): boolean => /^[a-z]\w*$/.test(name)

/** Functions that only statements on the catalogue may call. They read no other tables, wait for nothing and write nothing. */
const CATALOGUE_FUNCTIONS: ReadonlySet<string> = new Set([
  ...words(`
    aclexplode acldefault array_in col_description current_schema current_schemas format_type getdatabaseencoding has_any_column_privilege
    has_column_privilege has_function_privilege has_language_privilege has_schema_privilege has_sequence_privilege
    has_table_privilege has_type_privilege obj_description pg_char_to_encoding pg_client_encoding pg_collation_for
    pg_collation_is_visible pg_column_is_updatable pg_conversion_is_visible pg_describe_object pg_encoding_max_length
    pg_encoding_to_char pg_function_is_visible pg_get_constraintdef pg_get_expr pg_get_function_arg_default
    pg_get_function_arguments pg_get_function_identity_arguments pg_get_function_result pg_get_function_sqlbody
    pg_get_functiondef pg_get_indexdef pg_get_keywords pg_get_partition_constraintdef pg_get_partkeydef
    pg_get_publication_tables pg_get_ruledef pg_get_sequence_data pg_get_serial_sequence pg_get_statisticsobjdef
    pg_get_statisticsobjdef_columns pg_get_statisticsobjdef_expressions pg_get_triggerdef pg_get_viewdef pg_identify_object
    pg_index_column_has_property pg_index_has_property pg_indexam_has_property pg_indexes_size pg_is_in_recovery
    pg_is_other_temp_schema pg_is_wal_replay_paused pg_my_temp_schema pg_opclass_is_visible pg_operator_is_visible pg_opfamily_is_visible
    pg_options_to_table pg_partition_ancestors pg_partition_root pg_relation_filenode pg_relation_is_publishable
    pg_relation_is_updatable pg_relation_size pg_sequence_last_value pg_sequence_parameters pg_size_pretty
    pg_stat_get_numscans pg_statistics_obj_is_visible pg_table_is_visible pg_table_size pg_total_relation_size
    pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible pg_type_is_visible
    quote_ident regexp_match to_regclass to_regcollation to_regnamespace to_regoper to_regoperator to_regproc
    to_regprocedure to_regtype`),
  ...SHOWN_FUNCTIONS,
])

/** Functions of `information_schema` that its views use, and some clients too. */
const isInformationFunction = (name: string): boolean => /^_pg_\w+$/.test(name)

/** Types that only statements on the catalogue may name. Without `regrole`, which knows the roles of the server. */
const CATALOGUE_TYPES: ReadonlySet<string> = new Set(
  words(`
    aclitem char cid int2vector name oid oidvector pg_lsn regclass regcollation regconfig regdictionary regnamespace
    regoper regoperator regproc regprocedure regtype tid xid anyarray`),
)

/** The types of the columns of `information_schema`. */
const INFORMATION_TYPES: ReadonlySet<string> = new Set(
  words('cardinal_number character_data sql_identifier time_stamp yes_or_no'),
)

const isCatalogueSchema = (schema: string | undefined): boolean =>
  schema === undefined || schema === 'pg_catalog'

type Names = readonly (string | undefined)[]

/** Splits a name with or without a schema. undefined: it has more parts. */
function splitName(names: Names): { schema: string | undefined; name: string } | undefined {
  if (names.length > 2) return undefined
  return { schema: names.length === 2 ? names[0] : undefined, name: names.at(-1) ?? '' }
}

/** Returns whether only a statement on the catalogue can mean this function. */
export function isCatalogueFunction(names: Names): boolean {
  const { schema, name } = splitName(names) ?? { name: '', schema: '' }
  if (schema === 'information_schema') return true
  return isCatalogueSchema(schema) && CATALOGUE_FUNCTIONS.has(name) && !FUNCTIONS.has(name)
}

export function isAllowedFunction(names: Names): boolean {
  const { schema, name } = splitName(names) ?? { name: '', schema: '' }
  if (schema === 'information_schema') return isInformationFunction(name)
  // Functions whose result can be of any size are left out: its size is not limited here.
  const isGeneral = FUNCTIONS.has(name) && !SIZED_FUNCTIONS.has(name)
  return isCatalogueSchema(schema) && (isGeneral || CATALOGUE_FUNCTIONS.has(name))
}

export function isCatalogueType(names: Names): boolean {
  const { schema, name } = splitName(names) ?? { name: '', schema: '' }
  if (schema === 'information_schema') return true
  return isCatalogueSchema(schema) && CATALOGUE_TYPES.has(name) && !TYPES.has(name)
}

export function isAllowedType(names: Names): boolean {
  const { schema, name } = splitName(names) ?? { name: '', schema: '' }
  if (schema === 'information_schema') return INFORMATION_TYPES.has(name)
  return isCatalogueSchema(schema) && (TYPES.has(name) || CATALOGUE_TYPES.has(name))
}

/** The kinds of nodes of a query that only reads. */
export const ALLOWED_KINDS: ReadonlySet<string> = new Set(
  words(`
    A_ArrayExpr A_Const A_Expr A_Indices A_Indirection A_Star Alias BitString BoolExpr Boolean BooleanTest CaseExpr CaseWhen
    CoalesceExpr CollateClause ColumnDef ColumnRef CommonTableExpr Float FuncCall GroupingFunc GroupingSet Integer JoinExpr
    List MinMaxExpr NamedArgExpr NullTest ParamRef RangeFunction RangeSubselect RangeVar ResTarget RowExpr SelectStmt SortBy
    SQLValueFunction String SubLink TypeCast TypeName WindowDef`),
)
