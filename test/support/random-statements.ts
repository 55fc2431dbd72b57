import type { Random } from './seeded-random.js'

/* Random statements of PostgreSQL over tables with columns of all types. Most are valid. Where they sort, the order is total. */

type Kind =
  | 'text'
  | 'int2'
  | 'int4'
  | 'int8'
  | 'numeric'
  | 'float8'
  | 'bool'
  | 'mood'
  | 'level'
  | 'timestamp'
  | 'timestamptz'
  | 'date'
  | 'time'
  | 'uuid'
  | 'jsonb'
  | 'text[]'

interface Column {
  readonly name: string
  readonly kind: Kind
}

/** A column as expressions name it. */
interface Visible {
  readonly sql: string
  readonly kind: Kind
}

interface Relation {
  readonly sql: string
  readonly alias: string
  readonly columns: readonly Column[]
}

interface Query {
  readonly sql: string
  readonly columns: readonly Column[]
}

/** A statement, with parameters as texts. `isSorted` if the order of its rows is defined. */
export interface RandomStatement {
  readonly sql: string
  readonly values: readonly (string | null)[]
  readonly isSorted: boolean
  /** The tables that it writes. */
  readonly writes: readonly string[]
}

export const SCHEMA = `
  create type mood as enum ('sad', 'ok', 'happy', 'angry');
  create type level as enum ('angry', 'happy', 'ok', 'sad');
  create table authors (id serial primary key, name text, mood mood, level level, small smallint, medium integer not null,
    at timestamp, zoned timestamptz, exact numeric(10, 2), flag boolean);
  create table books (id uuid primary key, title text, author integer references authors (id) deferrable initially deferred, mood mood, ratio double precision,
    large bigint, day date, clock time, tags text[], doc jsonb, at timestamp);
  create table loans (id bigserial primary key, book uuid references books (id) deferrable initially deferred, medium integer, small smallint, level level,
    at timestamp not null, until timestamp(3), approx real, note text);
  create table marks (id text primary key, mood mood default 'ok', medium integer default 7, small smallint, at timestamp, day date,
    exact numeric(10, 2), flag boolean)`

interface Table {
  readonly name: string
  readonly columns: readonly Column[]
}

const TABLES: readonly Table[] = [
  table(
    'authors',
    'id int4, name text, mood mood, level level, small int2, medium int4, at timestamp, zoned timestamptz, exact numeric, flag bool',
  ),
  table(
    'books',
    'id uuid, title text, author int4, mood mood, ratio float8, large int8, day date, clock time, tags text[], doc jsonb, at timestamp',
  ),
  table(
    'loans',
    'id int8, book uuid, medium int4, small int2, level level, at timestamp, until timestamp, approx float8, note text',
  ),
  table(
    'marks',
    'id text, mood mood, medium int4, small int2, at timestamp, day date, exact numeric, flag bool',
  ),
]
/** A `real` is a float8, so only values that both show alike are stored. */
const CONSTANT = new Set(['approx', 'exact', 'tags'])
const REQUIRED = new Set(['authors.medium', 'loans.at'])

function table(name: string, columns: string): Table {
  return {
    name,
    columns: columns.split(', ').map((each) => {
      const [column = '', kind] = each.split(' ')
      return { name: column, kind: kind as Kind }
    }),
  }
}

const MOODS = ['sad', 'ok', 'happy', 'angry']
const WORDS = ['ann', 'bob', 'cy', 'happy', 'ok', 'zoe', '']
const MOMENTS = [
  '2026-03-04 05:06:07.123',
  '2026-03-29 02:30:00',
  '2026-07-08 22:30:00',
  '2025-12-31 23:59:59.999',
  '2026-01-01 00:00:00',
]
const DAYS = ['2026-03-04', '2026-07-08', '2025-12-31', '2024-02-29']
const CLOCKS = ['05:06:07', '23:59:59.5', '00:00:00']
const DOCUMENTS = ['{"a": 1, "b": [1, 2]}', '{"a": null}', '[1, "x"]', '"ok"', '{"mood": "sad"}']
const LISTS = ['{a,b}', '{}', '{happy}', '{b,a}']
const KINDS: readonly Kind[] = [
  'text',
  'int2',
  'int4',
  'int8',
  'numeric',
  'float8',
  'bool',
  'mood',
  'level',
  'timestamp',
  'timestamptz',
  'date',
  'time',
  'uuid',
  'jsonb',
  'text[]',
]
/** Kinds that this is about. */
const DECLARED: readonly Kind[] = [
  'int2',
  'int4',
  'int4',
  'mood',
  'mood',
  'level',
  'timestamp',
  'timestamp',
]
/** Kinds whose arrays and distinct values are sorted as they are in PostgreSQL. */
const SORTED_ALIKE: readonly Kind[] = ['int2', 'int4', 'timestamp', 'text']
/** Kinds that have `min` and `max`. */
const ORDERED: readonly Kind[] = [
  'text',
  'int2',
  'int4',
  'int8',
  'numeric',
  'float8',
  'mood',
  'level',
  'timestamp',
  'timestamptz',
  'date',
  'time',
]
const TYPE_NAMES: Readonly<Record<Kind, string>> = {
  text: 'text',
  int2: 'smallint',
  int4: 'integer',
  int8: 'bigint',
  numeric: 'numeric',
  float8: 'double precision',
  bool: 'boolean',
  mood: 'mood',
  level: 'level',
  timestamp: 'timestamp',
  timestamptz: 'timestamptz',
  date: 'date',
  time: 'time',
  uuid: 'uuid',
  jsonb: 'jsonb',
  'text[]': 'text[]',
}

export function uuidOf(number: number): string {
  return `00000000-0000-7000-8000-${String(number).padStart(12, '0')}`
}

/** The text of a random value. */
function textOf(random: Random, kind: Kind): string {
  switch (kind) {
    case 'text':
      return random.pick(WORDS)
    case 'int2':
    case 'int4':
    case 'int8':
      return String(random.below(7) - 1)
    case 'numeric':
      return random.pick(['0', '1.5', '2.25', '-3', '10.00'])
    case 'float8':
      return random.pick(['0', '1.5', '0.25', '-3'])
    case 'bool':
      return random.pick(['true', 'false'])
    case 'mood':
    case 'level':
      return random.pick(MOODS)
    case 'timestamp':
      return random.pick(MOMENTS)
    case 'timestamptz':
      return `${random.pick(MOMENTS)}${random.pick(['Z', '+02'])}`
    case 'date':
      return random.pick(DAYS)
    case 'time':
      return random.pick(CLOCKS)
    case 'uuid':
      return uuidOf(random.below(8))
    case 'jsonb':
      return random.pick(DOCUMENTS)
    case 'text[]':
      return random.pick(LISTS)
  }
}

const NUMBERS = new Set<Kind>(['int2', 'int4', 'int8', 'numeric', 'float8'])

function literal(random: Random, kind: Kind): string {
  const value = textOf(random, kind)
  return (NUMBERS.has(kind) && kind !== 'float8') || kind === 'bool'
    ? value.startsWith('-')
      ? `(${value})`
      : value
    : `'${value}'`
}

/** A literal that has the type by itself. */
function typedLiteral(random: Random, kind: Kind): string {
  if (kind === 'bool' || (kind === 'int4' && random.chance(0.7))) return literal(random, kind)
  const value = `'${textOf(random, kind)}'`
  return random.chance(0.7)
    ? `${value}::${TYPE_NAMES[kind]}`
    : `cast(${value} as ${TYPE_NAMES[kind]})`
}

/** The rows that the tables have at first, as statements. */
export function fill(random: Random, rows: { from: number; to: number }): string[] {
  return TABLES.flatMap(({ name, columns }) =>
    Array.from({ length: rows.to - rows.from }, (_, n) => {
      const values = columns.map((column) =>
        storedValue(random, { name, column, number: rows.from + n }),
      )
      return `insert into ${name} (${columns.map((each) => each.name).join(', ')}) values (${values.join(', ')})`
    }),
  )
}

function storedValue(
  random: Random,
  { name, column, number }: { name: string; column: Column; number: number },
): string {
  if (column.name === 'id') {
    if (column.kind === 'uuid') return `'${uuidOf(number)}'`
    return column.kind === 'text' ? `'m${number}'` : String(number)
  }
  if (!REQUIRED.has(`${name}.${column.name}`) && random.chance(0.2)) return 'null'
  if (column.name === 'author') return String(random.below(4))
  if (column.name === 'book') return `'${uuidOf(random.below(4))}'`
  return literal(random, column.kind)
}

/** Statements that change some rows, to make a branch differ from its source. */
export function change(random: Random, { from, to }: { from: number; to: number }): string[] {
  return [
    ...fill(random, { from, to }),
    ...Array.from({ length: 8 }, () => {
      const { name, columns } = random.pick(TABLES)
      const column = random.pick(columns.filter((each) => each.name !== 'id'))
      const id = storedValue(random, {
        name,
        column: columns[0] as Column,
        number: random.below(from),
      })
      return `update ${name} set ${column.name} = ${storedValue(random, { name, column, number: 0 })} where id = ${id}`
    }),
    `delete from loans where id = ${from - 1}`,
    `delete from marks where id = 'm${from - 1}'`,
  ]
}

class Generator {
  readonly values: (string | null)[] = []
  readonly writes = new Set<string>()
  #names = 0
  readonly random: Random
  /** Queries of `with` in scope. */
  #shared: Relation[] = []

  constructor(random: Random) {
    this.random = random
  }

  #name(prefix: string): string {
    this.#names++
    return `${prefix}${this.#names}`
  }

  #parameter(kind: Kind): string {
    this.values.push(this.random.chance(0.05) ? null : textOf(this.random, kind))
    return `$${this.values.length}`
  }

  /** A value that another operand or a column gives its type. */
  #untyped(kind: Kind): string {
    return this.random.chance(0.4)
      ? this.#parameter(kind)
      : this.random.chance(0.1)
        ? 'null'
        : literal(this.random, kind)
  }

  #leaf(kind: Kind, scope: readonly Visible[]): string {
    const columns = scope.filter((each) => each.kind === kind)
    if (columns.length > 0 && this.random.chance(0.85)) return this.random.pick(columns).sql
    return this.random.chance(0.2)
      ? `${this.#parameter(kind)}::${TYPE_NAMES[kind]}`
      : typedLiteral(this.random, kind)
  }

  expression(kind: Kind, scope: readonly Visible[], depth: number): string {
    const { random } = this
    if (depth <= 0 || random.chance(0.35)) return this.#leaf(kind, scope)
    const of = (other: Kind) => this.expression(other, scope, depth - 1)
    const same = () => of(kind)
    const other = () => (random.chance(0.3) ? this.#untyped(kind) : same())
    const general: (readonly [number, () => string])[] = [
      [1, () => `coalesce(${same()}, ${other()})`],
      [0.5, () => `nullif(${same()}, ${other()})`],
      [1, () => `case when ${this.condition(scope, depth - 1)} then ${same()} else ${other()} end`],
      [0.4, () => `case when ${this.condition(scope, depth - 1)} then ${same()} end`],
      [
        0.3,
        () => {
          const on = random.pick(DECLARED)
          return `case ${of(on)} when ${this.#untyped(on)} then ${same()} else ${same()} end`
        },
      ],
      [0.4, () => this.#scalarQuery(kind, scope, depth)],
      [0.3, () => `(${same()})::${TYPE_NAMES[kind]}`],
    ]
    if (ORDERED.includes(kind) || kind === 'uuid')
      general.push([1, () => `${random.pick(['greatest', 'least'])}(${same()}, ${other()})`])
    return random.weighted([
      ...general,
      ...this.#special(kind, scope, depth).map((each) => [1.2, each] as const),
    ])()
  }

  #special(kind: Kind, scope: readonly Visible[], depth: number): (() => string)[] {
    const { random } = this
    const of = (other: Kind) => this.expression(other, scope, depth - 1)
    const literalOf = (other: Kind) => literal(random, other)
    switch (kind) {
      case 'int2':
        return [
          () => `(${of('int2')} + ${of('int2')})`,
          () => `(- ${of('int2')})`,
          () => `abs(${of('int2')})`,
          () => `(${of('int4')})::smallint`,
          () => `(${of('int2')} % 3::smallint)`,
          () => `(${of('int2')} & ${of('int2')})`,
        ]
      case 'int4':
        return [
          () => `position('a' in ${of('text')})`,
          () => `array_length(array[${of('int4')}], 1)`,
          () => `(array[${of('int4')}, ${of('int4')}])[${1 + random.below(2)}]`,
          () => `(array[1, 2, 3])[${of(random.pick(['int4', 'int2']))}]`,
          () => `((${of('jsonb')} ->> 'a') is null)::int`,
          () => `num_nulls(${of(random.pick(DECLARED))}, ${of('int4')})`,
          () => `date_part('year', ${of('timestamp')})::int`,
          () => `div(${of('int4')}, 3)::int`,
          () => `width_bucket(${of('int4')}, 0, 10, 5)`,
          () => `(${of('int4')} << 1)`,
          () => `sign(${of('int4')})::int`,
          () => `gcd(${of('int4')}, 6)`,
          () => `ascii(${of('text')})`,
          () => `(~ ${of('int4')})`,
          () =>
            `(${of('int4')} ${random.pick(['+', '-', '*'])} ${of(random.pick(['int2', 'int4']))})`,
          () => `(${of('int2')} ${random.pick(['+', '-', '*'])} ${literalOf('int4')})`,
          () => `(${of('int4')} ${random.pick(['/', '%'])} ${random.pick(['2', '3'])})`,
          () => `abs(${of('int4')})`,
          () => `(- ${of('int4')})`,
          () => `coalesce(${of('int2')}, ${of('int4')})`,
          () => `greatest(${of('int4')}, ${of('int2')}, 1)`,
          () => `length(${of('text')})`,
          () => `extract(${random.pick(['hour', 'year', 'day'])} from ${of('timestamp')})::int`,
          () => `(${of('date')} - ${of('date')})`,
          () => `cardinality(${of('text[]')})`,
          () => `(${of(random.pick(['int8', 'numeric', 'bool', 'int2', 'float8']))})::int`,
          () => `mod(${of('int4')}, 3)`,
          () => `(${of('int4')} # ${of('int4')})`,
          () => `(${of('int4')} + ${this.#parameter('int4')})`,
          () => `case when ${this.condition(scope, depth - 1)} then ${of('int2')} else 2 end`,
          () => `array_position(array['sad', 'ok'], ${of('text')})`,
        ]
      case 'int8':
        return [
          () =>
            `(${of('int8')} ${random.pick(['+', '-'])} ${of(random.pick(['int2', 'int4', 'int8']))})`,
          () => `(${of('int4')})::bigint`,
          () => `coalesce(${of('int4')}, ${of('int8')})`,
          () => `(select count(*) from ${random.pick(TABLES).name})`,
        ]
      case 'numeric':
        return [
          () =>
            `(${of('numeric')} ${random.pick(['+', '-', '*'])} ${of(random.pick(['int2', 'int4', 'numeric']))})`,
          () => `round(${of('numeric')}, 1)`,
          () => `coalesce(${of('int4')}, ${of('numeric')})`,
          () => `(${of('int4')})::numeric`,
          () => `extract(epoch from ${of('timestamp')})`,
          () => `(${of('int4')} / 2.0)`,
        ]
      case 'float8':
        return [
          () =>
            `(${of('float8')} ${random.pick(['+', '-', '*'])} ${of(random.pick(['int4', 'float8']))})`,
          () => `(${of('int4')})::float8`,
          () => `power(${of('int2')}, 2)`,
          () => `sqrt(abs(${of('int4')}))`,
          () => `date_part('month', ${of('timestamp')})`,
        ]
      case 'bool':
        return [() => `(${this.condition(scope, depth)})`]
      case 'text':
        return [
          () => `left(${of('text')}, ${of(random.pick(['int4', 'int2']))})`,
          () => `substring(${of('text')} from ${of('int4')})`,
          () => `(${of('text[]')})[${of(random.pick(['int4', 'int2']))}]`,
          () => `(${of('jsonb')} ->> ${of('int4')})`,
          () => `split_part(${of('text')}, 'a', abs(${of('int4')}) + 1)`,
          () => `to_hex(abs(${of('int4')}))`,
          () => `to_char(${of(random.pick(['int4', 'int2']))}, '999')`,
          () => `to_char(${of('timestamp')} - ${of('timestamp')}, 'DD HH24')`,
          () => `age(${of('timestamp')}, ${of('timestamp')})::text`,
          () => `quote_nullable(${of(random.pick(DECLARED))})`,
          () => `concat_ws('/', ${of(random.pick(DECLARED))}, ${of(random.pick(DECLARED))})`,
          () =>
            `json_array(${of(random.pick(DECLARED))}, ${of(random.pick(DECLARED))} null on null)::text`,
          () => `(${of('timestamp')})::date::text`,
          () => `array[${of('timestamp')}]::text`,
          () => `array[${of(random.pick(DECLARED))}]::text`,
          () => `row(${of(random.pick(DECLARED))}, ${of(random.pick(DECLARED))})::text`,
          () => `reverse(${of('text')})`,
          () => `(${of(random.pick(KINDS))})::text`,
          () =>
            `(${of('text')} || ${of(random.pick(['text', 'mood', 'int4', 'timestamp', 'int2']))})`,
          () => `upper(${of('text')})`,
          () => `concat(${of(random.pick(KINDS))}, '-', ${of(random.pick(KINDS))})`,
          () => `to_char(${of('timestamp')}, 'YYYY-MM-DD HH24:MI')`,
          () =>
            `json_build_object('a', ${of(random.pick(KINDS))}, 'b', ${of(random.pick(DECLARED))})::text`,
          () => `json_build_array(${of(random.pick(DECLARED))})::text`,
          () => `(${of('jsonb')} ->> 'a')`,
          () => `to_json(${of(random.pick(DECLARED))})::text`,
          () => `substr(${of('text')}, 1, ${of('int4')} % 3 + 3)`,
          () => `format('%s/%s', ${of(random.pick(DECLARED))}, ${of(random.pick(DECLARED))})`,
          () => `array_to_string(array[${of('int4')}, ${of('int4')}], ',')`,
        ]
      case 'mood':
      case 'level':
        return [
          () => `lower('OK')::${kind}`,
          () => `(${of(kind === 'mood' ? 'level' : 'mood')})::text::${kind}`,
        ]
      case 'timestamp':
        return [
          () => `date_bin('1 hour', ${of('timestamp')}, '2026-01-01')`,
          () => `(${of('timestamp')} + ${of('int4')} * interval '1 day')`,
          () => `(${of('timestamp')} + make_interval(days => ${of('int4')}))`,
          () => `(${of('timestamp')} + (${of('timestamp')} - ${of('timestamp')}))`,
          () => `(${of('timestamp')} + '1 day')`,
          () => `(${of('timestamp')} - ${of('time')})`,
          () => `greatest(${of('timestamp')}, ${of('date')})`,
          () => `date_trunc('${random.pick(['day', 'hour', 'month'])}', ${of('timestamp')})`,
          () =>
            `(${of('timestamp')} ${random.pick(['+', '-'])} interval '${random.pick(['1 day', '2 hours', '1 month'])}')`,
          () => `(${of('date')} + ${of('time')})`,
          () => `(${of('timestamptz')} at time zone 'Europe/Berlin')`,
          () => `(${of('timestamptz')})::timestamp`,
          () => `(${of('date')})::timestamp`,
          () => `(${of('date')} + interval '1 day')`,
          () => `make_timestamp(2026, 1, ${random.below(20) + 1}, 3, 4, 5)`,
          () => `coalesce(${of('timestamp')}, ${of('date')})`,
        ]
      case 'timestamptz':
        return [
          () => `(${of('timestamptz')} + interval '1 day')`,
          () => `(${of('timestamp')} at time zone 'Europe/Berlin')`,
          () => `(${of('timestamp')})::timestamptz`,
          () => `date_trunc('day', ${of('timestamptz')})`,
          () => `coalesce(${of('timestamptz')}, ${of('timestamp')})`,
        ]
      case 'date':
        return [
          () => `make_date(2026, abs(${of('int4')}) % 12 + 1, 3)`,
          () => `(${of('date')} - ${of('int2')})`,
          () => `(${of('timestamp')})::date`,
          () => `(${of('date')} + ${of('int4')})`,
          () => `(${of('date')} - 1)`,
        ]
      case 'time':
        return [() => `(${of('timestamp')})::time`, () => `(${of('time')} + interval '1 hour')`]
      case 'uuid':
        return []
      case 'jsonb':
        return [
          () => this.#wholeRow(scope),
          () => `(${of('jsonb')} -> ${of('int4')})`,
          () => `jsonb_build_object('a' || ${of('int4')}, ${of(random.pick(DECLARED))})`,
          () => `to_jsonb(array[${of(random.pick(DECLARED))}])`,
          () => `jsonb_set('{"a": 1}', '{a}', to_jsonb(${of(random.pick(DECLARED))}))`,
          () => `to_jsonb(${of(random.pick(KINDS))})`,
          () =>
            `jsonb_build_object('a', ${of(random.pick(KINDS))}, 'b', ${of(random.pick(DECLARED))})`,
          () => `(${of('jsonb')} -> 'a')`,
          () => `jsonb_build_array(${of(random.pick(KINDS))})`,
        ]
      case 'text[]':
        return [
          () => `array[${of('text')}, ${of('text')}]`,
          () => `array_append(${of('text[]')}, ${of('text')})`,
          () => `(${of('text[]')} || ${of('text')})`,
          () => `array[${of(random.pick(DECLARED))}]::text[]`,
        ]
    }
  }

  /** A row of a relation as a document. That of a table has the names of its columns, also if the statement gives others. */
  #wholeRow(scope: readonly Visible[]): string {
    const aliases = scope.flatMap(({ sql }) => /^([a-su-z]+\d+)\.[a-z]/.exec(sql)?.[1] ?? [])
    return aliases.length === 0 ? `'{}'::jsonb` : `to_jsonb(${this.random.pick(aliases)})`
  }

  #scalarQuery(kind: Kind, scope: readonly Visible[], depth: number): string {
    const { random } = this
    const relation = this.#tableOf(kind)
    const inner = this.#visible(relation)
    const all = [...inner, ...(random.chance(0.6) ? scope : [])]
    if (ORDERED.includes(kind) && random.chance(0.6)) {
      const where = random.chance(0.6) ? ` where ${this.condition(all, depth - 1)}` : ''
      return `(select ${random.pick(['min', 'max'])}(${this.expression(kind, inner, 1)}) from ${relation.sql}${where})`
    }
    const wanted = this.expression(kind, all, 1)
    return `(select ${wanted} from ${relation.sql} order by ${random.chance(0.5) ? `${this.#leaf(random.pick(DECLARED), inner)}, ` : ''}${relation.alias}.id${random.chance(0.5) ? ' desc' : ''} limit 1)`
  }

  #tableOf(kind: Kind): Relation {
    const fitting = TABLES.filter(({ columns }) => columns.some((each) => each.kind === kind))
    return this.#tableRelation(this.random.pick(fitting.length > 0 ? fitting : TABLES))
  }

  #tableRelation({ name, columns }: Table): Relation {
    const { random } = this
    if (random.chance(0.1)) {
      // Names of columns that the statement gives.
      const renamed = columns.map((each, n) =>
        n < 4 && n > 0 ? { ...each, name: this.#name('r') } : each,
      )
      const alias = this.#name('t')
      return {
        sql: `${name} as ${alias}(${renamed
          .slice(0, 4)
          .map((each) => each.name)
          .join(', ')})`,
        alias,
        columns: renamed,
      }
    }
    const alias = this.#name(name.slice(0, 1))
    return { sql: `${random.chance(0.1) ? 'public.' : ''}${name} ${alias}`, alias, columns }
  }

  #visible({ alias, columns }: Relation): Visible[] {
    return columns.map(({ name, kind }) => ({ sql: `${alias}.${name}`, kind }))
  }

  condition(scope: readonly Visible[], depth: number): string {
    const { random } = this
    const kind: Kind = random.chance(0.7) ? random.pick(DECLARED) : random.pick(ORDERED)
    const of = (other: Kind) => this.expression(other, scope, depth - 1)
    const operand = () => (random.chance(0.5) ? this.#untyped(kind) : of(kind))
    const comparison = () => random.pick(['=', '<>', '<', '>', '<=', '>='])
    return random.weighted<() => string>([
      [4, () => `${of(kind)} ${comparison()} ${operand()}`],
      [0.7, () => `${this.#untyped(kind)} ${comparison()} ${of(kind)}`],
      [
        1,
        () => `${of(kind)} ${random.pick(['', 'not '])}in (${operand()}, ${this.#untyped(kind)})`,
      ],
      [
        1,
        () =>
          `${of(kind)} ${random.pick(['', 'not '])}between ${random.pick(['', 'symmetric '])}${operand()} and ${operand()}`,
      ],
      [0.6, () => `${of(kind)} is ${random.pick(['', 'not '])}null`],
      [0.6, () => `${of(kind)} is ${random.pick(['', 'not '])}distinct from ${operand()}`],
      [0.7, () => this.#anyCondition(scope, depth)],
      [depth > 0 ? 0.8 : 0, () => this.#existsCondition(scope, depth)],
      [depth > 0 ? 0.8 : 0, () => this.#inQuery(kind, scope, depth)],
      [
        0.4,
        () => {
          const [a, b] = [random.pick(DECLARED), random.pick(ORDERED)]
          return `(${of(a)}, ${of(b)}) ${comparison()} (${of(a)}, ${of(b)})`
        },
      ],
      [
        0.4,
        () => {
          const [a, b] = [random.pick(DECLARED), random.pick(ORDERED)]
          return `(${of(a)}, ${of(b)}) in ((${literal(random, a)}, ${literal(random, b)}), (${literal(random, a)}, ${literal(random, b)}))`
        },
      ],
      [0.4, () => `${of('text')} like '%${random.pick(['a', 'o', 'p'])}%'`],
      [
        0.3,
        () =>
          `${of(random.pick(['int4', 'numeric', 'int2', 'float8']))} ${comparison()} ${of(random.pick(['int4', 'numeric', 'int8', 'int2']))}`,
      ],
      [
        0.4,
        () =>
          `${of('timestamp')} ${comparison()} ${of(random.pick(['date', 'timestamptz', 'timestamp']))}`,
      ],
      [
        depth > 0 ? 1 : 0,
        () =>
          `(${this.condition(scope, depth - 1)} ${random.pick(['and', 'or'])} ${this.condition(scope, depth - 1)})`,
      ],
      [depth > 0 ? 0.4 : 0, () => `not (${this.condition(scope, depth - 1)})`],
      [0.3, () => of('bool')],
      [0.02, () => `${of(random.pick(KINDS))} ${comparison()} ${of(random.pick(KINDS))}`],
    ])()
  }

  #anyCondition(scope: readonly Visible[], depth: number): string {
    const { random } = this
    const kind = random.pick<Kind>(['int4', 'text', 'mood', 'int2', 'timestamp', 'level'])
    const left = this.expression(kind, scope, depth - 1)
    const comparison = random.chance(0.7) ? '= any' : random.pick(['<> all', '< any', '>= all'])
    return random.weighted<() => string>([
      [
        2,
        () =>
          `${left} ${comparison} (array[${typedLiteral(random, kind)}, ${typedLiteral(random, kind)}])`,
      ],
      [
        1,
        () =>
          `${left} ${comparison} (array[${this.expression(kind, scope, depth - 1)}, ${this.expression(kind, scope, depth - 1)}])`,
      ],
      [
        1,
        () =>
          `${left} ${comparison} ('{${[textOf(random, kind), textOf(random, kind)].map((each) => `"${each}"`).join(',')}}'::${TYPE_NAMES[kind]}[])`,
      ],
      [
        1,
        () => {
          this.values.push(
            `{${[textOf(random, kind), textOf(random, kind)].map((each) => `"${each}"`).join(',')}}`,
          )
          return `${left} ${comparison} ($${this.values.length}${random.chance(0.3) ? `::${TYPE_NAMES[kind]}[]` : ''})`
        },
      ],
    ])()
  }

  #existsCondition(scope: readonly Visible[], depth: number): string {
    const relation = this.#relation(0, [])
    return `${this.random.pick(['', 'not '])}exists (select ${this.random.pick(['1', '*'])} from ${relation.sql} where ${this.condition([...this.#visible(relation), ...scope], depth - 1)})`
  }

  #inQuery(kind: Kind, scope: readonly Visible[], depth: number): string {
    const relation = this.#tableOf(kind)
    const inner = this.#visible(relation)
    const operator = this.random.pick(['in', 'in', 'not in', '= any', '< any', '>= all', '<> all'])
    const where = this.random.chance(0.6) ? ` where ${this.condition(inner, depth - 1)}` : ''
    return `${this.expression(kind, scope, depth - 1)} ${operator} (select ${this.expression(kind, inner, depth - 1)} from ${relation.sql}${where})`
  }

  /** A table, a query of `with`, a subquery or rows of values. */
  #relation(depth: number, outer: readonly Visible[]): Relation {
    const { random } = this
    return random.weighted<() => Relation>([
      [4, () => this.#tableRelation(random.pick(TABLES))],
      [
        this.#shared.length > 0 ? 4 : 0,
        () => {
          const { sql, columns } = random.pick(this.#shared)
          const alias = this.#name('w')
          return { sql: `${sql} ${alias}`, alias, columns }
        },
      ],
      [
        depth > 0 ? 2 : 0,
        () => {
          const query = this.query(depth - 1, outer, { isNamed: true })
          const alias = this.#name('q')
          if (random.chance(0.3)) {
            const columns = query.columns.map((each) => ({ ...each, name: this.#name('k') }))
            return {
              sql: `(${query.sql}) as ${alias}(${columns.map((each) => each.name).join(', ')})`,
              alias,
              columns,
            }
          }
          return { sql: `(${query.sql}) ${alias}`, alias, columns: query.columns }
        },
      ],
      [
        0.3,
        () => {
          const kinds = [random.pick<Kind>(DECLARED), random.pick(KINDS)]
          const rows = Array.from(
            { length: 1 + random.below(3) },
            () => `(${kinds.map((each) => typedLiteral(random, each)).join(', ')})`,
          )
          const alias = this.#name('v')
          const columns = kinds.map((kind) => ({ name: this.#name('k'), kind }))
          return {
            sql: `(values ${rows.join(', ')}) as ${alias}(${columns.map((each) => each.name).join(', ')})`,
            alias,
            columns,
          }
        },
      ],
      [
        0.15,
        () => {
          const alias = this.#name('g')
          return {
            sql: `${random.pick([`generate_series(1, ${1 + random.below(4)})`, `unnest(array[1, 2, 3])`])} as ${alias}(n)`,
            alias,
            columns: [{ name: 'n', kind: 'int4' }],
          }
        },
      ],
    ])()
  }

  /** The relations of FROM: their SQL, what is visible, and the columns of `*`. */
  #from(
    depth: number,
    outer: readonly Visible[],
  ): { sql: string; scope: Visible[]; star: Column[] | null; relations: Relation[] } {
    const { random } = this
    const first = this.#relation(depth, [])
    let sql = first.sql
    let scope = this.#visible(first)
    let star: Column[] | null = [...first.columns]
    const relations = [first]
    const joins =
      depth > 0
        ? random.weighted([
            [5, 0],
            [4, 1],
            [1, 2],
          ])
        : random.weighted([
            [4, 0],
            [1, 1],
          ])
    for (let n = 0; n < joins; n++) {
      const isLateral = depth > 0 && random.chance(0.15)
      let next = this.#relation(isLateral ? 0 : depth - 1, [])
      let kind = random.pick(['join', 'left join', 'full join', 'right join', 'join', 'left join'])
      if (isLateral) {
        const alias = this.#name('l')
        const query = this.query(depth - 1, [...scope, ...outer], { isNamed: true })
        next = { sql: `lateral (${query.sql}) ${alias}`, alias, columns: query.columns }
        kind = random.pick(['left join', 'join'])
      }
      const inner = this.#visible(next)
      const shared =
        n === 0
          ? next.columns.filter((each) =>
              first.columns.some((other) => other.name === each.name && other.kind === each.kind),
            )
          : []
      const clash =
        n === 0
          ? next.columns.filter((each) => first.columns.some((other) => other.name === each.name))
          : []
      const uniqueNames = shared.filter(
        (each) =>
          next.columns.filter((other) => other.name === each.name).length === 1 &&
          first.columns.filter((other) => other.name === each.name).length === 1,
      )
      if (uniqueNames.length > 0 && random.chance(0.35)) {
        const isNatural = clash.length === uniqueNames.length && random.chance(0.4)
        const using = isNatural ? uniqueNames : random.some(uniqueNames, 0.3)
        const names = new Set(using.map((each) => each.name))
        sql += isNatural
          ? ` natural ${kind} ${next.sql}`
          : ` ${kind} ${next.sql} using (${using.map((each) => each.name).join(', ')})`
        scope = [
          ...using.map(({ name, kind: of }) => ({ sql: name, kind: of })),
          ...scope,
          ...inner,
        ]
        star = [
          ...using.map((each) => each),
          ...first.columns.filter((each) => !names.has(each.name)),
          ...next.columns.filter((each) => !names.has(each.name)),
        ]
        // A name of USING is only unambiguous as long as no other relation has it.
        relations.push(next)
        return { sql, scope, star, relations }
      }
      const on = this.#joinCondition(scope, inner, { isFull: kind === 'full join', depth })
      if (random.chance(0.1) && kind === 'join' && !isLateral)
        sql += random.chance(0.5) ? `, ${next.sql}` : ` cross join ${next.sql}`
      else sql += ` ${kind} ${next.sql} on ${on}`
      scope = [...scope, ...inner]
      star = [...(star ?? []), ...next.columns]
      relations.push(next)
    }
    return { sql, scope, star, relations }
  }

  #joinCondition(
    left: readonly Visible[],
    right: readonly Visible[],
    { isFull, depth }: { isFull: boolean; depth: number },
  ): string {
    const { random } = this
    const pairs = left.flatMap((a) =>
      right.filter((b) => a.kind === b.kind && a.kind !== 'jsonb').map((b) => ({ a, b })),
    )
    if (pairs.length === 0) return random.pick(['true', '1 = 1'])
    const preferred = pairs.filter(({ a }) => DECLARED.includes(a.kind))
    const { a, b } = random.pick(preferred.length > 0 && random.chance(0.7) ? preferred : pairs)
    const operator = isFull || random.chance(0.8) ? '=' : random.pick(['<', '>='])
    const more =
      !isFull && random.chance(0.2) ? ` and ${this.condition([...left, ...right], depth - 1)}` : ''
    return `${a.sql} ${operator} ${b.sql}${more}`
  }

  #aggregate(kind: Kind, scope: readonly Visible[], depth: number): string {
    const { random } = this
    const of = (other: Kind) => this.expression(other, scope, Math.min(depth - 1, 1))
    const filter = () => (random.chance(0.25) ? ` filter (where ${this.condition(scope, 0)})` : '')
    const distinct = () => (random.chance(0.15) ? 'distinct ' : '')
    const direction = () => random.pick(['', ' desc', ' nulls first', ' desc nulls last'])
    const ways: (() => string)[] = []
    if (ORDERED.includes(kind))
      ways.push(
        () => `${random.pick(['min', 'max'])}(${distinct()}${of(kind)})${filter()}`,
        () => `${random.pick(['min', 'max'])}(${of(kind)})${filter()}`,
      )
    if (kind === 'int8')
      ways.push(
        () =>
          `count(${random.pick(['*', `${distinct()}${of(random.pick(DECLARED))}`])})${filter()}`,
        () => `sum(${distinct()}${of(random.pick(['int2', 'int4']))})${filter()}`,
      )
    if (kind === 'int4')
      ways.push(
        () => `count(*)::int`,
        () => `bit_or(${of('int4')})`,
      )
    if (kind === 'int2') ways.push(() => `bit_and(${of('int2')})`)
    if (kind === 'numeric')
      ways.push(
        () => `sum(${of(random.pick(['int8', 'numeric']))})${filter()}`,
        () => `round(avg(${of(random.pick(['int2', 'int4', 'int8', 'numeric']))}), 3)`,
        () => `avg(${of(random.pick(['int2', 'int4', 'int8', 'numeric']))})${filter()}`,
      )
    if (kind === 'float8')
      ways.push(
        () => `avg(${of('int4')})::float8`,
        () => `max(${of('float8')})`,
      )
    if (kind === 'bool')
      ways.push(
        () => `bool_or(${this.condition(scope, 0)})`,
        () => `every(${of('bool')})`,
      )
    if (kind === 'text') {
      ways.push(
        () => {
          const item = of('text')
          return `string_agg(${item}, ',' order by ${item}${direction()})`
        },
        () => {
          const item = this.#leaf(random.pick(DECLARED), scope)
          return `string_agg(${item}::text, ',' order by ${item}${direction()})${filter()}`
        },
        () => {
          const item = this.#leaf(random.pick(DECLARED), scope)
          return `json_agg(${item} order by ${item}${direction()})::text`
        },
        () => {
          const item = this.#leaf(random.pick(SORTED_ALIKE), scope)
          return `array_agg(${distinct()}${item} order by ${item})::text`
        },
      )
    }
    if (kind === 'text[]')
      ways.push(() => {
        const item = this.#leaf(random.pick(SORTED_ALIKE), scope)
        return `array_agg(${distinct()}${item} order by ${item}${direction()})::text[]`
      })
    if (kind === 'jsonb')
      ways.push(() => {
        const item = this.#leaf(random.pick(DECLARED), scope)
        return `jsonb_agg(${item} order by ${item}${direction()})`
      })
    if (DECLARED.includes(kind))
      ways.push(
        () => {
          const item = this.#leaf(kind, scope)
          return `(array_agg(${item} order by ${item}${direction()}))[1]`
        },
        () => {
          const item = this.#leaf(kind, scope)
          return `${random.pick(['mode()', 'percentile_disc(0.5)'])} within group (order by ${item})`
        },
      )
    if (ways.length === 0) {
      const item = this.#leaf(kind, scope)
      ways.push(() => `(array_agg(${item} order by ${item}))[1]`)
    }
    return random.pick(ways)()
  }

  #window(kind: Kind, scope: readonly Visible[], named: readonly string[]): string {
    const { random } = this
    const leaf = (other: Kind) => this.#leaf(other, scope)
    const item = leaf(kind)
    // Rows that are equal in this order give the same values.
    const over = () => {
      if (named.length > 0 && random.chance(0.5)) return random.pick(named)
      const partition = random.chance(0.5) ? `partition by ${leaf(random.pick(DECLARED))} ` : ''
      return `(${partition}order by ${leaf(random.pick(DECLARED))}${random.pick(['', ' desc', ' nulls first'])})`
    }
    if (kind === 'int8')
      return random.pick([
        () => `rank() over ${over()}`,
        () => `dense_rank() over ${over()}`,
        () => `count(*) over ${over()}`,
        () => `sum(${leaf(random.pick(['int4', 'int2']))}) over ${over()}`,
      ])()
    if (ORDERED.includes(kind)) {
      // Rows that are equal in all columns only exchange their values.
      const all = scope.map((each) => `, ${each.sql}`).join('')
      return random.pick([
        () => `${random.pick(['min', 'max'])}(${item}) over ${over()}`,
        () => `${random.pick(['lag', 'lead'])}(${item}) over (order by ${item}${all})`,
        () =>
          `${random.pick(['lag', 'lead'])}(${item}, 1, ${literal(random, kind)}) over (order by ${item}${all})`,
        () =>
          `${random.pick(['first_value', 'last_value'])}(${item}) over (partition by ${leaf(random.pick(DECLARED))} order by ${item}${random.pick(['', ' desc', ' nulls first'])})`,
        () =>
          `nth_value(${item}, 2) over (order by ${item} rows between unbounded preceding and unbounded following)`,
      ])()
    }
    return item
  }

  #orderBy(columns: readonly Column[], extra: () => string[] = () => []): string {
    const { random } = this
    const direction = () =>
      random.pick([
        '',
        '',
        '',
        ' desc',
        ' asc',
        ' nulls first',
        ' desc nulls last',
        ' desc nulls first',
      ])
    const all = columns
      .map((_, n) => ({ n, place: random.next() }))
      .sort((one, other) => one.place - other.place)
      .map(({ n }) => n)
    const names = columns.map((each) => each.name)
    const items = all.map((n) => {
      const name = names[n] ?? ''
      // A column without a name gets one that may be the same.
      const isPlain = !names.includes('') && names.filter((each) => each === name).length === 1
      return `${isPlain && random.chance(0.4) ? name : String(n + 1)}${direction()}`
    })
    return ` order by ${[...extra().map((each) => `${each}${direction()}`), ...items].join(', ')}`
  }

  #limit(): string {
    const { random } = this
    return random.weighted([
      [6, ''],
      [1, ` limit ${1 + random.below(6)}`],
      [0.5, ` limit ${1 + random.below(6)} offset ${random.below(3)}`],
      [0.3, ` offset ${random.below(3)}`],
      [0.2, ` fetch first ${1 + random.below(3)} rows only`],
    ])
  }

  /** A query. Named columns have names that are used once. */
  query(
    depth: number,
    outer: readonly Visible[],
    { isNamed, kinds }: { isNamed: boolean; kinds?: readonly Kind[] },
    isTop = false,
  ): Query & { isSorted: boolean } {
    const { random } = this
    if (depth > 0 && random.chance(0.15)) return this.#setQuery(depth, outer, { isNamed, kinds })
    if (!kinds && !isNamed && random.chance(0.1)) return this.#starQuery(depth)
    const form = random.weighted([
      [6, 'plain'],
      [3, 'grouped'],
      [1.5, 'distinct'],
      [0.7, 'distinct on'],
      [1, 'window'],
      [0.8, 'aggregate'],
    ] as const)
    const { sql: from, scope: local, relations } = this.#from(depth, outer)
    const scope = [...local, ...outer]
    const where = random.chance(0.5) ? ` where ${this.condition(scope, depth)}` : ''
    const wanted =
      kinds ??
      Array.from({ length: 1 + random.below(4) }, () =>
        random.chance(0.65) ? random.pick(DECLARED) : random.pick(KINDS),
      )
    const nameOf = () => (isNamed || random.chance(0.5) ? this.#name('c') : '')
    const item = (sql: string, kind: Kind) => {
      const name = nameOf()
      return {
        sql: name === '' ? sql : `${sql}${random.pick([' as', ' as', ''])} ${name}`,
        name,
        kind,
        bare: sql,
      }
    }
    type Item = ReturnType<typeof item>
    const finish = (
      head: string,
      items: readonly Item[],
      tail: string,
      extra: () => string[] = () => [],
    ): Query & { isSorted: boolean } => {
      const columns = items.map(({ name, kind }) => ({ name, kind }))
      const isSorted = isTop ? random.chance(0.85) : random.chance(0.3)
      const order = isSorted ? this.#orderBy(columns, extra) + this.#limit() : ''
      return {
        sql: `select ${head}${items.map((each) => each.sql).join(', ')} from ${from}${tail}${order}`,
        columns,
        isSorted,
      }
    }
    switch (form) {
      case 'plain': {
        const items = wanted.map((kind) => item(this.expression(kind, scope, depth), kind))
        // No other expression uses its type.
        if (isTop && random.chance(0.1)) items.push(item(this.#array(local), 'text[]'))
        if (!isNamed && !kinds && random.chance(0.1)) {
          const relation = random.pick(relations)
          items.unshift(
            ...relation.columns.map((each, n) => ({
              sql: n === 0 ? `${relation.alias}.*` : '',
              bare: '',
              ...each,
            })),
          )
          const columns = items.map(({ name, kind }) => ({ name, kind }))
          return {
            sql: `select ${items
              .filter((each) => each.sql !== '')
              .map((each) => each.sql)
              .join(', ')} from ${from}${where}${this.#orderBy(columns)}${this.#limit()}`,
            columns,
            isSorted: true,
          }
        }
        return finish('', items, where, () =>
          random.chance(0.4) ? [this.#sortable(scope, depth)] : [],
        )
      }
      case 'distinct': {
        const items = wanted.map((kind) => item(this.expression(kind, scope, depth), kind))
        return finish('distinct ', items, where, () =>
          random.chance(0.2)
            ? [random.pick(items).bare].filter(
                (each) =>
                  !/^[$'(]?-?[\d']/.test(each) &&
                  !each.includes('null') &&
                  !each.includes('select'),
              )
            : [],
        )
      }
      case 'distinct on': {
        const kind = random.pick(DECLARED)
        const key = this.#leaf(kind, local)
        const items = [
          item(key, kind),
          ...wanted.map((kind) => item(this.expression(kind, scope, depth), kind)),
        ]
        if (kinds) items.shift()
        const columns = items.map(({ name, kind }) => ({ name, kind }))
        if (/^[$'(\d-]/.test(key) || /^(cast|null)/.test(key)) return finish('', items, where)
        return {
          sql: `select distinct on (${key}) ${items.map((each) => each.sql).join(', ')} from ${from}${where} order by ${key}${random.pick(['', ' desc', ' nulls first'])}, ${columns.map((_, n) => n + 1).join(', ')}${this.#limit()}`,
          columns,
          isSorted: true,
        }
      }
      case 'window': {
        const isNamedWindow = random.chance(0.3)
        const name = this.#name('w')
        const window = isNamedWindow
          ? ` window ${name} as (order by ${this.#leaf(random.pick(DECLARED), local)}${random.pick(['', ' desc'])})`
          : ''
        const items = wanted.map((kind) =>
          item(
            random.chance(0.7)
              ? this.#window(kind, local, isNamedWindow ? [name] : [])
              : this.expression(kind, scope, depth),
            kind,
          ),
        )
        return finish('', items, `${where}${window}`)
      }
      case 'aggregate': {
        const items = wanted.map((kind) => item(this.#aggregate(kind, local, depth), kind))
        const having = random.chance(0.1) ? ` having count(*) > ${random.below(3)}` : ''
        return finish('', items, `${where}${having}`)
      }
      case 'grouped': {
        const keys = Array.from({ length: 1 + random.below(3) }, () => {
          const kind = random.chance(0.7) ? random.pick(DECLARED) : random.pick(KINDS)
          const columns = local.filter((each) => each.kind === kind)
          return columns.length > 0 && random.chance(0.75)
            ? { kind, sql: random.pick(columns).sql, isColumn: true }
            : { kind, sql: this.expression(kind, local, 1), isColumn: false }
        })
          .filter(({ sql }) => /\b[a-z]+\d+\.[a-z]/.test(sql) && !sql.includes('select'))
          // PostgreSQL tells equal columns of grouping sets apart by their positions.
          .filter(({ sql }, n, all) => all.findIndex((each) => each.sql === sql) === n)
        const grouped: Visible[] = keys.filter((each) => each.isColumn)
        const items = wanted.map((kind) => {
          const fitting = keys.filter((each) => each.kind === kind)
          if (fitting.length > 0 && random.chance(0.6)) return item(random.pick(fitting).sql, kind)
          if (random.chance(0.3) && grouped.length > 0)
            return item(this.expression(kind, grouped, 1), kind)
          return item(this.#aggregate(kind, local, depth), kind)
        })
        const byPosition: string[] = []
        if (!kinds) {
          for (const key of keys) {
            if (!random.chance(0.6)) byPosition.push(key.sql)
            else {
              const shown = item(key.sql, key.kind)
              items.push(shown)
              byPosition.push(
                random.pick([
                  key.sql,
                  String(items.length),
                  shown.name !== '' ? shown.name : key.sql,
                ]),
              )
            }
          }
        } else byPosition.push(...keys.map((each) => each.sql))
        if (byPosition.length === 0)
          return finish(
            '',
            wanted.map((kind) => item(this.#aggregate(kind, local, depth), kind)),
            where,
          )
        const list = byPosition.join(', ')
        // PostgreSQL mixes up expressions of grouping sets that it can calculate beforehand.
        const sets = keys.some((each) => !each.isColumn)
          ? list
          : random.weighted([
              [6, list],
              [0.6, `rollup (${list})`],
              [0.4, `cube (${list})`],
              [0.6, `grouping sets ((${list}), (${byPosition[0]}), ())`],
              [0.3, `rollup ((${list}))`],
            ])
        const having = random.chance(0.3)
          ? ` having ${random.pick([
              () => `count(*) ${random.pick(['>', '<='])} ${random.below(4)}`,
              () => this.condition(grouped, 0),
              () => {
                const kind = random.pick(DECLARED)
                return `${this.#aggregate(kind, local, 0)} ${random.pick(['<', '>', '='])} ${this.#untyped(kind)}`
              },
            ])()}`
          : ''
        return finish('', items, `${where} group by ${sets}${having}`, () =>
          random.chance(0.3)
            ? [
                random.pick([
                  () => this.#aggregate(random.pick(DECLARED), local, 0),
                  () => random.pick(keys).sql,
                ])(),
              ]
            : [],
        )
      }
    }
  }

  /** An array, whose type is that of its values. */
  #array(scope: readonly Visible[]): string {
    return `array[${this.#leaf(this.random.pick(SORTED_ALIKE), scope)}]`
  }

  #sortable(scope: readonly Visible[], depth: number): string {
    const sql = this.expression(this.random.pick(DECLARED), scope, depth)
    // A number would be a position.
    return /^\(?-?\d+\)?$/.test(sql) || /^'/.test(sql) ? `coalesce(${sql}, null)` : sql
  }

  #starQuery(depth: number): Query & { isSorted: boolean } {
    const { sql, scope, star } = this.#from(depth, [])
    const columns = star ?? []
    const where = this.random.chance(0.5) ? ` where ${this.condition(scope, depth)}` : ''
    return {
      sql: `select * from ${sql}${where}${this.#orderBy(columns)}${this.#limit()}`,
      columns,
      isSorted: true,
    }
  }

  #setQuery(
    depth: number,
    outer: readonly Visible[],
    { isNamed, kinds }: { isNamed: boolean; kinds?: readonly Kind[] | undefined },
  ): Query & { isSorted: boolean } {
    const { random } = this
    const wanted =
      kinds ??
      Array.from({ length: 1 + random.below(3) }, () =>
        random.chance(0.7) ? random.pick(DECLARED) : random.pick(KINDS),
      )
    const left = this.query(depth - 1, outer, { isNamed, kinds: wanted })
    // Numbers of other sizes make the wider type.
    const wider = wanted.map((kind) => (random.chance(0.2) && kind === 'int4' ? 'int2' : kind))
    const right = this.query(depth - 1, outer, { isNamed: false, kinds: wider })
    const operator = random.pick([
      'union',
      'union all',
      'intersect',
      'except',
      'except all',
      'union',
    ])
    const wrap = (query: Query) => `(${query.sql})`
    const isSorted = random.chance(0.6)
    const order = isSorted ? this.#orderBy(left.columns) + this.#limit() : ''
    return {
      sql: `${wrap(left)} ${operator} ${wrap(right)}${order}`,
      columns: left.columns,
      isSorted,
    }
  }

  /** `with` and its queries, which are in scope from then on. */
  #with(depth: number, { writes }: { writes: boolean }): string {
    const { random } = this
    const parts = Array.from({ length: 1 + random.below(2) }, () => {
      const name = this.#name('with')
      const relation = (columns: readonly Column[], sql: string, list = '') => {
        this.#shared.push({ sql: name, alias: name, columns })
        return `${name}${list} as ${random.pick(['', '', 'materialized ', 'not materialized '])}(${sql})`
      }
      if (writes && random.chance(0.5)) {
        const write = this.write(0, { returns: true })
        if (write.columns.length > 0) {
          this.#shared.push({ sql: name, alias: name, columns: write.columns })
          return `${name} as (${write.sql})`
        }
      }
      if (random.chance(0.2)) {
        const kind = random.pick(DECLARED)
        const { name: from, columns } = random.pick(
          TABLES.filter((each) => each.columns.some((column) => column.kind === kind)),
        )
        const column = random.pick(columns.filter((each) => each.kind === kind)).name
        const [n, k] = [this.#name('n'), this.#name('k')]
        this.#shared.push({
          sql: name,
          alias: name,
          columns: [
            { name: n, kind: 'int4' },
            { name: k, kind },
          ],
        })
        return `${name}(${n}, ${k}) as (select 1, ${column} from ${from} where ${column} > ${this.#untyped(kind)} union ${random.pick(['', 'all '])}select ${name}.${n} + 1, ${random.pick([`${name}.${k}`, `x.${column}`])} from ${name} join ${from} x on x.${column} = ${name}.${k} where ${name}.${n} < 3)`
      }
      const query = this.query(depth - 1, [], { isNamed: true })
      if (random.chance(0.3)) {
        const columns = query.columns.map((each) => ({ ...each, name: this.#name('k') }))
        return relation(columns, query.sql, `(${columns.map((each) => each.name).join(', ')})`)
      }
      return relation(query.columns, query.sql)
    })
    return `with recursive ${parts.join(', ')} `.replace(/^with recursive (?!.*union)/s, 'with ')
  }

  select(): RandomStatement {
    const { random } = this
    const depth = random.weighted([
      [3, 0],
      [4, 1],
      [3, 2],
    ])
    const head =
      depth > 0 && random.chance(0.2) ? this.#with(depth, { writes: random.chance(0.15) }) : ''
    const { sql, isSorted } = this.query(depth, [], { isNamed: random.chance(0.3) }, true)
    return { sql: `${head}${sql}`, values: this.values, isSorted, writes: [...this.writes] }
  }

  /** A statement that writes a table that none before has written. */
  write(depth: number, { returns }: { returns: boolean }): Query {
    const { random } = this
    const target = random.pick(
      TABLES.filter(
        ({ name }) => !this.writes.has(name) && (name !== 'authors' || this.writes.size === 0),
      ),
    )
    this.writes.add(target.name)
    const own: Visible[] = target.columns.map(({ name, kind }) => ({
      sql: `${target.name}.${name}`,
      kind,
    }))
    const returning = (scope: readonly Visible[]): { sql: string; columns: readonly Column[] } => {
      if (!returns && random.chance(0.2)) return { sql: '', columns: [] }
      if (random.chance(0.25))
        return { sql: ` returning ${target.name}.*`, columns: target.columns }
      const kinds = Array.from({ length: 1 + random.below(4) }, () =>
        random.chance(0.7) ? random.pick(DECLARED) : random.pick(KINDS),
      )
      const columns = kinds.map((kind) => ({ name: this.#name('c'), kind }))
      const items = columns.map(({ name, kind }) => {
        const columnsOf = scope.filter((each) => each.kind === kind)
        const sql =
          columnsOf.length > 0 && random.chance(0.5)
            ? random.pick(columnsOf).sql
            : this.#flat(kind, scope, depth)
        return returns || random.chance(0.6) ? `${sql} as ${name}` : sql
      })
      return { sql: ` returning ${items.join(', ')}`, columns }
    }
    switch (
      random.weighted([
        [3, 'insert'],
        [4, 'update'],
        [1.5, 'delete'],
      ] as const)
    ) {
      case 'insert': {
        const columns = target.columns.filter(
          (each) =>
            each.name === 'id' || REQUIRED.has(`${target.name}.${each.name}`) || random.chance(0.5),
        )
        const number = 40 + random.below(1000)
        const valueFor = (column: Column, n: number) =>
          column.name === 'id' || column.name === 'author' || column.name === 'book'
            ? storedValue(random, { name: target.name, column, number: number + n })
            : random.weighted<() => string>([
                [
                  2,
                  () =>
                    REQUIRED.has(`${target.name}.${column.name}`)
                      ? literal(random, column.kind)
                      : this.#untyped(column.kind),
                ],
                [
                  1,
                  () =>
                    this.#assigned(target, column, () =>
                      this.expression(column.kind, [], depth + 1),
                    ),
                ],
                [REQUIRED.has(`${target.name}.${column.name}`) ? 0 : 0.2, () => 'default'],
              ])()
        const list = columns.map((each) => each.name).join(', ')
        if (random.chance(0.3)) {
          const relation = this.#tableRelation(random.pick(TABLES))
          const [sql, scope] = [relation.sql, this.#visible(relation)]
          const items = columns.map((column) =>
            column.name === 'id' || column.name === 'author' || column.name === 'book'
              ? storedValue(random, { name: target.name, column, number })
              : this.#assigned(target, column, () =>
                  this.expression(column.kind, scope, depth + 1),
                ),
          )
          const result = returning(own)
          return {
            sql: `insert into ${target.name} (${list}) select ${items.map((each, n) => (columns[n]?.kind === 'uuid' && each.startsWith("'") ? `${each}::uuid` : each)).join(', ')} from ${sql}${random.chance(0.5) ? ` where ${this.condition(scope, depth)}` : ''} order by ${relation.alias}.id limit 1${result.sql}`,
            columns: result.columns,
          }
        }
        const rows = Array.from(
          { length: 1 + random.below(2) },
          (_, n) => `(${columns.map((column) => valueFor(column, n)).join(', ')})`,
        )
        let conflict = ''
        if (random.chance(0.3)) {
          const existing = storedValue(random, {
            name: target.name,
            column: target.columns[0] as Column,
            number: random.below(4),
          })
          rows.splice(
            0,
            rows.length,
            `(${columns.map((column) => (column.name === 'id' ? existing : valueFor(column, 0))).join(', ')})`,
          )
          const column = random.pick(
            columns
              .filter(
                (each) => each.name !== 'author' && each.name !== 'book' && each.name !== 'id',
              )
              .concat(columns),
          )
          conflict =
            random.chance(0.2) || column.name === 'id'
              ? ' on conflict (id) do nothing'
              : ` on conflict (id) do update set ${column.name} = ${this.#assigned(target, column, random.pick([() => `excluded.${column.name}`, () => `coalesce(excluded.${column.name}, ${target.name}.${column.name})`, () => this.#flat(column.kind, [...own, { sql: `excluded.${column.name}`, kind: column.kind }], depth)]))}`
        }
        const result = returning(own)
        return {
          sql: `insert into ${target.name} (${list}) values ${rows.join(', ')}${conflict}${result.sql}`,
          columns: result.columns,
        }
      }
      case 'update': {
        const set = random.some(
          target.columns.filter((each) => !['id', 'author', 'book'].includes(each.name)),
          0.25,
        )
        const other = random.chance(0.3)
          ? this.#tableRelation(random.pick(TABLES.filter((each) => each.name !== target.name)))
          : null
        const scope = other === null ? own : [...own, ...this.#visible(other)]
        const assignments = set.map((column) => {
          const value =
            random.chance(0.3) && !REQUIRED.has(`${target.name}.${column.name}`)
              ? this.#untyped(column.kind)
              : this.#assigned(target, column, () =>
                  this.expression(column.kind, other === null ? scope : own, depth + 1),
                )
          return `${column.name} = ${value}`
        })
        // At most one row of the other table, so that the outcome is defined.
        const where =
          other === null
            ? random.chance(0.8)
              ? ` where ${this.condition(own, depth + 1)}`
              : ''
            : ` where ${other.alias}.id = ${this.#idOf(other)}${random.chance(0.6) ? ` and ${this.condition(scope, depth + 1)}` : ''}`
        const result = returning(scope)
        return {
          sql: `update ${target.name} set ${assignments.join(', ')}${other === null ? '' : ` from ${other.sql}`}${where}${result.sql}`,
          columns: result.columns,
        }
      }
      case 'delete': {
        const other = random.chance(0.3)
          ? this.#tableRelation(random.pick(TABLES.filter((each) => each.name !== target.name)))
          : null
        const scope = other === null ? own : [...own, ...this.#visible(other)]
        const where =
          other === null
            ? ` where ${this.condition(own, depth + 1)}`
            : ` where ${other.alias}.id = ${this.#idOf(other)} and ${this.condition(scope, depth + 1)}`
        const result = returning(scope)
        return {
          sql: `delete from ${target.name}${other === null ? '' : ` using ${other.sql}`}${where}${result.sql}`,
          columns: result.columns,
        }
      }
    }
  }

  /** An expression without queries. */
  #flat(kind: Kind, scope: readonly Visible[], depth: number): string {
    for (;;) {
      const count = this.values.length
      const sql = this.expression(kind, scope, Math.min(depth + 1, 2))
      if (!sql.includes('select')) return sql
      this.values.length = count
    }
  }

  #idOf({ columns }: Relation): string {
    const [id] = columns
    return storedValue(this.random, {
      name: '',
      column: { name: 'id', kind: id?.kind ?? 'int4' },
      number: this.random.below(4),
    })
  }

  #assigned({ name }: Table, column: Column, write: () => string): string {
    if (CONSTANT.has(column.name)) return literal(this.random, column.kind)
    const sql = write()
    return REQUIRED.has(`${name}.${column.name}`)
      ? `coalesce(${sql}, ${literal(this.random, column.kind)})`
      : sql
  }

  writeStatement(): RandomStatement {
    const { random } = this
    const { sql } = this.write(random.below(2), { returns: false })
    return { sql, values: this.values, isSorted: false, writes: [...this.writes] }
  }
}

export function randomStatement(random: Random): RandomStatement {
  const generator = new Generator(random)
  const { sql, values, ...rest } = random.chance(0.75)
    ? generator.select()
    : generator.writeStatement()
  // Some expressions were not chosen after all.
  const used = [...new Set(sql.match(/\$\d+/g) ?? [])]
  return {
    ...rest,
    sql: sql.replace(/\$\d+/g, (name) => `$${used.indexOf(name) + 1}`),
    values: used.map((name) => values[Number(name.slice(1)) - 1] ?? null),
  }
}
