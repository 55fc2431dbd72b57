import type { Limits } from '@offshoot/contract/limits'
import type { Column, Constraint } from '@offshoot/contract/schema'
import { toCanonicalJson } from '../../common/write-json.js'
import { conversionFault } from '../../rows/columns/conversions.js'
import {
  listAllColumns,
  listOrigins,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import { changesOf } from './alter-column.js'
import { type ColumnChecks, checkColumn, totalWidth, widthOf } from './check-column.js'
import { dryRunOptions } from './edit-options.js'
import { withLinkedBits, withoutBits } from './id-bits.js'
import { listLinks } from './list-links.js'
import {
  findSame,
  isMadeOf,
  type MergeStrategy,
  mergeDefinitions,
  type Take,
  withDefinitionOf,
} from './merge-definitions.js'
import { withMergedTypes } from './merge-enum-types.js'
import { settleUses, type TableParts } from './merge-uses.js'
import { orderTables } from './order-tables.js'
import { toPublicColumn } from './public-schema.js'
import { rememberIds } from './remembered-ids.js'
import {
  columnIdsOf,
  columnIdsUsedBy,
  enumFault,
  type StoredConstraint,
  toPublicConstraint,
  withColumnIds,
} from './store-constraint.js'

/** The options of a merge for one table. */
export interface TableRule {
  readonly strategy: MergeStrategy
  /** `skip` leaves out the table; `schema` merges its schema, but not its rows. */
  readonly mode: 'merge' | 'skip' | 'schema'
}

export interface SchemaConflict {
  /** The id of the table, column or constraint that a decision is about. undefined: none decides the conflict. */
  readonly id?: number
  readonly table: string
  readonly column?: string
  readonly constraint?: string
  readonly message: string
  /** The strategies that decide the conflict. */
  readonly takes: readonly Take[]
  /**
   * For a table or column that one side removed: the records that the other side has changed there
   * since the base.
   */
  readonly records?: number
  /** For a column or constraint that both sides changed: its definition on the target. Null: it is not there. */
  readonly ours?: Column | Constraint | null
  /** For a column or constraint that both sides changed: its definition on the merged branch. */
  readonly theirs?: Column | Constraint | null
}

interface MergedSchema {
  readonly schema: StoredSchema
  readonly conflicts: readonly SchemaConflict[]
}

interface SchemaSides {
  readonly base: StoredSchema
  readonly ours: StoredSchema
  readonly theirs: StoredSchema
}

interface Named {
  readonly id: number
  readonly name: string
}

/**
 * Applies to `ours` the changes of `theirs` since the base. Tables and columns are matched by id, so a
 * rename on one side and an edit on the other are combined. What both sides have added must have the same id
 * already, if it is the same (`SameIds`). Tables and columns that `ours` has removed stay removed; if `theirs` has
 * changed or kept them, that is a conflict. `changedRecords` has the tables and columns that one side removed, by id,
 * with the number of records that the other side has changed there since the base.
 */
export function mergeSchemas(
  sides: SchemaSides,
  options: {
    limits: Limits
    ruleOf(tableId: number): TableRule
    changedRecords?: ReadonlyMap<number, number>
    /** Decisions about tables and columns, by id. They take precedence over the rules. */
    takes?: ReadonlyMap<number, Take>
    /** Keeps different columns of the same name beside each other. A virtual base contains all of them. */
    keepsBoth?: boolean
  },
): MergedSchema {
  const { base, ours, theirs } = sides
  const { ruleOf, changedRecords = new Map() } = options
  const checks = dryRunOptions(options.limits)
  const conflicts: SchemaConflict[] = []
  /** Returns the strategy for a conflict about a table or column. */
  const strategyOf: StrategyOf = (id, rule) => options.takes?.get(id) ?? rule.strategy
  const inBase = byId(base.tables)
  const inTheirs = byId(theirs.tables)
  const inOurs = byId(ours.tables)
  const isRemoved = setOf(ours.removedIds)
  const rejected: number[] = []

  const kept = ours.tables.flatMap((table): StoredTable[] => {
    const before = inBase.get(table.id)
    const other = inTheirs.get(table.id)
    const rule = ruleOf(table.id)
    if (rule.mode === 'skip') return [table]
    if (other !== undefined) {
      const context = {
        strategyOf: (id: number) => strategyOf(id, rule),
        isRemoved,
        changedRecords,
        conflicts,
        rejected,
        sides,
        checks,
        keepsBoth: options.keepsBoth ?? false,
      }
      return [mergeTable({ before, table, other }, context)]
    }
    if (before === undefined) return [table]
    const records = changedRecords.get(table.id) ?? 0
    const isChanged = records > 0 || !sameTable(before, table)
    if (!isChanged) return []
    const strategy = strategyOf(table.id, rule)
    if (strategy === 'fail') {
      const { id, name } = table
      conflicts.push({ id, table: name, message: REMOVED_THERE, takes: EITHER, records })
    }
    return strategy === 'theirs' ? [] : [table]
  })
  const added: StoredTable[] = []
  for (const table of theirs.tables) {
    const rule = ruleOf(table.id)
    if (inOurs.has(table.id) || rule.mode === 'skip') continue
    const before = inBase.get(table.id)
    if (before === undefined && !isRemoved.has(table.id)) {
      added.push(table)
      continue
    }
    const records = changedRecords.get(table.id) ?? 0
    if (before !== undefined && records === 0 && sameTable(before, table)) continue
    if (strategyOf(table.id, rule) === 'ours') continue
    const message = before === undefined ? KEPT_THERE : REMOVED_HERE
    conflicts.push({ id: table.id, table: table.name, message, takes: ['ours'], records })
  }
  const contested = new Set(conflicts.map(({ id }) => id))
  const tables = withMergedTypes(withLinkedBits([...kept, ...added]), {
    ...sides,
    limits: options.limits,
    isContested: (id) => contested.has(id),
    conflict: (each) => conflicts.push({ ...each, takes: NEITHER }),
  })
  conflicts.push(
    ...nameConflicts(tables),
    ...linkConflicts(tables),
    ...enumConflicts(tables),
    ...limitConflicts(ours.tables, tables, options.limits),
  )
  const remembered = rememberIds(ours, withOrder(ours, tables))
  const schema =
    rejected.length === 0
      ? remembered
      : { ...remembered, removedIds: [...(remembered.removedIds ?? []), ...rejected] }
  return { schema, conflicts }
}

type StrategyOf = (id: number, rule: TableRule) => MergeStrategy

const EITHER: readonly Take[] = ['ours', 'theirs']
const OURS: readonly Take[] = ['ours']
const NEITHER: readonly Take[] = []

const RENAME = 'rename one of them first, or give that of the merged branch another name'
const REMOVED_THERE = 'was removed on the merged branch and changed on the target'
const REWRITTEN_THERE =
  'its values were made anew by an expression on the merged branch, and changed on the target'
const REWRITTEN_HERE =
  'its values were made anew by an expression on the target, and changed on the merged branch; a merge cannot bring these: write them on the target first'
/** No strategy restores what the target has removed, because its values there are lost. */
const REMOVED_HERE =
  'was removed on the target and changed on the merged branch; a merge cannot restore it'

/** The merged branch contains the removal, and has decided against it. */
const KEPT_THERE =
  'was removed on the target and kept on the merged branch; a merge cannot restore it'

const CHANGED_BACK =
  'was converted on the merged branch from a type that the target has changed back, and does not convert from its type'

/**
 * Returns a column of theirs, which was made of one of ours, without the steps that ours has taken back: rows of ours may
 * still have the values of that time.
 */
function withoutOrigins(
  column: StoredColumn,
  of: StoredColumn,
  isRemoved: ReadonlySet<number>,
): StoredColumn {
  const steps = listOrigins(column)
  const place = steps.findIndex(({ id }) => id === of.id)
  const isKept = ({ id }: StoredColumn, index: number) => index >= place || !isRemoved.has(id)
  if (steps.every(isKept)) return column
  const origins = steps.filter(isKept).map(({ from: _, ...step }) => step)
  const { from: _, ...last } = column
  const [made] = [last, ...origins].reduceRight<StoredColumn[]>(
    ([from], step) => [{ ...step, ...(from && { from }) }],
    [],
  )
  return made ?? column
}

/** Returns whether a table has another column in place of one, with values that an expression has made. */
function isReplaced(column: StoredColumn, { columns }: StoredTable): boolean {
  return columns.some(({ replaced }) => replaced?.includes(column.id))
}

/** Merges a table that both sides have, with or without a base. */
function mergeTable(
  sides: { before: StoredTable | undefined; table: StoredTable; other: StoredTable },
  context: {
    strategyOf(id: number): MergeStrategy
    isRemoved: ReadonlySet<number>
    changedRecords: ReadonlyMap<number, number>
    conflicts: SchemaConflict[]
    /** Gets the ids of columns of theirs that are not taken. Like removed ones, they stay away. */
    rejected: number[]
    sides: SchemaSides
    checks: ColumnChecks
    keepsBoth: boolean
  },
): StoredTable {
  const { before, table, other } = sides
  const { isRemoved, changedRecords, conflicts } = context
  const old = byId(before?.columns ?? [])
  const inOther = byId(other.columns)
  const strategyOf = ({ id }: Named) => context.strategyOf(id)
  const conflict = (message: string, takes: readonly Take[], column?: Named) => {
    conflicts.push({
      id: (column ?? table).id,
      table: table.name,
      ...(column === undefined ? {} : { column: column.name }),
      message,
      takes,
    })
  }
  /** Returns whether one side changed a column that the other removed: its name, its definition or its values. */
  const isChanged = (previous: StoredColumn, column: StoredColumn) =>
    previous.name !== column.name ||
    changesOf(previous, column) !== undefined ||
    (changedRecords.get(column.id) ?? 0) > 0
  const removalConflict = (message: string, takes: readonly Take[], { id, name }: Named) => {
    const records = changedRecords.get(id) ?? 0
    conflicts.push({ id, table: table.name, column: name, message, takes, records })
  }
  /** Returns whether the merged branch has kept a column although it contains that the target has removed it. */
  const isKeptThere = (column: StoredColumn) =>
    isRemoved.has(column.id) && findSame(before?.columns ?? [], column) === undefined
  const name = mergeName({ before, ours: table, theirs: other }, () => strategyOf(table), conflict)
  const kept = table.columns.flatMap((column): StoredColumn[] => {
    const previous = findSame(before?.columns ?? [], column)
    const changed = findSame(other.columns, column)
    // The target has decided against what the merged branch has made of the column.
    if (changed !== undefined && isRemoved.has(changed.id)) {
      if (isMadeOf(changed, column)) return [column]
    }
    if (changed !== undefined) {
      const sides = { before: previous, ours: column, theirs: changed }
      const refuse = (message: string, takes: readonly Take[]) => conflict(message, takes, column)
      const name = mergeName(sides, () => strategyOf(column), refuse)
      let isContested = false
      const combined = mergeDefinitions(sides, {
        strategyOf: () => strategyOf(column),
        conflict(message, takes) {
          isContested = true
          refuse(message, takes)
        },
        reject: (id) => context.rejected.push(id),
      })
      const fault = isContested || context.keepsBoth ? undefined : faultOf(sides, combined, context)
      const strategy = fault === undefined ? undefined : strategyOf(column)
      // Ours has no values of a type that it has changed any more.
      const isOld = isMadeOf(column, changed)
      if (strategy === 'fail' || (isOld && strategy === 'theirs')) {
        const message = `the changes of both sides cannot be combined: ${fault}; ${isOld ? '[ours] keeps the column as it is on the target' : 'take one of them'}`
        const definitions = definitionsOf(context.sides, { ours: column, theirs: changed })
        const takes = isOld ? OURS : EITHER
        conflicts.push({
          ...{ id: column.id, table: table.name, column: column.name, message, takes },
          ...definitions,
        })
      }
      const isConverted = isMadeOf(changed, column)
      if (strategy === 'ours' && isConverted) context.rejected.push(changed.id)
      const theirs = isConverted ? changed : withDefinitionOf(column, changed)
      const definition =
        strategy === undefined ? combined : strategy === 'theirs' && !isOld ? theirs : column
      const made = withoutOrigins(definition, column, isRemoved)
      if (made !== definition && conversionFault(made) !== undefined) {
        if (strategyOf(column) !== 'ours') conflict(CHANGED_BACK, OURS, column)
        else context.rejected.push(changed.id)
        return [column]
      }
      return [{ ...mergeIndexes({ ...sides, ours: made }), name }]
    }
    if (previous === undefined || hasTwin(previous, column, other)) return [column]
    if (!isChanged(previous, column)) {
      // The merged branch has kept another column of the name instead, which is a conflict until the target stays as it is.
      return other.columns.some((each) => isSameName(each, column) && isKeptThere(each))
        ? [column]
        : []
    }
    const strategy = strategyOf(column)
    if (strategy === 'fail') {
      const message = isReplaced(column, other) ? REWRITTEN_THERE : REMOVED_THERE
      removalConflict(message, EITHER, column)
    }
    return strategy === 'theirs' ? [] : [column]
  })
  const added: StoredColumn[] = []
  for (const column of other.columns) {
    if (findSame(table.columns, column) !== undefined) continue
    const previous = findSame(before?.columns ?? [], column)
    const isMade = previous !== undefined && previous.id !== column.id
    if ((previous === undefined || hasTwin(previous, column, table)) && !isRemoved.has(column.id)) {
      added.push(column)
      continue
    }
    // The target has decided against what the merged branch has made of the column.
    if (isMade && isMadeOf(column, previous) && isRemoved.has(column.id)) continue
    if (previous !== undefined && !isMade && !isChanged(previous, column)) continue
    if (strategyOf(column) === 'ours') {
      if (isMade) context.rejected.push(column.id)
      continue
    }
    const message = isReplaced(column, table) ? REWRITTEN_HERE : REMOVED_HERE
    removalConflict(previous === undefined ? KEPT_THERE : message, OURS, column)
  }
  const dropped = new Set<number>()
  for (const theirs of context.keepsBoth ? [] : added) {
    const ours = kept.find((column) => isSameName(column, theirs))
    if (ours === undefined) continue
    if (old.has(ours.id) && findSame(other.columns, ours) === undefined) {
      // The merged branch has replaced a column that the target keeps, which is decided or a conflict already.
      if (strategyOf(ours) === 'ours') context.rejected.push(theirs.id)
      dropped.add(theirs.id)
      continue
    }
    if (old.has(ours.id) || inOther.has(ours.id)) continue
    const strategy = strategyOf(ours)
    if (strategy === 'fail')
      conflicts.push(differentColumns(table.name, ours, theirs, context.sides))
    else if (strategy === 'theirs') dropped.add(ours.id)
    else context.rejected.push(theirs.id)
    // A conflict leaves the column as the target has it.
    if (strategy !== 'theirs') dropped.add(theirs.id)
  }
  const combined = [...kept, ...added].filter(({ id }) => !dropped.has(id))
  const parts = {
    columns: combined,
    constraints: mergeConstraints(sides, {
      columns: combined,
      strategyOf: context.strategyOf,
      conflict: (each) => conflicts.push({ table: name, ...each }),
    }),
  }
  const { columns, constraints } = context.keepsBoth
    ? { ...parts, constraints: parts.constraints.filter((each) => isUsable(each, combined)) }
    : settleUses({ ours: partsOf(table), theirs: partsOf(other) }, parts, {
        strategyOf: context.strategyOf,
        conflict: (each) => conflicts.push({ table: name, ...each }),
        reject: (id) => context.rejected.push(id),
        definitionOf(part, side) {
          const own = side === 'ours' ? table : other
          return part.kind === 'constraint'
            ? toPublicConstraint(part.item, own.columns)
            : toPublicColumn(part.item, tableNamesOf([context.sides[side]]), own.columns)
        },
      })
  for (const duplicate of duplicates(columns)) {
    conflict(`two different columns have this name; ${RENAME}`, NEITHER, duplicate)
  }
  const { constraints: _, idBits: __, ...rest } = table
  const merged = { ...rest, name, columns, ...(constraints.length > 0 && { constraints }) }
  const idBits = mergeIdBits(
    { before, ours: table, theirs: other },
    () => strategyOf(table),
    conflict,
  )
  return mergeHistory({
    before,
    ours: {
      ...mergeSearchIndex({ before, ours: merged, theirs: other }),
      ...(idBits && { idBits }),
    },
    theirs: other,
  })
}

/** Merges the constraints of a table by name. It is a conflict if both sides have changed one, and not in the same way. */
function mergeConstraints(
  {
    before,
    table,
    other,
  }: { before: StoredTable | undefined; table: StoredTable; other: StoredTable },
  options: {
    /** The columns of the merged table. */
    columns: readonly StoredColumn[]
    strategyOf(id: number): MergeStrategy
    conflict(conflict: Omit<SchemaConflict, 'table'>): void
  },
): StoredConstraint[] {
  const byName = (each: StoredTable | undefined) =>
    new Map((each?.constraints ?? []).map((one) => [one.name.toLowerCase(), one]))
  const [old, mine, others] = [byName(before), byName(table), byName(other)]
  // A side that has stored a column anew has constraints of other ids, which may be the same rule.
  const columns = [before, table, other].flatMap((each) => each?.columns ?? [])
  const mergedIds = new Map(
    columns.map((column) => [column.id, findSame(options.columns, column)?.id ?? column.id]),
  )
  const ruleIn = (each: StoredConstraint | undefined) =>
    ruleOf(each && withColumnIds(each, (id) => mergedIds.get(id) ?? id))
  const names = new Set([...mine.keys(), ...others.keys()])
  return [...names].flatMap((name): StoredConstraint[] => {
    const [base, ours, theirs] = [old.get(name), mine.get(name), others.get(name)]
    const chosen = (): StoredConstraint | undefined => {
      const [rule, mine, others] = [ruleIn(base), ruleIn(ours), ruleIn(theirs)]
      if (others === mine) {
        return ours === undefined || isUsable(ours, options.columns) ? ours : theirs
      }
      if (others === rule) return ours
      if (mine === rule) return theirs
      const { id, name: constraint } = (ours ?? theirs) as StoredConstraint
      const strategy = options.strategyOf(id)
      if (strategy === 'fail') {
        options.conflict({
          id,
          constraint,
          message: 'both sides have changed this constraint, in different ways; take one of them',
          takes: EITHER,
          ours: definitionIn(ours, table),
          theirs: definitionIn(theirs, other),
        })
      }
      return strategy === 'theirs' ? theirs : ours
    }
    const merged = chosen()
    return merged === undefined ? [] : [merged]
  })
}

/** Returns whether all columns that a constraint uses are there. */
function isUsable(constraint: StoredConstraint, columns: readonly StoredColumn[]): boolean {
  const ids = new Set(listAllColumns(columns).map(({ id }) => id))
  return columnIdsOf(constraint).every((id) => ids.has(id))
}

/** Returns a text that is equal for constraints of the same rule. undefined: there is none. */
function ruleOf(constraint: StoredConstraint | undefined): string | undefined {
  if (constraint === undefined) return undefined
  const { id: _, name: __, ...rule } = constraint
  return toCanonicalJson(rule)
}

function definitionIn(
  constraint: StoredConstraint | undefined,
  { columns }: StoredTable,
): Constraint | null {
  return constraint === undefined ? null : toPublicConstraint(constraint, columns)
}

/** Returns whether both sides have made different columns of one of the base. */
function hasTwin(previous: StoredColumn, column: StoredColumn, other: StoredTable): boolean {
  return isMadeOf(column, previous) && other.columns.some((each) => isMadeOf(each, previous))
}

/** Returns the definitions that columns have on both sides. */
function definitionsOf(
  { ours, theirs }: SchemaSides,
  columns: { readonly ours: StoredColumn; readonly theirs: StoredColumn },
): { readonly ours: Column; readonly theirs: Column } {
  const definitionIn = (schema: StoredSchema, column: StoredColumn) =>
    toPublicColumn(
      column,
      tableNamesOf([schema]),
      schema.tables.flatMap((each) => (each.columns.includes(column) ? each.columns : [])),
    )
  return { ours: definitionIn(ours, columns.ours), theirs: definitionIn(theirs, columns.theirs) }
}

function tableNamesOf(schemas: readonly StoredSchema[]): ReadonlyMap<number, string> {
  return new Map(schemas.flatMap(({ tables }) => tables.map(({ id, name }) => [id, name] as const)))
}

const partsOf = ({ columns, constraints = [] }: StoredTable): TableParts => ({
  columns,
  constraints,
})

/**
 * Returns why a column cannot have its merged definition, by the rules for edits. undefined: it can, or one of the sides has
 * the same fault already, because a limit was lowered.
 */
function faultOf(
  { ours, theirs }: { ours: StoredColumn; theirs: StoredColumn },
  merged: StoredColumn,
  { sides, checks }: { sides: SchemaSides; checks: ColumnChecks },
): string | undefined {
  if (merged === ours || merged === theirs) return undefined
  const schemas = [sides.ours, sides.theirs]
  const names = tableNamesOf(schemas)
  const columns = schemas
    .flatMap(({ tables }) => tables)
    .flatMap((table) => (table.columns.some(({ id }) => id === merged.id) ? table.columns : []))
  const check = (column: StoredColumn) => {
    const fault = checkColumn(toPublicColumn(column, names, columns), checks)
    return fault?.replace(`column [${column.name}]: `, '')
  }
  const fault = check(merged)
  const known = fault === undefined ? [] : [check(ours), check(theirs)]
  return known.includes(fault) ? undefined : fault
}

/** Returns whether two columns were made of the same one. */
function haveSameOrigin(one: StoredColumn, other: StoredColumn): boolean {
  return listOrigins(one).some((origin) => isMadeOf(other, origin))
}

/** Describes columns of the same name that both sides have added, or made of the same one, with different definitions. */
function differentColumns(
  table: string,
  ours: StoredColumn,
  theirs: StoredColumn,
  sides: SchemaSides,
): SchemaConflict {
  const { ours: here, theirs: there } = definitionsOf(sides, { ours, theirs })
  const what = haveSameOrigin(ours, theirs) ? 'changed the type of' : 'added'
  const how =
    toCanonicalJson(here) === toCanonicalJson(there)
      ? `with the same definition, but ${meaningOf(ours, theirs, sides)}: ${JSON.stringify(here)}`
      : `with different definitions: ${JSON.stringify(here)} on the target and ${JSON.stringify(there)} on the merged branch`
  return {
    id: ours.id,
    table,
    column: ours.name,
    message: `both sides have ${what} this column, ${how}; take one of them, or give that of the merged branch another name`,
    takes: EITHER,
    ours: here,
    theirs: there,
  }
}

/** Says what differs in two columns whose definitions are written alike: they name tables or columns that differ. */
function meaningOf(ours: StoredColumn, theirs: StoredColumn, sides: SchemaSides): string {
  const shownIds = new Set([...columnIdsUsedBy(theirs), ...listLinkedIds(theirs)])
  const named = (kind: string, items: readonly Named[], ids: readonly number[]) => {
    const others = items.filter(({ id }) => ids.includes(id) && !shownIds.has(id))
    return others.map(({ name }) => `${kind} [${name}]`)
  }
  const { tables } = sides.ours
  const columns = tables.flatMap((each) => listAllColumns(each.columns))
  const different = [
    ...named('table', tables, listLinkedIds(ours)),
    ...named('column', columns, columnIdsUsedBy(ours)),
  ]
  return different.length === 0
    ? 'with different columns in it'
    : `${different.join(' and ')} of the target is another one than that of this name on the merged branch`
}

const listLinkedIds = (column: StoredColumn): number[] =>
  listLinks([column]).map(({ tableId }) => tableId)

/** Applies the search index that `theirs` has requested or deleted since the base. */
function mergeSearchIndex(sides: {
  before: StoredTable | undefined
  ours: StoredTable
  theirs: StoredTable
}): StoredTable {
  const { before, ours, theirs } = sides
  return theirs.searchIndex === before?.searchIndex
    ? ours
    : { ...ours, searchIndex: theirs.searchIndex ?? false }
}

/** Merges the size of ids. It is a conflict if both sides have changed it, and not to the same one. */
function mergeIdBits(
  {
    before,
    ours,
    theirs,
  }: { before: StoredTable | undefined; ours: StoredTable; theirs: StoredTable },
  strategyOf: () => MergeStrategy,
  conflict: (message: string, takes: readonly Take[]) => void,
): StoredTable['idBits'] {
  if (theirs.idBits === ours.idBits) return ours.idBits
  if (before !== undefined && theirs.idBits === before.idBits) return ours.idBits
  if (before !== undefined && ours.idBits === before.idBits) return theirs.idBits
  const strategy = strategyOf()
  if (strategy === 'fail') {
    conflict('[idBits] was changed on both sides, to different values', EITHER)
  }
  return strategy === 'theirs' ? theirs.idBits : ours.idBits
}

/** Applies what `theirs` has changed since the base about versions of records. This never conflicts. */
function mergeHistory(sides: {
  before: StoredTable | undefined
  ours: StoredTable
  theirs: StoredTable
}): StoredTable {
  const { before, ours, theirs } = sides
  if (theirs.history?.keep === before?.history?.keep) return ours
  const { history: _, ...table } = ours
  return theirs.history === undefined ? table : { ...table, history: theirs.history }
}

/** Merges a name. It is a conflict if both sides have changed it, and not to the same name. */
function mergeName(
  { before, ours, theirs }: { before: Named | undefined; ours: Named; theirs: Named },
  strategyOf: () => MergeStrategy,
  conflict: (message: string, takes: readonly Take[]) => void,
): string {
  if (theirs.name === before?.name || theirs.name === ours.name) return ours.name
  if (ours.name === before?.name) return theirs.name
  const strategy = strategyOf()
  if (strategy === 'fail')
    conflict(
      `was renamed to [${theirs.name}] on the merged branch and to [${ours.name}] on the target`,
      EITHER,
    )
  return strategy === 'theirs' ? theirs.name : ours.name
}

/** Applies the indexes that `theirs` has requested or deleted since the base. This never conflicts. */
function mergeIndexes(sides: {
  before: StoredColumn | undefined
  ours: StoredColumn
  theirs: StoredColumn
}): StoredColumn {
  const { before, ours, theirs } = sides
  const { index: ourIndex, columns, ...rest } = ours
  const index = theirs.index === before?.index ? ourIndex : theirs.index
  const [old, other] = [byId(before?.columns ?? []), byId(theirs.columns ?? [])]
  return {
    ...rest,
    ...(index === undefined ? {} : { index }),
    ...(columns === undefined
      ? {}
      : {
          columns: columns.map((column) =>
            mergeIndexes({
              before: old.get(column.id),
              ours: column,
              theirs: other.get(column.id) ?? column,
            }),
          ),
        }),
  }
}

/** Keeps the table order of `ours`, if it has one, and puts new tables at the end. */
function withOrder(ours: StoredSchema, tables: readonly StoredTable[]): StoredSchema {
  if (ours.tablesOrder === undefined) return { tables }
  const names = new Map(tables.map((table) => [table.id, table.name]))
  const ids = new Set([...orderTables(ours), ...tables].map((table) => table.id))
  return { tables, tablesOrder: [...ids].flatMap((id) => names.get(id) ?? []) }
}

function nameConflicts(tables: readonly StoredTable[]): SchemaConflict[] {
  return duplicates(tables).map(({ name }) => ({
    table: name,
    message: `two different tables have this name; ${RENAME}`,
    takes: NEITHER,
  }))
}

function linkConflicts(tables: readonly StoredTable[]): SchemaConflict[] {
  const ids = new Set(tables.map((table) => table.id))
  return tables.flatMap((table) =>
    listLinks(table.columns)
      .filter((link) => !ids.has(link.tableId))
      .map((link) => ({
        table: table.name,
        column: link.path,
        message: 'links to a table that would not exist after the merge',
        takes: NEITHER,
      })),
  )
}

/** Finds values of enums that one side has removed and the other one uses. */
function enumConflicts(tables: readonly StoredTable[]): SchemaConflict[] {
  return tables.flatMap((table): SchemaConflict[] => {
    const fault = enumFault(table)
    return fault === undefined ? [] : [{ table: table.name, message: fault, takes: NEITHER }]
  })
}

/**
 * Finds limits that the merge would exceed. A schema that is over a limit already, because the limit
 * was lowered, may stay as large as it is. Edits follow the same rule.
 */
function limitConflicts(
  before: readonly StoredTable[],
  after: readonly StoredTable[],
  { tablesPerBranchMax, columnsPerTableMax, columnsPerBranchMax, constraintsPerTableMax }: Limits,
): SchemaConflict[] {
  const conflicts: SchemaConflict[] = []
  const [last] = after.slice(-1)
  if (last && after.length > tablesPerBranchMax && after.length > before.length) {
    const message = `a branch cannot have more than ${tablesPerBranchMax} tables`
    conflicts.push({ table: last.name, message, takes: NEITHER })
  }
  const total = totalWidth(after)
  if (last && total > columnsPerBranchMax && total > totalWidth(before)) {
    const message = `the tables of a branch cannot have more than ${columnsPerBranchMax} columns`
    conflicts.push({ table: last.name, message, takes: NEITHER })
  }
  const old = byId(before)
  for (const table of after) {
    const width = widthOf(table)
    if (width > columnsPerTableMax && width > widthOf(old.get(table.id))) {
      const message = `a table cannot have more than ${columnsPerTableMax} columns`
      conflicts.push({ table: table.name, message, takes: NEITHER })
    }
    const rules = countRules(table)
    if (rules > constraintsPerTableMax && rules > countRules(old.get(table.id))) {
      const message = `a table cannot have more than ${constraintsPerTableMax} constraints`
      conflicts.push({ table: table.name, message, takes: NEITHER })
    }
  }
  return conflicts
}

function countRules(table: StoredTable | undefined): number {
  return table?.constraints?.length ?? 0
}

/** Names that differ in case only are taken to be the same. */
function isSameName(one: Named, other: Named): boolean {
  return one.name.toLowerCase() === other.name.toLowerCase()
}

function duplicates<Item extends Named>(items: readonly Item[]): Item[] {
  const seen = new Set<string>()
  return items.filter((item) => {
    const key = item.name.toLowerCase()
    const isDuplicate = seen.has(key)
    seen.add(key)
    return isDuplicate
  })
}

function byId<Item extends Named>(items: readonly Item[]): Map<number, Item> {
  return new Map(items.map((item) => [item.id, item]))
}

function setOf(ids: readonly number[] | undefined): ReadonlySet<number> {
  return new Set(ids)
}

/**
 * Returns whether two versions of a table are equal, apart from their indexes and the order of columns and constraints.
 * The order depends on the order of merges that have added them.
 */
export function sameTable(left: StoredTable, right: StoredTable): boolean {
  const [one, other] = [left, right].map((table) => {
    const columns = sortById(table.columns).map(withoutIndexes)
    const constraints = (table.constraints ?? []).map(({ name }) => name).sort()
    const rules = constraints.map((name) => [
      name,
      ruleOf(table.constraints?.find((each) => each.name === name)),
    ])
    // A merged table may have its fields in another order than a stored one.
    return toCanonicalJson({ ...table, columns, constraints: rules })
  })
  return one === other
}

function withoutIndexes(stored: StoredColumn): object {
  const { index: _, columns, ...column } = withoutBits(stored)
  return columns === undefined
    ? column
    : { ...column, columns: sortById(columns).map(withoutIndexes) }
}

function sortById(columns: readonly StoredColumn[]): StoredColumn[] {
  return [...columns].sort((left, right) => left.id - right.id)
}
