/*
 * What a statement may use of PostgreSQL, by name. All of it calculates from its arguments, or from
 * the time: nothing here reads a table, a file or a setting, waits, locks or leaves a trace. Whatever
 * is not here is refused.
 */

function words(text: string): string[] {
  return text.trim().split(/\s+/)
}

const TEXT = words(`
  ascii bit_length btrim char_length character_length chr concat concat_ws convert_from convert_to
  decode encode initcap is_normalized left length like_escape lower lpad ltrim md5 normalize
  octet_length overlay position quote_literal quote_nullable regexp_count regexp_instr regexp_like
  regexp_match regexp_replace regexp_split_to_array regexp_substr repeat replace reverse right rpad
  rtrim sha224 sha256 sha384 sha512 similar_to_escape split_part starts_with string_to_array strpos
  substr substring to_hex translate trim_array unistr upper`)

const NUMBERS = words(`
  abs acos acosd asin asind atan atan2 atan2d atand cbrt ceil ceiling cos cosd cosh cot cotd degrees
  div erf erfc exp floor gcd lcm ln log log10 min_scale mod pi power radians
  random round scale sign sin sind sinh sqrt tan tand tanh to_char to_number trim_scale trunc
  width_bucket`)

const TIMES = words(`
  age clock_timestamp date_add date_bin date_part date_subtract date_trunc extract isfinite
  justify_days justify_hours justify_interval make_date make_interval make_time make_timestamp
  make_timestamptz now statement_timestamp timeofday timezone to_date to_timestamp
  transaction_timestamp`)

const JSON_VALUES = words(`
  array_to_json json_array_length json_build_array json_build_object json_extract_path
  json_extract_path_text json_object json_strip_nulls json_typeof jsonb_array_length
  jsonb_build_array jsonb_build_object jsonb_extract_path
  jsonb_extract_path_text jsonb_insert jsonb_object jsonb_path_exists jsonb_path_match
  jsonb_path_query_array jsonb_path_query_first jsonb_pretty jsonb_set jsonb_set_lax
  jsonb_strip_nulls jsonb_typeof row_to_json to_json to_jsonb`)

const ARRAYS_AND_RANGES = words(`
  array_append array_cat array_dims array_length array_lower array_ndims array_position
  array_positions array_prepend array_remove array_replace array_to_string array_upper cardinality
  int4range int8range isempty lower_inc lower_inf multirange numrange range_merge tsrange tstzrange
  daterange upper_inc upper_inf`)

const OTHERS = words(`
  gen_random_uuid num_nonnulls num_nulls pg_typeof to_tsvector to_tsquery plainto_tsquery
  phraseto_tsquery websearch_to_tsquery ts_rank ts_rank_cd ts_headline setweight numnode querytree
  strip tsvector_to_array`)

const AGGREGATES = words(`
  any_value array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp
  cume_dist dense_rank every json_agg json_object_agg jsonb_agg jsonb_object_agg max min mode
  percent_rank percentile_cont percentile_disc range_agg range_intersect_agg rank regr_avgx
  regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy stddev
  stddev_pop stddev_samp string_agg sum var_pop var_samp variance`)

const WINDOW_FUNCTIONS = words(`first_value lag last_value lead nth_value ntile row_number`)

/** Functions that give rows, with the names of their columns; none means the name of the function. */
export const ROW_FUNCTIONS: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries({
    generate_series: [],
    generate_subscripts: [],
    regexp_matches: [],
    regexp_split_to_table: [],
    string_to_table: [],
    unnest: [],
    json_array_elements: ['value'],
    json_array_elements_text: ['value'],
    json_each: ['key', 'value'],
    json_each_text: ['key', 'value'],
    json_object_keys: [],
    jsonb_array_elements: ['value'],
    jsonb_array_elements_text: ['value'],
    jsonb_each: ['key', 'value'],
    jsonb_each_text: ['key', 'value'],
    jsonb_object_keys: [],
    jsonb_path_query: [],
  }),
)

/** Functions that give rows of columns which the statement defines. */
export const DEFINED_ROW_FUNCTIONS: ReadonlySet<string> = new Set(
  words('json_to_record json_to_recordset jsonb_to_record jsonb_to_recordset'),
)

export const FUNCTIONS: ReadonlySet<string> = new Set([
  ...TEXT,
  ...NUMBERS,
  ...TIMES,
  ...JSON_VALUES,
  ...ARRAYS_AND_RANGES,
  ...OTHERS,
  ...AGGREGATES,
  ...WINDOW_FUNCTIONS,
  ...ROW_FUNCTIONS.keys(),
])

/** Functions whose result is as large as a number says: it must be written, and not be larger. */
export const SIZED_FUNCTIONS: ReadonlyMap<string, { argument: number; max: number }> = new Map([
  ['repeat', { argument: 1, max: 1000 }],
  ['lpad', { argument: 1, max: 10_000 }],
  ['rpad', { argument: 1, max: 10_000 }],
])

/** Those with `reg` in front are missing: their values are looked up in the catalogue. */
export const TYPES: ReadonlySet<string> = new Set(
  words(`
    bool bpchar bytea char cidr date daterange float4 float8 inet int2 int4 int4range int8 int8range
    interval json jsonb jsonpath macaddr money numeric numrange text time timestamp timestamptz timetz
    tsquery tsrange tstzrange tsvector uuid varchar`),
)

export const OPERATORS: ReadonlySet<string> = new Set(
  words(`
    = <> != < > <= >= + - * / % ^ |/ ||/ @ & | # ~ << >> || ~~ !~~ ~~* !~~* ~* !~ !~* ^@
    -> ->> #> #>> @> <@ ? ?| ?& #- @? @@ && -|- &< &>`),
)

export const COLLATIONS: ReadonlySet<string> = new Set(['C', 'POSIX', 'default', 'ucs_basic'])
