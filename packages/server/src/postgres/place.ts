import { quoteIdent, type Sql, sql } from './sql.js'

/*
 * The tables of a database are in a PostgreSQL schema of its own, which a cluster has on one of its nodes. A template has the
 * name of such a table as a value and not as a text, so a statement knows its database: nobody reads its text to find out.
 */

/** The beginning of the names of the schemas of databases. The id of the database follows. */
export const SCHEMA_PREFIX = 'offshoot_db_'

/** A part of a template that tells the schema whose tables the statement uses. */
export class Place {
  constructor(
    readonly schema: string,
    /** The quoted name of a table or of the schema, or nothing. */
    readonly text: string,
    /** Only the node that has the schema can run the statement. */
    readonly isOnNode = false,
  ) {}

  get isOfDatabase(): boolean {
    return this.schema.startsWith(SCHEMA_PREFIX)
  }
}

/** Returns the qualified name of a table, as text. */
export const tableText = (table: { readonly schema: string; readonly name: string }): string =>
  `${quoteIdent(table.schema)}.${quoteIdent(table.name)}`

/** Returns the name of a table for a template. */
export const tableIn = (schema: string, name: string): Sql =>
  sql`${new Place(schema, tableText({ schema, name }))}`

/** Returns the name of a table that only the node with the schema knows. */
export const nodeTableIn = (schema: string, name: string): Sql =>
  sql`${new Place(schema, tableText({ schema, name }), true)}`

/** Returns the name of a schema for a template. */
export const schemaIn = (schema: string): Sql => sql`${new Place(schema, quoteIdent(schema))}`

/** Makes a statement one that the node with the schema runs. It reads PostgreSQL's own catalogue there. */
export const onNode = (schema: string): Sql => sql`${new Place(schema, '', true)}`

/** Returns the length of a template without its parameters. */
export function textLength({ strings, values }: Sql): number {
  const texts = values.flatMap((value) => (value instanceof Place ? value.text : []))
  return [...strings, ...texts].reduce((length, text) => length + text.length, 0)
}
