import type { Sql } from '../../postgres/sql.js'
import type { Statement, TextRow } from '../../postgres/statement.js'
import type { Fault } from '../columns/fault.js'
import { parseFiles, type StoredFile } from '../columns/file-value.js'
import type { TableCodec } from '../columns/table-codec.js'
import { layoutOf } from '../layout/layout.js'
import {
  countOwn,
  countTexts,
  linkedTables,
  listContents,
  planRead,
  type ReadPlan,
  readsContents,
  type TableLookup,
  textOf,
} from './read-plan.js'
import {
  type MetadataForm,
  writeFound,
  writeMetadata,
  writeRecord,
  writeSelection,
} from './record-json.js'
import {
  compileReadMany,
  compileReadOne,
  selectLinked,
  selectOwn,
  selectPlan,
} from './select-plan.js'
import type { PlanRoot } from './table-rows.js'

/** Estimated length of one value in a statement, for each table that rows come from. */
const VALUE_LENGTH = 100

/**
 * A read of columns of a table, also through links: the statements, the values that they select, and the JSON of the rows.
 * A row has the texts of the record itself and those of all linked records.
 */
export class TableRead {
  /** The number of texts in a row. */
  readonly textCount: number
  /** The number of texts for the record itself. */
  readonly ownCount: number
  /** The ids of the tables that are read through links. */
  readonly linkedTables: readonly number[]
  /** Whether contents of files are requested. They must be loaded separately. */
  readonly hasContents: boolean
  readonly #lookup: TableLookup
  readonly #plan: ReadPlan
  #one: Statement | undefined
  #many: Statement | undefined

  /** Resolves dotted paths of columns. Returns faults if one of them is invalid. */
  static plan(
    lookup: TableLookup,
    codec: TableCodec,
    columns: readonly string[],
  ): TableRead | readonly Fault[] {
    const plan = planRead(lookup, codec, columns)
    return 'projection' in plan ? new TableRead(lookup, plan) : plan
  }

  private constructor(lookup: TableLookup, plan: ReadPlan) {
    this.textCount = countTexts(plan)
    this.ownCount = countOwn(plan)
    this.linkedTables = linkedTables(plan)
    this.hasContents = readsContents(plan)
    this.#lookup = lookup
    this.#plan = plan
  }

  /** Returns the read with the rows of another state of the branch. */
  on(lookup: TableLookup): TableRead {
    return new TableRead(lookup, this.#plan)
  }

  /** The number of tables of PostgreSQL that linked records come from. */
  get linkedArmCount(): number {
    return this.linkedTables.reduce((count, id) => {
      const codec = this.#lookup.tableById(id)
      return codec === undefined ? count : count + this.#lookup.rowsOf(codec).armCount
    }, 0)
  }

  /** Estimated length of the statements, in characters. */
  get length(): number {
    const values = this.textCount + this.linkedTables.length
    return 2 * VALUE_LENGTH * values * (2 * layoutOf(this.#lookup.rows).levels.length)
  }

  /** Takes an id. Compiled on first use, because a query has a statement of its own. */
  get one(): Statement {
    this.#one ??= compileReadOne(this.#lookup, this.#plan)
    return this.#one
  }

  /** Takes an array of ids. */
  get many(): Statement {
    this.#many ??= compileReadMany(this.#lookup, this.#plan)
    return this.#many
  }

  /** Returns the selected values, and the joins for links. */
  select(root: PlanRoot): { selected: Sql[]; joins: Sql } {
    return selectPlan(this.#lookup, this.#plan, root)
  }

  /** Returns the selected values of the record itself. */
  selectOwn(root: PlanRoot): Sql[] {
    return selectOwn(this.#plan, root)
  }

  /** Selects the linked records. `textAt` returns the values of `selectOwn` by position. */
  selectLinked(textAt: (position: number) => Sql): { selected: Sql[]; joins: Sql } {
    return selectLinked(this.#lookup, this.#plan, textAt)
  }

  /** Returns the text of a column of the record itself, or null if it is not read. */
  textOf(row: TextRow, column: number): string | null {
    return textOf(this.#plan, row, column)
  }

  /** Returns the files of a column of the record itself. */
  filesOf(row: TextRow, column: number): readonly StoredFile[] {
    return parseFiles(this.textOf(row, column))
  }

  /** Lists the file contents that a response must include, with their sizes. */
  listContents(rows: readonly TextRow[]): { readonly sha256: string; readonly size: number }[] {
    return listContents(this.#plan, rows)
  }

  /** Writes the metadata of a row that has nothing else, as a member of an object. */
  static writeMetadata(row: TextRow, form: MetadataForm): string {
    return writeMetadata(row, 0, form)
  }

  /** Writes a record as JSON, with its id and metadata. */
  writeRecord(row: TextRow, form: MetadataForm): string {
    return writeRecord(this.#plan, row, form)
  }

  /** Writes a record with further members of its metadata, such as `"score":1.5`. */
  writeFound(row: TextRow, form: MetadataForm, more: string): string {
    return writeFound(this.#plan, row, form, more)
  }

  /** Writes only the requested columns. */
  writeSelection(row: TextRow, form: MetadataForm): string {
    return writeSelection(this.#plan, row, form)
  }
}
