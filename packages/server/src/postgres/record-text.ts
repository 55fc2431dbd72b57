/*
 * The text forms of PostgreSQL's rows and arrays.
 */

/** A value in PostgreSQL's text form. */
export type Parameter = string | null

/** A row as the texts of its values. */
export type TextRow = readonly (string | null)[]

/** Writes texts as an array of texts. */
export function toArray(values: readonly Parameter[]): string {
  const elements = values.map((value) =>
    value === null ? 'NULL' : `"${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`,
  )
  return `{${elements.join(',')}}`
}

/** A field of a row: quoted, plain, or null if it is empty. */
const FIELD = /"((?:[^"\\]|""|\\.)*)"|([^",()\\]*)/sy

/** Reads the fields of a row. A row without columns has the text of one with a null, and is read as such. */
export function fromRecord(text: string): (string | null)[] {
  const fields: (string | null)[] = []
  for (let position = 1; position < text.length; ) {
    FIELD.lastIndex = position
    const [whole = '', quoted, plain] = FIELD.exec(text) ?? []
    if (quoted !== undefined) fields.push(quoted.replace(/""|\\(.)/gs, (pair) => pair.slice(1)))
    else fields.push(plain === '' || plain === undefined ? null : plain)
    position += whole.length
    const end = text[position++]
    if (end !== ',' && end !== ')') throw new Error('a row of PostgreSQL must have its text form')
  }
  return fields
}
