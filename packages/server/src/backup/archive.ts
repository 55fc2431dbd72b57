import { type Static, Type } from 'typebox'

/*
 * A backup is a tar archive:
 *
 *   backup.json                                what it is of, and how it was made
 *   tables/{schema}.{table}/definition.json    how to make the table
 *   tables/{schema}.{table}/{number}           its rows, in PostgreSQL's text form, cut into parts
 *   files/{sha256}                             the content of a file
 *   manifest.json                              how much there is of everything, with hashes
 *
 * in this order. A backup of one database has its rows of the catalogue, its tables, and the files that its rows
 * mention. The manifest comes last, because a backup is made in one pass; an archive without
 * one is not complete.
 */

export const FORMAT = 1
export const HEADER_NAME = 'backup.json'
export const MANIFEST_NAME = 'manifest.json'

/** The sequence of the ids of tables and columns. */
export const OBJECT_IDS = 'object_ids'

/** Rows are buffered up to this size, because tar needs the size of an entry before its content. */
export const PART_BYTES = 4 * 1024 * 1024

/** Upper limit for headers and definitions: PostgreSQL allows 1600 columns. A larger one is not ours. */
export const DEFINITION_BYTES_MAX = 4 * 1024 * 1024

/** Upper limit for manifests, which have a line for each table. */
export const MANIFEST_BYTES_MAX = 256 * 1024 * 1024

const strict = { additionalProperties: false } as const

/** Names of tables, columns and sequences of offshoot. They need no quotes. */
const Name = Type.String({ pattern: '^[a-z_][a-z0-9_]{0,62}$' })

export const HeaderSchema = Type.Object(
  {
    format: Type.Integer(),
    offshoot: Type.String(),
    postgres: Type.String(),
    createdAt: Type.String(),
    /** The only database in the archive. Without it, the archive has a whole instance. */
    database: Type.Optional(
      Type.Object({ name: Type.String(), workspaceId: Type.String() }, strict),
    ),
    /** The migrations of the catalogue, in order. */
    catalogue: Type.Array(Type.Object({ number: Type.Integer(), name: Type.String() }, strict)),
    sequences: Type.Array(
      Type.Object(
        {
          schema: Type.Literal('offshoot'),
          name: Name,
          value: Type.String({ pattern: '^[0-9]{1,19}$' }),
          isCalled: Type.Boolean(),
        },
        strict,
      ),
    ),
  },
  strict,
)
export type Header = Static<typeof HeaderSchema>

const ColumnDefinitionSchema = Type.Object(
  {
    name: Name,
    type: Type.String(),
    collation: Type.Union([Type.String(), Type.Null()]),
    notNull: Type.Boolean(),
    /** In the form that PostgreSQL prints it. */
    fallback: Type.Union([Type.String(), Type.Null()]),
  },
  strict,
)

export const TableDefinitionSchema = Type.Object(
  {
    schema: Name,
    name: Name,
    columns: Type.Array(ColumnDefinitionSchema),
    options: Type.Array(Type.String()),
    /** In the form that PostgreSQL prints them. They are never run, see `table-shape.ts`. */
    constraints: Type.Array(
      Type.Object({ name: Type.String(), definition: Type.String() }, strict),
    ),
    indexes: Type.Array(Type.String()),
  },
  strict,
)
export type TableDefinition = Static<typeof TableDefinitionSchema>

export const ManifestSchema = Type.Object(
  {
    /** SHA-256 of `backup.json`. */
    header: Type.String(),
    tables: Type.Array(
      Type.Object(
        {
          name: Type.String(),
          rows: Type.Integer(),
          /** SHA-256 of the definition and all rows. */
          sha256: Type.String(),
        },
        strict,
      ),
    ),
    files: Type.Object({ count: Type.Integer(), bytes: Type.Integer() }, strict),
  },
  strict,
)
export type Manifest = Static<typeof ManifestSchema>

export const tableName = ({ schema, name }: { schema: string; name: string }): string =>
  `${schema}.${name}`

/** Progress of a backup or restore. */
export interface Progress {
  readonly tables: number
  readonly rows: number
  readonly files: number
  readonly bytes: number
}
