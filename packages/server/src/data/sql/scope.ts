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
}

/** A query that a WITH clause names. */
export interface NamedQuery {
  readonly name: string
  readonly alias: string
  columns: readonly string[]
}

/** What the names of a query, or a part of it, can refer to. */
export class Scope {
  readonly relations: Relation[] = []
  readonly queries: NamedQuery[] = []
  /** The columns that `*` stands for. */
  readonly star: string[] = []
  /** Names that ORDER BY and GROUP BY may use besides. */
  outputs: readonly string[] = []

  constructor(readonly outer: Scope | undefined) {}

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

  /** The column as its table spells it. */
  findColumn(name: string): string | undefined {
    for (const isExact of [true, false]) {
      for (const { relations, outputs } of this.#outwards()) {
        const columns = [...outputs, ...relations.flatMap((relation) => relation.columns)]
        const found = isExact
          ? columns.find((column) => column === name)
          : foldedMatch(columns, name)
        if (found !== undefined) return found
      }
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

/** The one name that differs in case alone; it may be that of several relations. */
function foldedMatch(names: readonly string[], name: string): string | undefined {
  const folded = new Set(names.filter((other) => other.toLowerCase() === name.toLowerCase()))
  return folded.size === 1 ? [...folded][0] : undefined
}

export function findColumnOf({ columns }: Relation, name: string): string | undefined {
  return findName(columns, name, (column) => column)
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
