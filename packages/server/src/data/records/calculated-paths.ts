import type { EncodedUpdate } from '../../rows/columns/record-encoder.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'

/** Returns the paths of the columns that an update calculates. */
export function calculatedPaths(
  { physical }: TableCodec,
  { arithmetic }: Pick<EncodedUpdate, 'arithmetic'>,
): string[] {
  return arithmetic.map(({ column }) => physical[column]?.path.join('.') ?? '')
}
