/*
 * Names in a statement. Each relation gets an alias that no other has, and the columns of each are
 * known: so what PostgreSQL finds under a qualified name is what was found here. This matters, because
 * where `a.b` is no column PostgreSQL calls the function b.
 */

/** A relation in a FROM clause, under the name by which the statement knows it. */
export interface Relation {
  readonly name: string
  /** What it is called in what we write. */
  readonly alias: string
  readonly columns: readonly string[]
  readonly names: NameIndex
  /** A table of the branch: its values are no larger than a record can be. */
  readonly isStored: boolean
  /** Nodes that PostgreSQL may put in the place of one of its columns. */
  readonly weight: number
}

/** A query that a WITH clause names. */
export interface NamedQuery {
  readonly name: string
  readonly alias: string
  columns: readonly string[]
  weight: number
}

/** Names by their spelling, and by their letters alone: a name is found without a look at all of them. */
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

  /** The one name that differs in case alone. */
  findFolded(name: string): string | undefined {
    const found = this.#folded.get(name.toLowerCase())
    return found?.size === 1 ? [...found][0] : undefined
  }

  /** As it stands, or else the one that differs in case alone. */
  find(name: string): string | undefined {
    return this.#exact.has(name) ? name : this.findFolded(name)
  }
}

/** What the names of a query, or a part of it, can refer to. */
export class Scope {
  readonly relations: Relation[] = []
  readonly queries: NamedQuery[] = []
  /** The columns that `*` stands for. */
  readonly star: string[] = []
  /** Columns of the relations, and names that ORDER BY and GROUP BY may use besides. */
  readonly #names = new NameIndex()
  /** Columns of relations that are no tables, without regard to case. */
  readonly #derived = new Set<string>()
  #weight = 1

  constructor(readonly outer: Scope | undefined) {}

  addRelation(relation: Relation): void {
    this.relations.push(relation)
    this.#names.add(relation.columns)
    this.#weight = Math.max(this.#weight, relation.weight)
    if (relation.isStored) return
    for (const column of relation.columns) this.#derived.add(column.toLowerCase())
  }

  /** Names that ORDER BY and GROUP BY may use besides. */
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

  /** Nodes that PostgreSQL may put in the place of a column here, at the most. */
  get weight(): number {
    let weight = 1
    for (const scope of this.#outwards()) weight = Math.max(weight, scope.#weight)
    return weight
  }

  /** Whether a column, as it is spelled, can be none but that of a table. */
  isStored(column: string): boolean {
    for (const scope of this.#outwards()) {
      if (scope.#derived.has(column.toLowerCase())) return false
    }
    return true
  }

  /** The column as its table spells it. */
  findColumn(name: string): string | undefined {
    for (const scope of this.#outwards()) if (scope.#names.hasExact(name)) return name
    for (const scope of this.#outwards()) {
      const found = scope.#names.findFolded(name)
      if (found !== undefined) return found
    }
    return undefined
  }
}

/** As it stands, or else the one that differs in case alone. */
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

const NAME_BYTES_MAX = 63

/** PostgreSQL and its parser cut names there, and so do we; never inside a character. */
export function cutName(name: string, bytesMax = NAME_BYTES_MAX): string {
  let cut = name
  while (Buffer.byteLength(cut) > bytesMax) cut = [...cut].slice(0, -1).join('')
  return cut
}

/** Hands out aliases that no other relation of the statement has. */
export class Aliases {
  readonly #taken = new Set<string>()

  take(name: string): string {
    let alias = cutName(name)
    for (let count = 2; this.#taken.has(alias); count++) {
      const suffix = `_${count}`
      alias = `${cutName(name, NAME_BYTES_MAX - suffix.length)}${suffix}`
    }
    this.#taken.add(alias)
    return alias
  }
}
