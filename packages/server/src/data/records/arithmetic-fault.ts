import type { EncodedUpdate } from '../../rows/columns/record-encoder.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'

/** Returns the paths of the columns that an update calculates. */
export function calculatedPaths(
  { physical }: TableCodec,
  { arithmetic }: Pick<EncodedUpdate, 'arithmetic'>,
): string[] {
  return arithmetic.map(({ column }) => physical[column]?.path.join('.') ?? '')
}

/** Says why the arithmetic of an update has no effect. `textOf` returns the present values of the calculated columns. */
export function arithmeticFault(
  codec: TableCodec,
  update: Pick<EncodedUpdate, 'arithmetic'>,
  textOf: (column: number) => string | null,
): string {
  const empty = update.arithmetic.findIndex(({ column }) => textOf(column) === null)
  return empty < 0
    ? 'the result of the arithmetic cannot be stored exactly'
    : `column [${calculatedPaths(codec, update)[empty]}]: has no value to calculate with`
}
