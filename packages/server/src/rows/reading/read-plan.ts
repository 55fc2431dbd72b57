import { AppError } from '@offshoot/contract/errors'
import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { isMetadataKey } from '@offshoot/contract/names'
import { sql } from '../../postgres/sql.js'
import type { TextRow } from '../../postgres/statement.js'
import { Fault } from '../columns/fault.js'
import { parseFiles } from '../columns/file-value.js'
import type { ProjectedField, Projection } from '../columns/projection.js'
import { isFaults, type TableCodec } from '../columns/table-codec.js'
import type { BranchRows } from '../layout/layout.js'
import type { TableRows } from './table-rows.js'

/** Finds the tables of a branch, to resolve columns through links. */
export interface TableLookup {
  readonly rows: BranchRows
  tableById(tableId: number): TableCodec | undefined
  rowsOf(codec: TableCodec): TableRows
}

/**
 * The columns of a record to read, with a nested plan for each link to follow. `select-plan.ts` converts it
 * to SQL, and `record-json.ts` converts the rows to JSON.
 */
export interface ReadPlan {
  readonly codec: TableCodec
  readonly projection: Projection
  readonly links: readonly LinkPlan[]
  /** Position of this record's first text in a row. */
  readonly offset: number
  /** Whether the id was requested by name. Used only for `get` in transactions. */
  readonly wantsId: boolean
  readonly wantsMetadata: boolean
}

export interface LinkPlan {
  /** Position of the link itself in the texts of the projection. */
  readonly position: number
  readonly plan: ReadPlan
}

/** The metadata of a record, which precedes the columns in a row. */
export const METADATA_NAMES = [sql`id`, sql`version`, sql`created_at`, sql`updated_at`] as const
export const METADATA_COUNT = METADATA_NAMES.length
const METADATA_PATHS: ReadonlySet<string> = new Set(['version', 'createdAt', 'updatedAt'])

/** The maximum number of links in a path. */
const LINK_DEPTH_MAX = 10

/** Returns a fault if there are too many columns, or if a path is too long. Does not resolve the paths. */
export function refuseColumns(columns: readonly string[]): Fault | undefined {
  const { columnsMax, pathLengthMax } = QUERY_LIMITS
  if (columns.length > columnsMax) {
    return new Fault(`a request cannot name more than ${columnsMax} columns`)
  }
  return columns.some((path) => path.length > pathLengthMax)
    ? new Fault(`the path of a column cannot be longer than ${pathLengthMax} characters`)
    : undefined
}

const NOTHING = { projection: { columns: [], fields: [] }, links: [] } as const

/** Resolves the `columns` of a request. `*` selects all columns of the table, without following links. */
export function planRead(
  lookup: TableLookup,
  codec: TableCodec,
  columns: readonly string[],
): ReadPlan | Fault[] {
  const { valuesMax, relationsMax } = QUERY_LIMITS
  const faults: Fault[] = []
  let position = 0
  let relations = 0
  let scannedTables = 0

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
        // A link named without a further path is expanded in full. `*` does not expand links.
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
      scannedTables += lookup.rowsOf(target).armCount
      const linkPlan = plan(target, inner, `${prefix}${path}.`, depth + 1)
      return [{ position: projection.columns.indexOf(column), plan: linkPlan }]
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
    return [new Fault(`a request cannot follow more than ${relationsMax} links`)]
  }
  requireScannedTables(scannedTables)
  if (position > valuesMax) {
    faults.push(new Fault(`a request cannot read more than ${valuesMax} values of a record`))
  }
  return faults.length > 0 ? faults : root
}

/** Planning takes PostgreSQL time for each table that it could look into. */
export function requireScannedTables(count: number): void {
  const { scannedTablesMax } = QUERY_LIMITS
  if (count <= scannedTablesMax) return
  throw new AppError(
    'query_too_costly',
    `the query is too costly: it reads ${count} tables of this branch and of those it was forked from, and at most ${scannedTablesMax} are possible; follow fewer links, or search fewer tables`,
  )
}

function isMetadata([first, ...rest]: readonly string[]): boolean {
  if (!isMetadataKey(first)) return false
  return (
    rest.length === 0 || (rest.length === 1 && METADATA_PATHS.has(rest[0] ?? '')) || rest[0] === '*'
  )
}

/** Returns the first link in a path, which may be inside an object, and the rest of the path. */
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

/** Returns the ids of the tables that a plan reads through links. */
export function linkedTables({ links }: ReadPlan): readonly number[] {
  if (links.length === 0) return NO_TABLES
  return links.flatMap(({ plan }) => [plan.codec.table.id, ...linkedTables(plan)])
}

/** Returns the number of texts in a row for the record itself. */
export function countOwn({ projection }: ReadPlan): number {
  return METADATA_COUNT + projection.columns.length
}

/** Returns the number of texts in a row for the record and all linked records. */
export function countTexts({ projection, links }: ReadPlan): number {
  return links.reduce(
    (count, link) => count + countTexts(link.plan),
    METADATA_COUNT + projection.columns.length,
  )
}

/** Lists the file contents that a response must include (`base64Content`), with their sizes. */
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

/** Returns the positions in a row of file columns whose content is requested. */
function contentPositions(plan: ReadPlan): number[] {
  const inFields = (fields: readonly ProjectedField[]): number[] =>
    fields.flatMap((field) => [
      ...(field.file?.fields?.has('base64Content')
        ? [plan.offset + METADATA_COUNT + field.position]
        : []),
      ...inFields(field.nested ?? []),
    ])
  return [
    ...inFields(plan.projection.fields),
    ...plan.links.flatMap((link) => contentPositions(link.plan)),
  ]
}

/** Returns the text of a column of the record itself, or null if the plan does not read it. */
export function textOf(plan: ReadPlan, row: TextRow, column: number): string | null {
  const position = plan.projection.columns.indexOf(column)
  return position < 0 ? null : (row[plan.offset + METADATA_COUNT + position] ?? null)
}
