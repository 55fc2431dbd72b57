/*
 * The functions, operators and types that a statement may use, by name. All of them depend on their arguments
 * or the time only: none reads a table, a file or a setting, waits, locks or has side effects. Everything else
 * is rejected.
 *
 * Each function and operator has a cost. PostgreSQL checks for cancellation between rows and inside few
 * functions; all others run to their end. So functions that take more than linear time are limited to small
 * arguments, and functions that create large values from small ones have limited results.
 */

import { isBoundedPath } from './json-path.js'

function words(text: string): string[] {
  return text.trim().split(/\s+/)
}

/** Maximum size of one value that a statement creates. */
export const VALUE_BYTES_MAX = 16 * 1024 * 1024
/**
 * Maximum size of the values that all calls of a statement create together. They are kept in memory for a
 * row.
 */
export const MADE_BYTES_MAX = 64 * 1024 * 1024
/** Size of one value that even a statement with very many such calls can create. */
export const VALUE_BYTES_MIN = 64 * 1024
/** Maximum size of all values that a statement collects in memory for arrays, texts and documents. */
export const COLLECTED_BYTES_MAX = 64 * 1024 * 1024
/**
 * The limit for aggregates that keep many times the size of their values: about 1 KB for each number of a
 * `jsonb` document, and more for each range when a multirange is written as text.
 */
const COLLECTED_DOCUMENT_BYTES_MAX = 8 * 1024 * 1024
const COLLECTED_RANGES_BYTES_MAX = 2 * 1024 * 1024
/** Maximum size of a searched text: as large as a record. */
export const SEARCHED_BYTES_MAX = 1024 * 1024
/** Maximum size of a pattern, a separator or a set of characters. */
export const PATTERN_BYTES_MAX = 1_000
/** Maximum size of arrays and documents that are compared element by element. */
export const COMPARED_BYTES_MAX = 64 * 1024

/** Maximum size of a part that a document is built from. */
const DOCUMENT_BYTES_MAX = 256 * 1024

export type Cost =
  /** Linear time, and a result no larger than the arguments. */
  | { readonly kind: 'linear' }
  /** Linear time, and a result as large as all arguments together. */
  | { readonly kind: 'grows' }
  /** Arguments are limited to these sizes in bytes. The last size applies to all further arguments. */
  | { readonly kind: 'bounded'; readonly sizes: readonly number[] }
  /** Like `bounded`, with a result as large as the first argument times another one. */
  | { readonly kind: 'multiplies'; readonly sizes: readonly number[]; readonly factor: number }
  /** An aggregate that keeps all values in memory, up to this size in bytes. */
  | { readonly kind: 'collects'; readonly bytesMax: number }
  /** An aggregate or window function that does not keep its values, or not in memory. */
  | { readonly kind: 'folds' }

function costing(cost: Cost, names: string): [string, Cost][] {
  return words(names).map((name) => [name, cost])
}

const bounded = (...sizes: number[]): Cost => ({ kind: 'bounded', sizes })

const LINEAR = costing(
  { kind: 'linear' },
  `
  ascii bit_length char_length character_length chr convert_from decode initcap left length lower
  lpad md5 octet_length reverse right rpad sha224 sha256 sha384 sha512 starts_with substr to_hex
  trim_array unistr upper

  abs acos acosd asin asind atan atan2 atan2d atand cbrt ceil ceiling cos cosd cosh cot cotd degrees
  erf erfc floor min_scale pi radians random round scale sign sin sind sinh tan tand tanh trim_scale
  trunc width_bucket

  age clock_timestamp date_add date_bin date_part date_subtract date_trunc extract isfinite
  justify_days justify_hours justify_interval make_date make_interval make_time make_timestamp
  make_timestamptz now overlaps statement_timestamp timeofday timezone transaction_timestamp

  json_array_length json_extract_path json_extract_path_text json_strip_nulls json_typeof
  jsonb_array_length jsonb_extract_path jsonb_extract_path_text jsonb_strip_nulls jsonb_typeof

  array_dims array_length array_lower array_ndims array_position array_positions array_remove
  array_upper cardinality int4range int8range isempty lower_inc lower_inf multirange numrange
  range_merge tsrange tstzrange daterange upper_inc upper_inf

  gen_random_uuid uuidv4 uuidv7 uuid_extract_timestamp uuid_extract_version num_nonnulls num_nulls pg_typeof setweight numnode querytree strip
  tsvector_to_array

  generate_series generate_subscripts unnest json_array_elements json_array_elements_text json_each
  json_each_text json_object_keys jsonb_array_elements jsonb_array_elements_text jsonb_each
  jsonb_each_text jsonb_object_keys json_to_record json_to_recordset jsonb_to_record
  jsonb_to_recordset`,
)

const GROWING = costing(
  { kind: 'grows' },
  `
  concat concat_ws convert_to encode format overlay quote_ident quote_literal quote_nullable
  array_append array_cat array_prepend array_replace array_to_json json_build_array
  json_build_object json_object row_to_json to_json to_jsonb`,
)

/** Functions whose time is the product of two arguments. The sizes keep each call below one second. */
const BOUNDED: [string, Cost][] = [
  ...costing(
    bounded(SEARCHED_BYTES_MAX, PATTERN_BYTES_MAX),
    `
    btrim ltrim rtrim position split_part string_to_array string_to_table strpos translate
    regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_split_to_array
    regexp_split_to_table regexp_substr substring to_char to_date to_number to_timestamp`,
  ),
  // PostgreSQL builds documents as trees in memory, which are many times larger than the result.
  ...costing(
    bounded(DOCUMENT_BYTES_MAX),
    'jsonb_build_array jsonb_build_object jsonb_insert jsonb_object jsonb_set jsonb_set_lax',
  ),
  ...costing(
    bounded(SEARCHED_BYTES_MAX, PATTERN_BYTES_MAX),
    `
    jsonb_path_exists jsonb_path_match jsonb_path_query jsonb_path_query_array jsonb_path_query_first`,
  ),
  // Sorting combining characters takes quadratic time.
  ...costing(bounded(10_000), 'normalize is_normalized'),
  // Indentation makes the result grow with the depth of the document.
  ...costing(bounded(8 * 1024), 'jsonb_pretty'),
  ...costing(bounded(PATTERN_BYTES_MAX), 'like_escape similar_to_escape'),
  // Numbers of up to 2000 digits.
  ...costing(bounded(1_000), 'div exp gcd lcm ln log log10 mod power sqrt'),
  ...costing(bounded(SEARCHED_BYTES_MAX), 'to_tsvector'),
  ...costing(
    bounded(PATTERN_BYTES_MAX),
    'to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery',
  ),
  // Words of a query are compared in pairs.
  ...costing(bounded(SEARCHED_BYTES_MAX, 512), 'ts_rank ts_rank_cd'),
  ...costing(bounded(COMPARED_BYTES_MAX, COMPARED_BYTES_MAX, 512), 'ts_headline'),
]

const MULTIPLYING: [string, Cost][] = [
  ['repeat', { kind: 'multiplies', sizes: [SEARCHED_BYTES_MAX, 8], factor: 1 }],
  [
    'replace',
    {
      kind: 'multiplies',
      sizes: [SEARCHED_BYTES_MAX, PATTERN_BYTES_MAX, PATTERN_BYTES_MAX],
      factor: 2,
    },
  ],
  [
    'regexp_replace',
    {
      kind: 'multiplies',
      sizes: [SEARCHED_BYTES_MAX, PATTERN_BYTES_MAX, PATTERN_BYTES_MAX],
      factor: 2,
    },
  ],
  [
    'array_to_string',
    {
      kind: 'multiplies',
      sizes: [VALUE_BYTES_MAX, PATTERN_BYTES_MAX, PATTERN_BYTES_MAX],
      factor: 1,
    },
  ],
]

const collects = (bytesMax: number): Cost => ({ kind: 'collects', bytesMax })

const COLLECTING: [string, Cost][] = [
  ...costing(collects(COLLECTED_BYTES_MAX), 'array_agg json_agg json_object_agg string_agg'),
  ...costing(collects(COLLECTED_DOCUMENT_BYTES_MAX), 'jsonb_agg jsonb_object_agg'),
  ...costing(collects(COLLECTED_RANGES_BYTES_MAX), 'range_agg'),
]

const FOLDING = costing(
  { kind: 'folds' },
  `
  any_value avg bit_and bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp cume_dist
  dense_rank every max min mode percent_rank percentile_cont percentile_disc range_intersect_agg
  rank regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
  stddev stddev_pop stddev_samp sum var_pop var_samp variance
  first_value lag last_value lead nth_value ntile row_number`,
)

/** Set-returning functions with the names of their columns. An empty list means the name of the function. */
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

/** Set-returning functions whose columns are defined by the statement. */
export const DEFINED_ROW_FUNCTIONS: ReadonlySet<string> = new Set(
  words('json_to_record json_to_recordset jsonb_to_record jsonb_to_recordset'),
)

/** All allowed functions, with their costs. */
export const FUNCTIONS: ReadonlyMap<string, Cost> = new Map([
  ...LINEAR,
  ...GROWING,
  ...BOUNDED,
  ...MULTIPLYING,
  ...COLLECTING,
  ...FOLDING,
])

/** Functions whose argument is the size of the result. It must be a constant up to this maximum. */
export const SIZED_FUNCTIONS: ReadonlyMap<string, { argument: number; max: number }> = new Map([
  ['repeat', { argument: 1, max: 1000 }],
  ['lpad', { argument: 1, max: 10_000 }],
  ['rpad', { argument: 1, max: 10_000 }],
])

/** The path of a document. */
const PATH = {
  argument: 1,
  isValid: isBoundedPath,
  message:
    'the path must be written as a constant such as $.a[*] ? (@.b == 1), whose filters compare with constants; variables, calculations and ** are not supported',
}

/** Functions with an argument that must be a constant of a certain form. */
export const FORMED_FUNCTIONS: ReadonlyMap<
  string,
  {
    readonly argument: number
    isValid(text: string): boolean
    readonly message: string
  }
> = new Map([
  [
    'format',
    {
      argument: 0,
      // A width would make a large value of a small one.
      isValid: (text) => /^(?:[^%]|%%|%(?:\d+\$)?[sIL])*$/.test(text),
      message: 'the format must be written as a constant with %s, %I and %L, without widths',
    },
  ],
  ['jsonb_path_exists', PATH],
  ['jsonb_path_match', PATH],
  ['jsonb_path_query', PATH],
  ['jsonb_path_query_array', PATH],
  ['jsonb_path_query_first', PATH],
])

/**
 * Allowed types. Types such as `regclass` are missing, because their values are looked up in the catalogue. No
 * allowed function returns one either, so no expression has such a type.
 */
export const TYPES: ReadonlySet<string> = new Set(
  words(`
    bool bpchar bytea char cidr date daterange float4 float8 inet int2 int4 int4range int8 int8range
    interval json jsonb macaddr money numeric numrange text time timestamp timestamptz timetz
    tsquery tsrange tstzrange tsvector uuid varchar`),
)

/** Further types that a result can have, by their names in the catalogue. */
const OTHER_RESULT_TYPES: ReadonlySet<string> = new Set(
  words(`
    datemultirange int4multirange int8multirange nummultirange record tsmultirange tstzmultirange`),
)

/** Returns whether a result may have a type. Excludes types that look up objects of the server. */
export function isResultType(name: string): boolean {
  const element = name.replace(/^_/, '')
  return TYPES.has(element) || OTHER_RESULT_TYPES.has(element)
}

/** What a path in an operator must be. */
export const PATH_OPERAND = PATH.message

/** Allowed operators, with their costs. `sizes` are those of the left and the right operand. */
export const OPERATORS: ReadonlyMap<string, Cost> = new Map([
  ...costing(
    { kind: 'linear' },
    `= <> != < > <= >= + |/ ||/ @ & | # << >> ^@ -> ->> #> #>> ? #- -|- &< &>`,
  ),
  ...costing({ kind: 'grows' }, `|| * / %`),
  // For jsonb: removes a list of keys from a document.
  ...costing(bounded(VALUE_BYTES_MAX, PATTERN_BYTES_MAX), `-`),
  ...costing(bounded(1_000), `^`),
  ...costing(bounded(SEARCHED_BYTES_MAX, PATTERN_BYTES_MAX), `~~ !~~ ~~* !~~* ~ ~* !~ !~* @@ @?`),
  ...costing(bounded(COMPARED_BYTES_MAX), `@> <@ && ?| ?&`),
])

export const COLLATIONS: ReadonlySet<string> = new Set(['C', 'POSIX', 'default', 'ucs_basic'])
