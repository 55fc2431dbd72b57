import Papa from 'papaparse'

/** Writes cells as spreadsheets copy them: tabs between cells, quotes around cells with line breaks. */
export function toTabSeparated(lines: readonly (readonly string[])[]): string {
  return Papa.unparse(lines as string[][], { delimiter: '\t', newline: '\n' })
}

/** Reads cells as spreadsheets copy them. */
export function fromTabSeparated(text: string): string[][] {
  const { data } = Papa.parse<string[]>(text.replace(/\r?\n$/, ''), { delimiter: '\t' })
  return data
}
