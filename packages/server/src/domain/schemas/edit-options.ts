import type { Limits } from '@offshoot/contract/limits'
import { momentText } from '../../rows/columns/column-type.js'
import { COLUMN_TYPE_ENTRIES } from '../../rows/columns/column-types.js'
import { Fault } from '../../rows/columns/fault.js'
import type { EditOptions } from './schema-draft.js'

/** Options of schema edits, with validation of default values by column type. */
export function editOptions(options: { limits: Limits; nextId(): number }): EditOptions {
  const { limits, nextId } = options
  const codec = { limits, jsonAsText: false }
  return {
    limits,
    nextId,
    checkDefault(column, text) {
      const { name, type, decimal, enum: values } = column
      const stored = {
        id: 0,
        name,
        type,
        ...(decimal && { decimal }),
        ...(values && { enum: values }),
      }
      const parsed = COLUMN_TYPE_ENTRIES[type].parseDefault(text, stored, codec)
      return parsed instanceof Fault ? parsed.message : undefined
    },
    defaultFill(column) {
      if (column.defaultValue === undefined) return undefined
      const { parseDefault } = COLUMN_TYPE_ENTRIES[column.type]
      const parsed = parseDefault(column.defaultValue, column, codec)
      if (parsed instanceof Fault) return undefined
      return typeof parsed === 'string' ? parsed : momentText(column.type, new Date().toISOString())
    },
  }
}

/** Options of a dry run. Its ids are above all ids in use, and are never stored. */
export function dryRunOptions(limits: Limits): EditOptions {
  let id = Number.MAX_SAFE_INTEGER / 2
  return editOptions({ limits, nextId: () => ++id })
}
