import type { Limits } from '@offshoot/contract/limits'
import { RECORD_ID_PATTERN } from '@offshoot/contract/names'
import type { IdType } from '@offshoot/contract/schema'
import { newRecordId, uuidV7 } from '../../common/ids.js'
import { type ColumnTypeEntry, selectItself } from './column-type.js'
import { Fault } from './fault.js'
import { encodeUuid, TEXT_SQL_TYPE } from './text-types.js'

/*
 * All ids are stored as texts, so that everything that only compares ids for equality need not know their type. Those
 * of a table with another type are in its canonical form. Where the order matters, they are cast, and indexed as such.
 */

/** The ids of a table. */
export interface IdCodec {
  readonly type: IdType
  /** Returns the text of an id as it is stored, or a fault. */
  encode(id: unknown): string | Fault
  /** Returns a new id. undefined: ids are numbers of a sequence. */
  readonly create: (() => string) | undefined
}

const RECORD_ID = new RegExp(RECORD_ID_PATTERN)
const WHOLE_NUMBER = /^(?:0|-?[1-9][0-9]*)$/
const NOT_A_NUMBER = new Fault(
  `is not a whole number between -${Number.MAX_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}`,
)

/** Returns the text of a whole number, given as a number or a text. */
function encodeNumberId(id: unknown): string | Fault {
  if (typeof id !== 'number' && typeof id !== 'string') return Fault.expected('a whole number', id)
  if (typeof id === 'string' && !WHOLE_NUMBER.test(id)) return NOT_A_NUMBER
  return Number.isSafeInteger(Number(id)) ? String(Number(id)) : NOT_A_NUMBER
}

export function idCodec(type: IdType = 'string', limits: Limits): IdCodec {
  switch (type) {
    case 'int':
      return { type, encode: encodeNumberId, create: undefined }
    case 'uuid':
      return { type, encode: encodeUuid, create: uuidV7 }
    case 'string':
      return {
        type,
        encode: (id) => checkRecordId(id, limits.nameLengthMax) ?? (id as string),
        create: newRecordId,
      }
  }
}

function checkRecordId(id: unknown, lengthMax: number): Fault | undefined {
  if (typeof id !== 'string') return Fault.expected('a record id', id)
  if (id === '') return new Fault('is empty; a record id has at least one character')
  if (id.length > lengthMax) return new Fault(`is longer than ${lengthMax} characters`)
  if (RECORD_ID.test(id)) return undefined
  return new Fault('is not a record id: only letters, digits and _ - ~ : ` { | } are allowed')
}

export const linkType: ColumnTypeEntry = {
  sqlType: TEXT_SQL_TYPE,
  allows: { unique: true, index: true, notNull: false, defaultValue: false },
  select: selectItself,
  compile({ link }, options) {
    const ids = idCodec(link?.idType, options.limits)
    return {
      encode(value) {
        // Links are also accepted as `{id}` and expanded, so that a record can be written as it was read.
        const id =
          typeof value === 'object' && value !== null && Object.hasOwn(value, 'id')
            ? (value as { id: unknown }).id
            : value
        return ids.encode(id)
      },
      // Characters of a record id never need escaping.
      decode: (text) => `{"id":"${text}"}`,
    }
  },
  parseDefault: () => new Fault('is not possible for a link'),
}
