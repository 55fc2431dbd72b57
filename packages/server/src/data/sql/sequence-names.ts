import type { CompiledSchema } from '../session/compiled-schema.js'

/** A sequence, and the table or column whose values it numbers. */
export interface NamedSequence {
  readonly name: string
  readonly itemId: number
  /** The greatest number that its values can be. */
  readonly max: number
}

/** Lists the sequences of a schema. */
export function* sequencesOf({
  tableNames,
  tableByName,
}: CompiledSchema): Generator<NamedSequence> {
  for (const table of tableNames) {
    const codec = tableByName(table)
    if (codec === undefined) continue
    const { id, idType } = codec.table
    if (idType === 'int') {
      yield { name: `${table}_id_seq`, itemId: id, max: codec.ids.numberMax }
    }
    for (const { id: itemId, name, max } of codec.sequences) {
      yield { name: `${table}_${name}_seq`, itemId, max }
    }
  }
}
