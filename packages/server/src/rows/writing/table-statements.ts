import { LruMap } from '../../common/lru-map.js'
import { empty, ident, join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import type { Arithmetic } from '../columns/record-encoder.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type Heap, heapName, inheritsRows, type Layout, pastName } from '../layout/layout.js'
import { heapColumns, joinForCopy, joinVisible, selectVisible } from '../reading/arms.js'
import { guardRelation } from '../running/guard.js'

/*
 * The statements that write a table on a branch. Rows arrive as one array of texts per column. All of
 * them run behind the gate, in a serializable transaction, so what they read is what they change.
 */

/** Positions of the values that every statement takes first. */
const EPOCH = slot(0)
const IDS = slot(1)
const IF_VERSIONS = slot(2)
const FIRST_COLUMN = 3

/** What is told of each row that was written. PostgreSQL takes longer to write out times than rows. */
export type Returned = 'id' | 'metadata'

const RETURNED: Readonly<Record<Returned, readonly string[]>> = {
  id: ['id'],
  metadata: ['id', 'version', 'created_at', 'updated_at'],
}

function returning(returned: Returned, from = empty): Sql {
  return join(
    RETURNED[returned].map((name) => sql`${from}${ident(name)}`),
    ', ',
  )
}

export interface TableStatements {
  /** New ids only. An id that is taken gives no row. */
  insert(returned: Returned): Statement
  /** Takes lines of ids that nobody else can have, epochs and all columns. Returns nothing. */
  copy(): Statement
  /** One row, without arrays, and with the guard built in. Returns the metadata. */
  insertOne(): Statement
  /**
   * Whole records by id, new or replaced. A row that is not at its expected version gives none;
   * metadata ends with whether the row was there.
   */
  replace(returned: Returned): Statement
  /** The same for rows that no version is expected of. */
  replaceAny(returned: Returned): Statement
  /** Returns the ids that were there. */
  delete(): Statement
  /** The given columns (indexes into the physical ones) by id. Returns the ids. */
  update(columns: readonly number[]): Statement
  /**
   * The same for one row, with arithmetic, without arrays, and with the guard built in; an impossible
   * result gives no row.
   */
  updateOne(columns: readonly number[], arithmetic: readonly Arithmetic[]): Statement
  /** Sets the given columns to null by id, as a step of a larger change: it is no version. */
  clear(columns: readonly number[]): Statement
  /** Values of a unique column that other rows, which the branch inherits, have already. */
  inheritedValues(column: number): Statement
  /** The own row of an id, when a row that the branch inherits has its value of a column too. */
  inheritedTwin(column: number): Statement
  /** Which of the given values of a column rows of the branch have. */
  visibleValues(column: number): Statement
  /** Positions in a list of values of a column where one stands that stood before. */
  repeatedValues(column: number): Statement
}

/**
 * Statements of all tables together, bounded in number and characters: an update has one for each set of
 * columns that it changes.
 */
const compiled = new LruMap<string, Statement>(20_000, {
  weightMax: 32 * 1024 * 1024,
  weigh: (key, { text }) => key.length + text.length,
})
let tables = 0

export function compileTableStatements(
  layout: Layout,
  codec: TableCodec,
  heap: Heap,
): TableStatements {
  const { physical } = codec
  const own = heapName(heap.heapId)
  // Nothing is inherited: the table is a plain one, without tombstones.
  const isPlain = !inheritsRows(layout, codec.table.id)
  const names = physical.map((column) => ident(column.physicalName))
  const all = physical.map((_, index) => index)
  const number = ++tables

  /** `u`: the rows that were given, one per id. */
  function given(columns: readonly number[]): Sql {
    const arrays = columns.map(
      (index, position) => sql`, ${slot(FIRST_COLUMN + position)}::${elementType(index)}[]`,
    )
    const labels = columns.map((index) => sql`, ${names[index] ?? empty}`)
    return sql`
      u as (
        select * from unnest(${IDS}::text[], ${IF_VERSIONS}::bigint[]${join([empty, ...arrays], '')})
          with ordinality as u (id, if_version${join([empty, ...labels], '')}, ordinal)
      )`
  }

  /**
   * The same for one row, while the guard holds. Arrays could be of any length, so PostgreSQL would
   * make a new plan each time it sees how short they are.
   */
  const givenOne = (guardAt: number): Sql => sql`
      u as (select ${IDS}::text as id from ${guardRelation(guardAt)})`
  const valueAt = (index: number, position: number): Sql =>
    sql`${slot(FIRST_COLUMN + position)}::${raw(sqlTypeOf(index))}`

  const sqlTypeOf = (index: number): string => physical[index]?.sqlType ?? ''
  /** Arrays of arrays cannot be of different lengths, so those columns come as texts. */
  const isArray = (index: number): boolean => sqlTypeOf(index).endsWith('[]')
  const elementType = (index: number): Sql =>
    raw(isArray(index) ? 'text' : (sqlTypeOf(index).split(' collate ')[0] ?? ''))
  const cast = (index: number): Sql => {
    const name = names[index] ?? empty
    return isArray(index) ? sql`u.${name}::${raw(sqlTypeOf(index))}` : sql`u.${name}`
  }

  /** Keeps the present version of rows that are about to change, if a fork may see it. */
  function kept(rows: Sql): Sql {
    return keptFrom(sql`${own} o where o.id in (${rows})`)
  }

  /** The same for the rows `o` of a from-clause with its conditions. */
  function keptFrom(source: Sql): Sql {
    if (!layout.hasForks) return empty
    return sql`, kept as (
      insert into ${pastName(heap.heapId)} (${heapColumns(heap)}, until)
      select ${heapColumns(heap, sql`o`)}, ${EPOCH}::integer
      from ${source}
        and o.epoch < ${EPOCH}::integer
        and exists (
          select from offshoot.branches f
          where f.parent_id = ${literal(layout.branchId)}
            and f.fork_epoch >= o.epoch
        )
    )`
  }

  const columnList = (columns: readonly Sql[]) =>
    join([empty, ...columns.map((name) => sql`, ${name}`)], '')
  const written = sql`(id, version, created_at, updated_at, epoch, deleted${columnList(names)})`
  const target = sql`${own} ${written}`
  const overwrite = join(
    [
      sql`version = excluded.version, created_at = excluded.created_at`,
      sql`updated_at = excluded.updated_at, epoch = excluded.epoch, deleted = excluded.deleted`,
      ...names.map((name) => sql`${name} = excluded.${name}`),
    ],
    ', ',
  )

  const newRows = (): Sql => sql`
      insert into ${target}
      select u.id, 0, now(), now(), ${EPOCH}::integer, false${columnList(all.map(cast))}
      from u`

  function copy(): Statement {
    return compileStatement(sql`copy ${own} (id, epoch${columnList(names)}) from stdin`)
  }

  function insert(returned: Returned): Statement {
    if (isPlain) {
      return compileStatement(sql`
        with ${given(all)} ${newRows()}
        on conflict (id) do nothing
        returning ${returning(returned)}`)
    }
    // A tombstone of the branch's own gives way to the new row.
    return compileStatement(sql`
      with ${given(all)},
      seen as (
        select u.id from u ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r` })}
      )${kept(sql`select u.id from u where u.id not in (select id from seen)`)}
      ${newRows()}
      where u.id not in (select id from seen)
      on conflict (id) do update set ${overwrite} where ${own}.deleted
      returning ${returning(returned)}`)
  }

  function insertOne(): Statement {
    const values = physical.map(
      (column, index) => sql`, ${slot(FIRST_COLUMN + index)}::${raw(column.sqlType)}`,
    )
    return compileStatement(sql`
      insert into ${target}
      select ${IDS}::text, 0, now(), now(), ${EPOCH}::integer, false${join([empty, ...values], '')}
      from ${guardRelation(FIRST_COLUMN + physical.length)}
      on conflict (id) do nothing
      returning ${returning('metadata')}`)
  }

  /** Without forks and inherited rows, PostgreSQL's own way is all it takes. */
  function replaceAny(returned: Returned): Statement {
    if (!isPlain || layout.hasForks) return replace(returned)
    const isPresent = returned === 'metadata' ? sql`, xmax <> 0` : empty
    const changes = names.map((name) => sql`, ${name} = excluded.${name}`)
    return compileStatement(sql`
      with ${given(all)}
      insert into ${own} as h ${written}
      select u.id, 0, now(), now(), ${EPOCH}::integer, false${columnList(all.map(cast))}
      from u
      on conflict (id) do update
      set version = h.version + 1, updated_at = excluded.updated_at,
        epoch = excluded.epoch${join([empty, ...changes], '')}
      returning ${returning(returned)}${isPresent}`)
  }

  function replace(returned: Returned): Statement {
    const result =
      returned === 'id'
        ? sql`select id from written`
        : sql`
          select w.id, w.version, w.created_at, w.updated_at, s.id is not null
          from written w
          left join seen s on s.id = w.id`
    const accepted = sql`u.if_version is null or s.id is null or s.version = u.if_version`
    return compileStatement(sql`
      with ${given(all)},
      seen as (
        select r.id, r.version, r.created_at
        from u ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r` })}
      )${kept(sql`select u.id from u left join seen s on s.id = u.id where ${accepted}`)},
      written as (
        insert into ${target}
        select u.id, coalesce(s.version + 1, 0), coalesce(s.created_at, now()), now(),
          ${EPOCH}::integer, false${columnList(all.map(cast))}
        from u
        left join seen s on s.id = u.id
        where ${accepted}
        -- A unique value may pass from one row to the next, but not back.
        order by u.ordinal
        on conflict (id) do update set ${overwrite}
        returning ${returning('metadata')}
      )
      ${result}`)
  }

  /**
   * `values` gives the new value of each changed column from the row `r` and the input `u`;
   * `accepted` tells whether a row by its alias is as expected. What is no version of its own leaves
   * the metadata as it is.
   */
  function change(options: {
    given: Sql
    values: ReadonlyMap<number, Sql>
    accepted(alias: Sql): Sql
    returned: Returned
    isVersion?: boolean
  }): Statement {
    const { values, returned, isVersion = true } = options
    const version = isVersion ? sql`r.version + 1` : sql`r.version`
    const updatedAt = isVersion ? sql`now()` : sql`r.updated_at`
    const accepted = options.accepted(sql`r`)
    if (isPlain) {
      const changes = [...values].map(
        ([index, value]) => sql`, ${names[index] ?? empty} = ${value}`,
      )
      return compileStatement(sql`
        with ${options.given}${keptFrom(sql`u join ${own} o on o.id = u.id where ${options.accepted(sql`o`)}`)}
        update ${own} r
        set version = ${version}, updated_at = ${updatedAt},
          epoch = ${EPOCH}::integer${join([empty, ...changes], '')}
        from u
        where r.id = u.id and ${accepted}
        returning ${returning(returned, sql`r.`)}`)
    }
    const row = all.map((index) => values.get(index) ?? sql`r.${names[index] ?? empty}`)
    return compileStatement(sql`
      with ${options.given},
      seen as (
        select r.id, ${version}, r.created_at, ${updatedAt}, ${EPOCH}::integer, false${columnList(row)}
        from u ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r` })}
        where ${accepted}
      )${kept(sql`select id from seen`)}
      insert into ${target}
      select * from seen
      on conflict (id) do update set ${overwrite}
      returning ${returning(returned)}`)
  }

  /**
   * The same for one row of a branch that inherits and has no forks. An own row is not looked for: it
   * is met by conflict. Between serializable transactions, a search for a row that is not there would
   * be in conflict with all that are put near it, and a young fork has few places.
   */
  function changeOwn(options: {
    given: Sql
    values: ReadonlyMap<number, Sql>
    returned: Returned
    accepted(alias: Sql): Sql
  }): Statement {
    const { given, values, returned, accepted } = options
    const row = all.map((index) => values.get(index) ?? sql`r.${names[index] ?? empty}`)
    const changes = [...values.keys()].map((index) => {
      const name = names[index] ?? empty
      return sql`, ${name} = excluded.${name}`
    })
    return compileStatement(sql`
      with ${given}
      insert into ${own} as h ${written}
      select r.id, r.version + 1, r.created_at, now(), ${EPOCH}::integer, false${columnList(row)}
      from u ${joinForCopy(layout, codec, { id: sql`u.id`, alias: sql`r`, accepted })}
      on conflict (id) do update
      set version = h.version + 1, updated_at = excluded.updated_at,
        epoch = excluded.epoch${join([empty, ...changes], '')}
      where not h.deleted and ${accepted(sql`h`)}
      returning ${returning(returned, sql`h.`)}`)
  }

  function update(columns: readonly number[]): Statement {
    return remember(`update ${columns.join()}`, () =>
      change({
        given: given(columns),
        values: new Map(columns.map((index) => [index, cast(index)])),
        returned: 'id',
        accepted: (alias) => sql`(u.if_version is null or ${alias}.version = u.if_version)`,
      }),
    )
  }

  function updateOne(columns: readonly number[], arithmetic: readonly Arithmetic[]): Statement {
    const key = arithmetic.map(({ column, operator }) => `${column}${operator}`)
    return remember(`update one ${columns.join()} ${key.join()}`, () => {
      const operandsAt = FIRST_COLUMN + columns.length
      const given = givenOne(operandsAt + arithmetic.length)
      const resultOf = (alias: Sql, { column, operator }: Arithmetic, position: number) =>
        arithmeticValue(
          sql`${alias}.${names[column] ?? empty}`,
          operator,
          slot(operandsAt + position),
          sqlTypeOf(column),
        )
      const values = new Map([
        ...columns.map((index, position) => [index, valueAt(index, position)] as const),
        ...arithmetic.map(
          (term, position) => [term.column, resultOf(sql`r`, term, position).value] as const,
        ),
      ])
      const accepted = (alias: Sql) =>
        join(
          [
            sql`(${IF_VERSIONS}::bigint is null or ${alias}.version = ${IF_VERSIONS}::bigint)`,
            ...arithmetic.map((term, position) => resultOf(alias, term, position).fits),
          ],
          ' and ',
        )
      // The result of arithmetic depends on which row it is.
      const isSimple = !isPlain && !layout.hasForks && arithmetic.length === 0
      return (isSimple ? changeOwn : change)({
        given,
        values,
        accepted,
        returned: 'metadata',
      })
    })
  }

  function clear(columns: readonly number[]): Statement {
    return remember(`clear ${columns.join()}`, () =>
      change({
        given: given([]),
        values: new Map(columns.map((index) => [index, sql`null::${raw(sqlTypeOf(index))}`])),
        accepted: () => sql`true`,
        returned: 'id',
        isVersion: false,
      }),
    )
  }

  function remember(key: string, make: () => Statement): Statement {
    const own = `${number} ${key}`
    const known = compiled.get(own)
    if (known !== undefined) return known
    const statement = make()
    compiled.set(own, statement)
    return statement
  }

  function remove(): Statement {
    if (isPlain && !layout.hasForks) {
      return compileStatement(sql`
        delete from ${own} where id = any(${IDS}::text[]) returning id`)
    }
    if (isPlain) {
      const kept = sql`
        insert into ${pastName(heap.heapId)} (${heapColumns(heap)}, until)
        select ${heapColumns(heap)}, ${EPOCH}::integer
        from gone g
        where g.epoch < ${EPOCH}::integer
          and exists (
            select from offshoot.branches f
            where f.parent_id = ${literal(layout.branchId)} and f.fork_epoch >= g.epoch
          )`
      return compileStatement(sql`
        with gone as (delete from ${own} where id = any(${IDS}::text[]) returning *),
        kept as (${kept})
        select id from gone`)
    }
    return compileStatement(sql`
      with u as (select unnest(${IDS}::text[]) as id),
      seen as (
        select r.id, r.version, r.created_at, now() as updated_at, ${EPOCH}::integer as epoch
        from u ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r` })}
      )${kept(sql`select id from seen`)}
      insert into ${own} (id, version, created_at, updated_at, epoch, deleted)
      select id, version, created_at, updated_at, epoch, true from seen
      on conflict (id) do update
      set updated_at = excluded.updated_at, epoch = excluded.epoch, deleted = true
      returning id`)
  }

  function matchingValues(index: number, from: number): Sql {
    const column = columnAt(index)
    const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
      sql`${expressionOf(column)} = g.value::${raw(column.sqlType)}`
    return sql`
      select g.value
      from unnest(${slot(0)}::text[]) as g (value)
      where exists (${selectVisible(layout, codec, { from, where })})`
  }

  function inheritedTwin(index: number): Statement {
    const column = columnAt(index)
    const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
      sql`${expressionOf(column)} = mine.${ident(column.physicalName)}`
    return compileStatement(sql`
      select mine.id
      from ${own} mine
      where mine.id = ${slot(0)}::text
        and exists (${selectVisible(layout, codec, { from: 1, where })})`)
  }

  function repeatedValues(index: number): Statement {
    const type = raw(columnAt(index).sqlType)
    return compileStatement(sql`
      select g.ordinal - 1
      from (
        select ordinal, row_number() over (partition by value::${type} order by ordinal) as number
        from unnest(${slot(0)}::text[]) with ordinality as u (value, ordinal)
        where value is not null
      ) g
      where g.number > 1`)
  }

  function columnAt(index: number): PhysicalColumn {
    const column = physical[index]
    if (column === undefined) throw new Error('a column must be one of the table')
    return column
  }

  return {
    insert: (returned) => remember(`insert ${returned}`, () => insert(returned)),
    copy: () => remember('copy', copy),
    insertOne: () => remember('insert one', insertOne),
    replace: (returned) => remember(`replace ${returned}`, () => replace(returned)),
    replaceAny: (returned) => remember(`replace any ${returned}`, () => replaceAny(returned)),
    delete: () => remember('delete', remove),
    update,
    updateOne,
    clear,
    inheritedValues: (column) => compileStatement(sql`${matchingValues(column, 1)} limit 1`),
    inheritedTwin,
    visibleValues: (column) => compileStatement(matchingValues(column, 0)),
    repeatedValues,
  }
}

/**
 * Whole numbers are reckoned exactly and must stay what JSON carries exactly; floats are reckoned as
 * PostgreSQL does, which refuses to overflow.
 */
function arithmeticValue(
  value: Sql,
  operator: Arithmetic['operator'],
  operand: ReturnType<typeof slot>,
  sqlType: string,
): { value: Sql; fits: Sql } {
  const sign = raw(operator)
  if (sqlType !== 'bigint') {
    return {
      value: sql`(${value} ${sign} ${operand}::double precision)`,
      fits: sql`${value} is not null`,
    }
  }
  const exact = sql`(${value}::numeric ${sign} ${operand}::numeric)`
  const max = raw(String(Number.MAX_SAFE_INTEGER))
  return {
    value: sql`${exact}::bigint`,
    fits: sql`${exact} = trunc(${exact}) and ${exact} between -${max} and ${max}`,
  }
}
