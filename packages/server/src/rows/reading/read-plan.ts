import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { isMetadataKey } from '@offshoot/contract/names'
import { sql } from '../../postgres/sql.js'
import type { TextRow } from '../../postgres/statement.js'
import { Fault } from '../columns/fault.js'
import { parseFiles } from '../columns/file-value.js'
import type { ProjectedField, Projection } from '../columns/projection.js'
import { isFaults, type TableCodec } from '../columns/table-codec.js'
import type { BranchRows } from '../layout/layout.js'

/** Finds the tables of a branch while columns are resolved through links. */
export interface TableLookup {
  readonly rows: BranchRows
  tableById(tableId: number): TableCodec | undefined
}

/**
 * The columns to read of a record, and the records that its links lead to, each with a plan of its own.
 * `select-plan.ts` makes SQL of it and `record-json.ts` makes JSON of the rows.
 */
export interface ReadPlan {
  readonly codec: TableCodec
  readonly projection: Projection
  readonly links: readonly LinkPlan[]
  /** Position of this record's first text in a row. */
  readonly offset: number
  /** Whether the id was asked for by name; matters only to answers that hold nothing else. */
  readonly wantsId: boolean
  readonly wantsMetadata: boolean
}

export interface LinkPlan {
  /** Index into the physical columns. */
  readonly column: number
  /** Position of the link itself in the texts of the projection. */
  readonly position: number
  readonly plan: ReadPlan
}

/** The metadata of a record, which a row has before the columns. */
export const METADATA_NAMES = [sql`id`, sql`version`, sql`created_at`, sql`updated_at`] as const
export const METADATA_COUNT = METADATA_NAMES.length
const METADATA_PATHS: ReadonlySet<string> = new Set(['version', 'createdAt', 'updatedAt'])

/** A path may lead through this many records. */
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
  if (!isMetadataKey(first)) return false
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

/** The number of texts that a row has for the record itself. */
export function countOwn({ projection }: ReadPlan): number {
  return METADATA_COUNT + projection.columns.length
}

/** The number of texts that a row has for the record and for those its links lead to. */
export function countTexts({ projection, links }: ReadPlan): number {
  return links.reduce(
    (count, link) => count + countTexts(link.plan),
    METADATA_COUNT + projection.columns.length,
  )
}

/** File contents that an answer will hold, because `base64Content` was asked for, with their sizes. */
export function listContents(
  plan: ReadPlan,
  rows: readonly TextRow[],
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
export function textOf(plan: ReadPlan, row: TextRow, column: number): string | null {
  const position = plan.projection.columns.indexOf(column)
  return position < 0 ? null : (row[plan.offset + METADATA_COUNT + position] ?? null)
}
