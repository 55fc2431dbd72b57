import type { ResultColumn } from '../data/sql/evaluate.js'
import { MessageWriter } from '../postgres/message-writer.js'
import { sizeOf } from './values.js'

const NO_DATA = new MessageWriter('n').toBuffer()

/** The descriptions of columns whose values are texts. A statement that runs again has the same list of columns. */
const textDescriptions = new WeakMap<readonly ResultColumn[], Buffer>()

/**
 * Returns the message that describes the columns of a result. undefined: the statement returns no rows. A query can have rows
 * without columns. `formats`: one for all columns, one for each, or none: texts.
 */
export function rowDescription(
  columns: readonly ResultColumn[] | undefined,
  formats: readonly number[],
): Buffer {
  if (columns === undefined) return NO_DATA
  if (formats.some((format) => format !== 0)) return write(columns, formats)
  let description = textDescriptions.get(columns)
  if (description === undefined) {
    description = write(columns, [])
    textDescriptions.set(columns, description)
  }
  return description
}

/** Returns whether a value is sent as text (0) or in binary (1). `formats`: one for all values, one for each, or none: texts. */
export const formatOf = (formats: readonly number[], index: number): number =>
  (formats.length === 1 ? formats[0] : formats[index]) ?? 0

function write(columns: readonly ResultColumn[], formats: readonly number[]): Buffer {
  const writer = new MessageWriter('T').int16(columns.length)
  for (const [index, { name, typeId }] of columns.entries()) {
    const format = formatOf(formats, index)
    writer.text(name).int32(0).int16(0).int32(Number(typeId))
    writer
      .int16(sizeOf(Number(typeId)))
      .int32(-1)
      .int16(format)
  }
  return writer.toBuffer()
}
