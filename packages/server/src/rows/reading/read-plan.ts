import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import { Fault } from '../columns/fault.js'
import { type FileForm, type FileRecord, parseFiles } from '../columns/file-value.js'
import {
  decodeField,
  decodeFields,
  type ProjectedField,
  type Projection,
} from '../columns/projection.js'
import { isFaults, type TableCodec } from '../columns/table-codec.js'
import type { Layout } from '../layout/layout.js'
import { guardRelation } from '../running/guard.js'
import { joinVisible } from './arms.js'

/** How a branch's tables are found while columns are resolved through links. */
export interface TableLookup {
  readonly layout: Layout
  tableById(tableId: number): TableCodec | undefined
}

/** Which parts of a record's metadata an answer holds, and under which name. */
export interface MetadataForm {
  readonly key: 'service' | 'xata'
  /** How files are linked to. */
  readonly files?: FileForm
}

/**
 * What to read of a record and how to write it as JSON: own columns, and records that links lead to,
 * each of them a plan of its own.
 */
export interface ReadPlan {
  readonly codec: TableCodec
  readonly projection: Projection
  readonly links: readonly LinkPlan[]
  /** Position of this record's first text in a row. */
  readonly offset: number
  /** Asked for by name; only answers that hold nothing else care. */
  readonly wantsId: boolean
  readonly wantsMetadata: boolean
}

interface LinkPlan {
  /** Index into the physical columns. */
  readonly column: number
  /** Position of the link itself in the texts of the projection. */
  readonly position: number
  readonly plan: ReadPlan
}

/** These come before the columns. */
const METADATA_NAMES = [sql`id`, sql`version`, sql`created_at`, sql`updated_at`] as const
const METADATA_COUNT = METADATA_NAMES.length
const METADATA_PATHS: ReadonlySet<string> = new Set(['version', 'createdAt', 'updatedAt'])

/** How many records a path may lead through. */
const LINK_DEPTH_MAX = 10

/** Says why columns are refused without looking at what they name: there are too many, or too long ones. */
export function refuseColumns(columns: readonly string[]): Fault | undefined {
  const { columnsMax, pathLengthMax } = QUERY_LIMITS
  if (columns.length > columnsMax) {
    return new Fault(`more than ${columnsMax} columns cannot be named at once`)
  }
  return columns.some((path) => path.length > pathLengthMax)
    ? new Fault(`the name of a column must not have more than ${pathLengthMax} characters`)
    : undefined
}

const NOTHING = { projection: { columns: [], fields: [] }, links: [] } as const

/** Resolves `columns` of a request. `*` alone stands for all own columns. */
export function planRead(
  lookup: TableLookup,
  codec: TableCodec,
  columns: readonly string[],
): ReadPlan | Fault[] {
  const { valuesMax, relationsMax } = QUERY_LIMITS
  const faults: Fault[] = []
  let position = 0
  let relations = 0

  function plan(at: TableCodec, paths: readonly string[], prefix: string, depth: number): ReadPlan {
    const offset = position
    const own: string[] = []
    const linked = new Map<string, string[]>()
    let wantsId = false
    let wantsMetadata = false
    for (const path of new Set(paths)) {
      const names = path.split('.')
      if (path === '*' && depth === 0) {
        wantsId = true
        wantsMetadata = true
      }
      const link = linkIn(at, names)
      if (path === 'id') wantsId = true
      else if (isMetadata(names)) wantsMetadata = true
      else if (link === undefined) own.push(path)
      else {
        // A link that is named without a path is expanded in full; `*` leaves links as they are.
        const inner = linked.get(link.path)
        if (inner === undefined) linked.set(link.path, [link.rest || '*'])
        else inner.push(link.rest || '*')
      }
    }
    relations += linked.size
    if (relations > relationsMax) return { codec: at, ...NOTHING, offset, wantsId, wantsMetadata }
    const projection = project(at, [...own, ...linked.keys()], prefix)
    position += METADATA_COUNT + projection.columns.length
    const links = [...linked].flatMap(([path, inner]): LinkPlan[] => {
      const column = at.indexes.get(path) ?? -1
      const tableId = at.physical[column]?.column.link?.tableId ?? -1
      const target = lookup.tableById(tableId)
      if (target === undefined || depth === LINK_DEPTH_MAX) {
        faults.push(new Fault(`column [${prefix}${path}]: cannot be expanded`))
        return []
      }
      const linkPlan = plan(target, inner, `${prefix}${path}.`, depth + 1)
      return [{ column, position: projection.columns.indexOf(column), plan: linkPlan }]
    })
    return { codec: at, projection, links, offset, wantsId, wantsMetadata }
  }

  function project(at: TableCodec, paths: readonly string[], prefix: string): Projection {
    const result = at.project(paths)
    if (!isFaults(result)) return result
    for (const { message } of result) {
      faults.push(new Fault(message.replace('column [', () => `column [${prefix}`)))
    }
    return NOTHING.projection
  }

  const root = plan(codec, columns, '', 0)
  if (relations > relationsMax) {
    return [new Fault(`more than ${relationsMax} links cannot be followed at once`)]
  }
  if (position > valuesMax) {
    faults.push(new Fault(`more than ${valuesMax} values of a record cannot be read at once`))
  }
  return faults.length > 0 ? faults : root
}

function isMetadata([first, ...rest]: readonly string[]): boolean {
  if (first !== 'xata' && first !== 'service') return false
  return (
    rest.length === 0 || (rest.length === 1 && METADATA_PATHS.has(rest[0] ?? '')) || rest[0] === '*'
  )
}

/** The first link that a path meets, be it inside an object, and what follows it. */
function linkIn(
  codec: TableCodec,
  names: readonly string[],
): { path: string; rest: string } | undefined {
  for (let length = 1; length <= names.length; length++) {
    const path = names.slice(0, length).join('.')
    const column = codec.physical[codec.indexes.get(path) ?? -1]?.column
    if (column === undefined) return undefined
    if (column.type === 'link') return { path, rest: names.slice(length).join('.') }
  }
  return undefined
}

const NO_TABLES: readonly number[] = []

/** Ids of the tables that a plan reads through links. */
export function linkedTables({ links }: ReadPlan): readonly number[] {
  if (links.length === 0) return NO_TABLES
  return links.flatMap(({ plan }) => [plan.codec.table.id, ...linkedTables(plan)])
}

/** Reads the record of one id (slot 0). */
export function compileReadOne(lookup: TableLookup, plan: ReadPlan): Statement {
  return compileStatement(readFrom(lookup, plan, sql`(select ${slot(0)}::text as id) k`))
}

/** The same with the guard built in (its values follow the id). */
export function compileGuardedRead(lookup: TableLookup, plan: ReadPlan): Statement {
  const source = sql`${guardRelation(1)} cross join (select ${slot(0)}::text as id) k`
  return compileStatement(readFrom(lookup, plan, source))
}

/** Reads the records of many ids (slot 0, an array); ids without a record give no row. */
export function compileReadMany(lookup: TableLookup, plan: ReadPlan): Statement {
  return compileStatement(readFrom(lookup, plan, sql`unnest(${slot(0)}::text[]) as k (id)`))
}

function readFrom(lookup: TableLookup, plan: ReadPlan, source: Sql): Sql {
  const alias = ident('r0')
  const main = joinVisible(lookup.layout, plan.codec, { id: sql`k.id`, alias })
  const { selected, joins } = selectPlan(lookup, plan, {
    alias,
    column: (index) => sql`${alias}.${ident(plan.codec.physical[index]?.physicalName ?? '')}`,
  })
  return sql`select ${join(selected, ', ')} from ${source} ${main} ${joins}`
}

/** The record that a plan starts from, in a statement that has it under an alias. */
export interface PlanRoot {
  readonly alias: Sql
  column(index: number): Sql
}

/** What a plan selects, and the joins that its links take. */
export function selectPlan(
  lookup: TableLookup,
  plan: ReadPlan,
  root: PlanRoot,
): { selected: Sql[]; joins: Sql } {
  const own = selectOwn(plan, root)
  const linked = selectLinked(lookup, plan, (position) => own[position] ?? empty)
  return { selected: [...own, ...linked.selected], joins: linked.joins }
}

/** The record that a plan starts from, without those that its links lead to. */
export function selectOwn({ codec, projection }: ReadPlan, { alias, column }: PlanRoot): Sql[] {
  return [
    ...METADATA_NAMES.map((name) => sql`${alias}.${name}`),
    ...projection.columns.map((index) => selectColumn(codec, index, column(index))),
  ]
}

/**
 * The records that the links of a plan lead to. `textOf` gives what `selectOwn` selects, by position.
 *
 * Each record is an array of texts that a subquery finds by its id. As joins of one query, links would
 * be put into every order by PostgreSQL: to plan 64 of them took it seconds. They should be looked up
 * when it is known which rows there are, not for every row that is sorted.
 */
export function selectLinked(
  lookup: TableLookup,
  plan: ReadPlan,
  textOf: (position: number) => Sql,
): { selected: Sql[]; joins: Sql } {
  const selected: Sql[] = []
  /** By the number of links that lead there. */
  const levels: Sql[][] = []

  function add(node: ReadPlan, textAt: (position: number) => Sql, depth: number): void {
    for (const link of node.links) {
      const level = levels[depth] ?? []
      levels[depth] = level
      const name = sql`${ident(`links_${depth}`)}.${ident(`link_${level.length}`)}`
      const id = textAt(METADATA_COUNT + link.position)
      level.push(sql`(${linkedSql(lookup, link.plan, id)}) as ${ident(`link_${level.length}`)}`)
      const linkedText = (position: number) => sql`${name}[${raw(String(position + 1))}]`
      const count = countOwn(link.plan)
      for (let position = 0; position < count; position++) selected.push(linkedText(position))
      add(link.plan, linkedText, depth + 1)
    }
  }

  add(plan, textOf, 0)
  // Without the offset PostgreSQL would look a record up once for each of its values.
  const joins = levels.map(
    (links, depth) =>
      sql` cross join lateral (select ${join(links, ', ')} offset 0) ${ident(`links_${depth}`)}`,
  )
  return { selected, joins: join([empty, ...joins], '') }
}

function linkedSql({ layout }: TableLookup, plan: ReadPlan, id: Sql): Sql {
  const alias = ident('linked')
  const { codec, projection } = plan
  const own = selectOwn(plan, {
    alias,
    column: (index) => sql`${alias}.${ident(codec.physical[index]?.physicalName ?? '')}`,
  })
  const texts = own.map((value) => sql`${value}::text`)
  const columns = new Set(projection.columns)
  return sql`
    select array[${join(texts, ', ')}] from (select ${id} as id) k
    ${joinVisible(layout, codec, { id: sql`k.id`, alias, columns })}`
}

/** How many texts `selectOwn` gives. */
export function countOwn({ projection }: ReadPlan): number {
  return METADATA_COUNT + projection.columns.length
}

/** How many texts of a row belong to the record and to those its links lead to. */
export function countTexts({ projection, links }: ReadPlan): number {
  return links.reduce(
    (count, link) => count + countTexts(link.plan),
    METADATA_COUNT + projection.columns.length,
  )
}

function selectColumn(codec: TableCodec, index: number, value: Sql): Sql {
  const column = codec.physical[index]
  if (column === undefined) throw new Error('a projection must be of its own table')
  return raw(COLUMN_TYPE_ENTRIES[column.column.type].select(value.text))
}

type Row = readonly (string | null)[]

/** A record as JSON text, with its id and metadata. */
export function writeRecord(plan: ReadPlan, row: Row, form: MetadataForm): string {
  return `{${writeMembers(plan, row, form, { id: true, metadata: true })}}`
}

/** The same with more members of its metadata, `"score":1.5`. */
export function writeFound(plan: ReadPlan, row: Row, form: MetadataForm, more: string): string {
  const members = writeMembers(plan, row, form, { id: true, metadata: false })
  const metadata = writeMetadata(row, plan.offset, form)
  return `{${members},${metadata.slice(0, -1)},${more}}}`
}

/** Only what was asked for, as `get` in a transaction answers. */
export function writeSelection(plan: ReadPlan, row: Row, form: MetadataForm): string {
  const { wantsId, wantsMetadata } = plan
  return `{${writeMembers(plan, row, form, { id: wantsId, metadata: wantsMetadata })}}`
}

function writeMembers(
  plan: ReadPlan,
  row: Row,
  form: MetadataForm,
  include: { id: boolean; metadata: boolean },
): string {
  const { offset, projection } = plan
  const members: string[] = []
  if (include.id) members.push(`"id":"${row[offset]}"`)
  const start = offset + METADATA_COUNT
  const texts =
    start === METADATA_COUNT && plan.links.length === 0
      ? row.slice(start)
      : row.slice(start, start + projection.columns.length)
  const own =
    plan.links.length === 0
      ? decodeFields(projection.fields, texts, fileRecord(row[offset], form))
      : writeFields(
          projection.fields,
          texts,
          new Map(plan.links.map((link) => [link.position, link])),
        )
  if (own !== '') members.push(own)
  if (include.metadata) members.push(writeMetadata(row, offset, form))
  return members.join(',')

  /** As `decodeFields` does, with the records that links lead to. */
  function writeFields(
    fields: Projection['fields'],
    texts: Row,
    links: ReadonlyMap<number, LinkPlan>,
  ): string {
    const written = fields.flatMap((field): string[] => {
      const text = texts[field.position] ?? field.nullText
      if (text === undefined) return []
      const link = links.get(field.position)
      if (link !== undefined) {
        // Links are no foreign keys: a record that is gone is left out.
        if (row[link.plan.offset] === null) return []
        return [`${field.firstKey}${writeRecord(link.plan, row, form)}`]
      }
      return [
        field.nested === undefined
          ? `${field.firstKey}${decodeField(field, text, fileRecord(row[offset], form))}`
          : `${field.firstKey}{${writeFields(field.nested, texts, links)}}`,
      ]
    })
    return written.join(',')
  }
}

/** `"service":{...}` from a row whose metadata starts at the offset. */
export function writeMetadata(row: Row, offset: number, form: MetadataForm): string {
  const [, version, createdAt, updatedAt] = row.slice(offset, offset + METADATA_COUNT)
  return `"${form.key}":{"version":${version},"createdAt":"${isoTime(createdAt)}","updatedAt":"${isoTime(updatedAt)}"}`
}

/** PostgreSQL writes `2024-01-02 03:04:05.1+00`; times of records are kept to the millisecond. */
function isoTime(text: string | null | undefined): string {
  const time = text ?? ''
  const fraction = time.length > 22 ? time.slice(20, -3) : ''
  return `${time.slice(0, 10)}T${time.slice(11, 19)}.${fraction.padEnd(3, '0')}Z`
}

function fileRecord(
  recordId: string | null | undefined,
  form: MetadataForm,
): FileRecord | undefined {
  return form.files && { recordId: recordId ?? '', form: form.files }
}

/** Contents that an answer will hold: what is asked for by `base64Content`, with its size. */
export function listContents(
  plan: ReadPlan,
  rows: readonly Row[],
): { readonly sha256: string; readonly size: number }[] {
  const positions = contentPositions(plan)
  return rows.flatMap((row) =>
    positions.flatMap((position) =>
      parseFiles(row[position]).flatMap(({ sha256, size }) =>
        sha256 === undefined ? [] : [{ sha256, size }],
      ),
    ),
  )
}

export function readsContents(plan: ReadPlan): boolean {
  return contentPositions(plan).length > 0
}

/** Positions in a row of the columns whose content is asked for. */
function contentPositions(plan: ReadPlan): number[] {
  const inFields = (fields: readonly ProjectedField[]): number[] =>
    fields.flatMap((field) => [
      ...(field.file?.fields.has('base64Content')
        ? [plan.offset + METADATA_COUNT + field.position]
        : []),
      ...inFields(field.nested ?? []),
    ])
  return [
    ...inFields(plan.projection.fields),
    ...plan.links.flatMap((link) => contentPositions(link.plan)),
  ]
}

/** The text of a column of the record itself. */
export function textOf(plan: ReadPlan, row: Row, column: number): string | null {
  const position = plan.projection.columns.indexOf(column)
  return position < 0 ? null : (row[plan.offset + METADATA_COUNT + position] ?? null)
}
