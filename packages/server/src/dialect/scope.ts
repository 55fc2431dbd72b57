import type { Sql } from '../postgres/sql.js'
import type { DeclaredType } from './declared-types.js'

/*
 * Resolves names in a statement. Each relation gets a unique alias, and its columns are known, so PostgreSQL
 * resolves a qualified name to the same column as this module. This matters for safety: if `a.b` is not a
 * column, PostgreSQL calls the function b.
 */

/** The declared types of columns, in their order. undefined: PostgreSQL knows the types. */
export type ColumnTypes = readonly (DeclaredType | undefined)[]

/** Columns that `*` stands for. */
interface StarColumns {
  readonly columns: readonly string[]
  readonly types?: ColumnTypes | undefined
  readonly values?: readonly (Sql | undefined)[] | undefined
}

/** A relation in a FROM clause, with its name in the statement. */
export interface Relation {
  readonly name: string
  /** The alias in the written SQL. */
  readonly alias: string
  readonly columns: readonly string[]
  /** The declared types of columns, by their names. */
  readonly types?: ReadonlyMap<string, DeclaredType> | undefined
  /** The declared types of columns, in their order: also those of columns that share their name. */
  readonly typesInOrder?: ColumnTypes | undefined
  readonly names: NameIndex
  /** The relation is a table of the branch, so its values are no larger than a record. */
  readonly isStored: boolean
  /** The number of nodes that PostgreSQL may substitute for one of its columns. */
  readonly weight: number
  /** The relation is a function that returns single values, so its name stands for them. */
  readonly isScalar: boolean
}

/** A query of a WITH clause. */
export interface NamedQuery {
  readonly name: string
  readonly alias: string
  columns: readonly string[]
  types?: ColumnTypes | undefined
  weight: number
  /** Why no query can use it. */
  readonly refusal?: string | undefined
  /** Whether a query uses it. */
  isUsed?: boolean
}

/** An index of names, with and without regard to case. */
export class NameIndex {
  readonly #exact = new Set<string>()
  readonly #folded = new Map<string, Set<string>>()

  constructor(names: readonly string[] = []) {
    this.add(names)
  }

  add(names: readonly string[]): void {
    for (const name of names) {
      if (this.#exact.has(name)) continue
      this.#exact.add(name)
      const key = name.toLowerCase()
      const same = this.#folded.get(key)
      if (same === undefined) this.#folded.set(key, new Set([name]))
      else same.add(name)
    }
  }

  hasExact(name: string): boolean {
    return this.#exact.has(name)
  }

  /** Returns the only name that differs in case, if there is exactly one. */
  findFolded(name: string): string | undefined {
    const found = this.#folded.get(name.toLowerCase())
    return found?.size === 1 ? [...found][0] : undefined
  }

  /** Finds an exact match, or else the only name that differs in case. */
  find(name: string): string | undefined {
    return this.#exact.has(name) ? name : this.findFolded(name)
  }
}

/** The names that a query or a part of it can refer to. */
export class Scope {
  readonly relations: Relation[] = []
  readonly queries: NamedQuery[] = []
  /** The columns that `*` stands for. */
  readonly star: string[] = []
  /** Their declared types. */
  readonly starTypes: (DeclaredType | undefined)[] = []
  /** SQL for each of them. */
  readonly starValues: (Sql | undefined)[] = []
  /** Columns of the relations, and output names for ORDER BY and GROUP BY. */
  readonly #names = new NameIndex()
  /** Columns of relations that are not tables, in lower case. */
  readonly #derived = new Set<string>()
  /** The declared types of columns that were asked for. A statement can name each of them thousands of times. */
  readonly #types = new Map<string, DeclaredType | undefined>()
  #weight = 1

  constructor(readonly outer: Scope | undefined) {}

  addRelation(relation: Relation): void {
    this.#types.clear()
    this.relations.push(relation)
    this.#names.add(relation.columns)
    this.#weight = Math.max(this.#weight, relation.weight)
    if (relation.isStored) return
    for (const column of relation.columns) this.#derived.add(column.toLowerCase())
  }

  /** Adds columns that `*` stands for. */
  addStar({ columns, types, values }: StarColumns): void {
    this.star.push(...columns)
    this.starTypes.push(...(types ?? columns.map(() => undefined)))
    this.starValues.push(...(values ?? columns.map(() => undefined)))
  }

  /** Adds output names, which ORDER BY and GROUP BY can also use. */
  addOutputs(names: readonly string[]): void {
    this.#names.add(names)
  }

  *#outwards(): Generator<Scope> {
    for (let scope: Scope | undefined = this; scope !== undefined; scope = scope.outer) yield scope
  }

  findQuery(name: string): NamedQuery | undefined {
    for (const { queries } of this.#outwards()) {
      const found = queries.findLast((query) => query.name === name)
      if (found !== undefined) return found
    }
    return undefined
  }

  findRelation(name: string): Relation | undefined {
    for (const { relations } of this.#outwards()) {
      const found = findName(relations, name, (relation) => relation.name)
      if (found !== undefined) return found
    }
    return undefined
  }

  /** The maximum number of nodes that PostgreSQL may substitute for a column in this scope. */
  get weight(): number {
    let weight = 1
    for (const scope of this.#outwards()) weight = Math.max(weight, scope.#weight)
    return weight
  }

  /** Returns whether a name can only refer to a column of a table. */
  isStored(column: string): boolean {
    for (const scope of this.#outwards()) {
      if (scope.#derived.has(column.toLowerCase())) return false
    }
    return true
  }

  /** Returns the declared type of a column. `names` are its name, or those of its relation and of the column. */
  typeOf(names: readonly string[]): DeclaredType | undefined {
    const [relation, column] = names.length === 1 ? [undefined, names[0]] : names.slice(-2)
    if (column === undefined) return undefined
    if (relation !== undefined) return typeIn(this.findRelation(relation), column)
    if (!this.#types.has(column)) this.#types.set(column, this.#typeOfColumn(column))
    return this.#types.get(column)
  }

  #typeOfColumn(column: string): DeclaredType | undefined {
    for (const { relations } of this.#outwards()) {
      const found = relations.find((each) => each.names.find(column) !== undefined)
      if (found !== undefined) return typeIn(found, column)
    }
    return undefined
  }

  /** Returns the name of a column as its table spells it. */
  findColumn(name: string): string | undefined {
    for (const scope of this.#outwards()) if (scope.#names.hasExact(name)) return name
    for (const scope of this.#outwards()) {
      const found = scope.#names.findFolded(name)
      if (found !== undefined) return found
    }
    return undefined
  }
}

function typeIn(relation: Relation | undefined, column: string): DeclaredType | undefined {
  if (relation?.types === undefined) return undefined
  return relation.types.get(relation.names.find(column) ?? '')
}

/** Finds an exact match, or else the only name that differs in case. */
export function findName<Item>(
  items: readonly Item[],
  name: string,
  nameOf: (item: Item) => string,
): Item | undefined {
  const exact = items.find((item) => nameOf(item) === name)
  if (exact !== undefined) return exact
  const folded = items.filter((item) => nameOf(item).toLowerCase() === name.toLowerCase())
  return folded.length === 1 ? folded[0] : undefined
}

export function findColumnOf({ names }: Relation, name: string): string | undefined {
  return names.find(name)
}

export const NAME_BYTES_MAX = 63

/** Cuts a name off at the limit of PostgreSQL, but never inside a character. */
export function cutName(name: string, bytesMax = NAME_BYTES_MAX): string {
  let cut = name
  while (Buffer.byteLength(cut) > bytesMax) cut = [...cut].slice(0, -1).join('')
  return cut
}

/** Returns the name of the type of an enum column, as the catalogue shows it. */
export const enumNameOf = (
  table: string,
  { name, enum: list }: { readonly name: string; readonly enum?: { readonly type?: string } },
): string => list?.type ?? cutName(`${table}_${name}`)

/** Creates aliases that are unique within a statement. */
export class Aliases {
  readonly #taken = new Set<string>()
  readonly #inOrder: string[] = []
  /** The aliases that are taken again, in their order. */
  #again: Iterator<string> | undefined

  take(name: string): string {
    const again = this.#again?.next().value
    const alias = again ?? this.#takeNew(name)
    this.#inOrder.push(alias)
    return alias
  }

  /** Writes a part of the statement. Returns the aliases that it has taken, in their order. */
  recorded<Result>(write: () => Result): { result: Result; aliases: readonly string[] } {
    const start = this.#inOrder.length
    const result = write()
    return { result, aliases: this.#inOrder.slice(start) }
  }

  /** Writes a part that is written like another one, with the aliases of that one. */
  repeated<Result>(aliases: readonly string[], write: () => Result): Result {
    // The aliases of an outer part that is repeated include those of its parts.
    if (this.#again !== undefined) return write()
    this.#again = aliases.values()
    try {
      return write()
    } finally {
      this.#again = undefined
    }
  }

  #takeNew(name: string): string {
    let alias = cutName(name)
    for (let count = 2; this.#taken.has(alias); count++) {
      const suffix = `_${count}`
      alias = `${cutName(name, NAME_BYTES_MAX - suffix.length)}${suffix}`
    }
    this.#taken.add(alias)
    return alias
  }
}
