import type { CompiledSchema } from '../session/compiled-schema.js'

/** Lists the sequences of a schema: their names, and the ids of the tables or columns whose values they number. */
export function* sequencesOf({
  tableNames,
  tableByName,
}: CompiledSchema): Generator<[string, number]> {
  for (const name of tableNames) {
    const codec = tableByName(name)
    if (codec === undefined) continue
    if (codec.table.idType === 'int') yield [`${name}_id_seq`, codec.table.id]
    for (const column of codec.sequences) yield [`${name}_${column.name}_seq`, column.id]
  }
}
