import type { ResultColumn } from '../data/sql/evaluate.js'
import { MessageWriter } from '../postgres/message-writer.js'
import type { ClientOutput } from './client-output.js'
import { BINARY_END, BINARY_HEAD, BinaryReader, binaryRow } from './copy-binary.js'
import { CopyReader, type CopyRow, formatRow, isAmong } from './copy-format.js'
import { type RowReader, readTexts } from './copy-in.js'
import type { CopyPlan } from './copy-statement.js'
import { rowContent } from './frames.js'
import { RowStream } from './row-stream.js'

/* The messages of a COPY, in the format that the client has asked for. */

const COPY_DONE = new MessageWriter('c').toBuffer()
const NO_BYTES = Buffer.alloc(0)

const typeIdsOf = (columns: readonly ResultColumn[]): number[] =>
  columns.map(({ typeId }) => Number(typeId))

const namesOf = (columns: readonly ResultColumn[]): string[] => columns.map(({ name }) => name)

/** Returns what reads the rows that a client sends. `bytesMax`: bytes of one row. */
export function copyReader(
  { isBinary, format }: CopyPlan,
  { columns, bytesMax }: { columns: readonly ResultColumn[]; bytesMax: number },
): RowReader {
  return isBinary
    ? new BinaryReader(typeIdsOf(columns), bytesMax)
    : readTexts(new CopyReader(format, { columns: namesOf(columns), lengthMax: bytesMax }))
}

/** Tells the client that rows follow, or that it can send them. */
export function copyResponse(
  type: 'G' | 'H',
  columnCount: number,
  { isBinary }: Pick<CopyPlan, 'isBinary'>,
): Buffer {
  const format = isBinary ? 1 : 0
  const writer = new MessageWriter(type).bytes(Buffer.from([format])).int16(columnCount)
  for (let column = 0; column < columnCount; column++) writer.int16(format)
  return writer.toBuffer()
}

/** Returns what sends rows to a client, and the messages that follow them. */
export function copyStream(
  plan: CopyPlan,
  { output, bytesMax }: { output: ClientOutput; bytesMax: number },
): { readonly stream: RowStream; end(): readonly Buffer[] } {
  const { format, isBinary } = plan
  const toData = (bytes: Buffer) => new MessageWriter('d').bytes(bytes).toBuffer()
  // Clients expect the head in the message of the first row, or of the end.
  let head = BINARY_HEAD
  const toBinaryData = (bytes: Buffer) => {
    const message = toData(Buffer.concat([head, bytes]))
    head = NO_BYTES
    return message
  }
  const textOf = (row: CopyRow, isQuoted?: readonly boolean[]) =>
    toData(Buffer.from(formatRow(row, format, isQuoted)))
  let quoted: { columns: readonly ResultColumn[]; isQuoted: readonly boolean[] } | undefined
  const quotedOf = (columns: readonly ResultColumn[]) => {
    if (quoted?.columns !== columns) {
      quoted = { columns, isQuoted: isAmong(format.force.quote, namesOf(columns)) }
    }
    return quoted.isQuoted
  }
  const stream = new RowStream({
    output,
    begin: (columns) => {
      quotedOf(columns)
      output.write(copyResponse('H', columns.length, plan))
      if (!isBinary && format.hasHeader) output.write(textOf(namesOf(columns)))
    },
    formats: isBinary ? [1] : [],
    isKept: false,
    bytesMax,
    restart: () => {
      head = BINARY_HEAD
    },
    ...(isBinary
      ? {
          toMessage: (row, columns) => toBinaryData(binaryRow(row, typeIdsOf(columns))),
          fromMessage: (message) => toBinaryData(rowContent(message)),
        }
      : { toMessage: (row, columns) => textOf(row, quotedOf(columns)) }),
  })
  return { stream, end: () => (isBinary ? [toBinaryData(BINARY_END), COPY_DONE] : [COPY_DONE]) }
}
