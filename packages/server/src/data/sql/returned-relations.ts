import type { Node } from 'libpg-query'
import type { DeclaredType } from '../../dialect/declared-types.js'
import { invalidSql } from '../../dialect/invalid-sql.js'
import { contentOf, type NodeOf, namesOf } from '../../dialect/nodes.js'
import { NameIndex, type Relation, type Scope } from '../../dialect/scope.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import { listColumnRefs } from './schema/parse-schema.js'
import type { QueryWriter } from './select-sql.js'

/*
 * RETURNING can have columns of the relations that an UPDATE or a DELETE joins. They are read before the statement writes, with
 * the row that it writes, and stand in the query for RETURNING as relations of one row.
 */

type Written = NodeOf<'UpdateStmt'> | NodeOf<'DeleteStmt'>

/** Returns the relations of FROM or USING. */
export function otherRelations(node: Node): readonly Node[] {
  const { fromClause } = contentOf(node, 'UpdateStmt') ?? {}
  const { usingClause } = contentOf(node, 'DeleteStmt') ?? {}
  return fromClause ?? usingClause ?? []
}

/** Returns whether RETURNING may have columns of other relations than the written one. */
export function returnsOthers(node: Node): boolean {
  const statement: Written = contentOf(node, 'UpdateStmt') ?? contentOf(node, 'DeleteStmt') ?? {}
  const { relation, returningClause } = statement
  if (returningClause === undefined || otherRelations(node).length === 0) return false
  const own = relation?.alias?.aliasname ?? relation?.relname
  return listReferences(returningClause.exprs).some((path) => path.at(-2) !== own)
}

/** Lists the names of columns, with those of their relations. undefined: all columns. */
export function listReferences(nodes: readonly Node[] | undefined): (string | undefined)[][] {
  return (nodes ?? []).flatMap((node) => listColumnRefs(node).map(({ fields }) => namesOf(fields)))
}

/** A column of a relation that RETURNING has, by the positions of both. */
interface KeptColumn {
  readonly relation: number
  readonly column: number
  /** Its name in the rows that are kept. */
  readonly name: string
}

/** Lists the columns that RETURNING may have. */
export function keptColumns(
  statement: Written,
  { relations, others }: { relations: readonly Relation[]; others: readonly Node[] },
): KeptColumn[] {
  const paths = listReferences(statement.returningClause?.exprs)
  const names = new Set(paths.map((path) => path.at(-1)?.toLowerCase()))
  // Columns are joined by their names.
  const hasJoins = others.some((node) => contentOf(node, 'JoinExpr') !== undefined)
  const isWhole = ({ name, isScalar }: Relation) =>
    hasJoins || isScalar || names.has(undefined) || names.has(name.toLowerCase())
  let count = 0
  return relations.flatMap((each, relation) =>
    each.columns.flatMap((column, position) => {
      if (!isWhole(each) && !names.has(column.toLowerCase())) return []
      return [{ relation, column: position, name: `column ${count++}` }]
    }),
  )
}

/** A column that `*` stands for. */
interface StarColumn {
  readonly name: string
  readonly value: Sql
  readonly type: DeclaredType | undefined
}

/** Writes the relations of FROM again, as relations of one row each. */
export class ReturnedRelations {
  readonly #writer: QueryWriter
  readonly #scope: Scope
  readonly #relations: readonly Relation[]
  readonly #kept: readonly KeptColumn[]
  readonly #row: Sql
  #next = 0

  /** `row` is the alias of the kept rows. */
  constructor(
    writer: QueryWriter,
    scope: Scope,
    kept: { relations: readonly Relation[]; columns: readonly KeptColumn[]; row: Sql },
  ) {
    this.#writer = writer
    this.#scope = scope
    this.#relations = kept.relations
    this.#kept = kept.columns
    this.#row = kept.row
  }

  write(nodes: readonly Node[]): { text: Sql; star: readonly Sql[] } {
    const items = nodes.map((node) => this.#relation(node))
    const star = items.flatMap(({ columns }) => columns)
    this.#scope.addStar({
      columns: star.map(({ name }) => name),
      types: star.map(({ type }) => type),
      values: star.map(({ value }) => value),
    })
    const text = join(
      items.map((item) => item.text),
      ', ',
    )
    return { text, star: star.map(({ value }) => value) }
  }

  #relation(node: Node): { text: Sql; columns: readonly StarColumn[] } {
    const joined = contentOf(node, 'JoinExpr')
    if (joined !== undefined) return this.#join(joined)
    const position = this.#next++
    const relation = this.#relations[position]
    if (relation === undefined) throw new Error('a relation must have been written before')
    const kept = this.#kept.filter((column) => column.relation === position)
    const names = kept.map(({ column }) => relation.columns[column] ?? '')
    const types = names.map((name) => relation.types?.get(name))
    const alias = this.#writer.introduce(this.#scope, { ...relation, columns: names, types })
    const values = kept.map(
      ({ name }, index) => sql`${this.#row}.${ident(name)} as ${ident(names[index] ?? '')}`,
    )
    const list = values.length === 0 ? empty : join(values, ', ')
    return {
      text: sql`lateral (select ${list}) as ${alias}`,
      columns: names.map((name, index) => ({
        name,
        value: sql`${alias}.${ident(name)}`,
        type: types[index],
      })),
    }
  }

  /** The rows are known to belong together. Only the columns that a join makes of two have to be made again. */
  #join({ larg, rarg, jointype, usingClause, isNatural }: NodeOf<'JoinExpr'>) {
    if (larg === undefined || rarg === undefined) throw new Error('a join has two sides')
    const left = this.#relation(larg)
    const right = this.#relation(rarg)
    const names = new NameIndex(left.columns.map(({ name }) => name))
    const shared = isNatural
      ? left.columns.map(({ name }) => name).filter((name) => columnOf(right.columns, name))
      : namesOf(usingClause).map((name = '') => names.find(name) ?? name)
    if (shared.length === 0) {
      const text = sql`(${left.text} cross join ${right.text})`
      return { text, columns: [...left.columns, ...right.columns] }
    }
    if (jointype === 'JOIN_FULL') {
      throw invalidSql('RETURNING: columns of a FULL JOIN with USING or NATURAL are not supported')
    }
    const isRight = jointype === 'JOIN_RIGHT'
    const kind = isRight ? sql`right join` : sql`left join`
    const using = join(
      shared.map((name) => ident(name)),
      ', ',
    )
    const rest = [...left.columns, ...right.columns].filter(({ name }) => !shared.includes(name))
    return {
      text: sql`(${left.text} ${kind} ${right.text} using (${using}))`,
      columns: [
        ...shared.flatMap((name) => columnOf((isRight ? right : left).columns, name) ?? []),
        ...rest,
      ],
    }
  }
}

const columnOf = (columns: readonly StarColumn[], name: string) =>
  columns.find((column) => column.name === name)
