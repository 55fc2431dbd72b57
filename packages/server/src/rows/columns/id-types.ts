import type { Limits } from '@offshoot/contract/limits'
import { RECORD_ID_PATTERN } from '@offshoot/contract/names'
import type { IdType, IntBits } from '@offshoot/contract/schema'
import { newRecordId, uuidV7 } from '../../common/ids.js'
import { type ColumnTypeEntry, selectItself } from './column-type.js'
import { Fault } from './fault.js'
import { encodeUuid, TEXT_SQL_TYPE } from './text-types.js'
import { isFollowed, isInRange, rangeWords, wholeRange } from './whole-numbers.js'

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
  /** The largest number of ids of type `int`. */
  readonly numberMax: number
  /** Returns whether the sequence goes on after a number that is given. */
  follows(number: unknown): number is number
}

const RECORD_ID = new RegExp(RECORD_ID_PATTERN)
const WHOLE_NUMBER = /^(?:0|-?[1-9][0-9]*)$/

/** Returns the codec of whole numbers, given as numbers or texts. */
function numberIds(bits: IntBits | undefined): IdCodec {
  const range = wholeRange(bits)
  const refused = new Fault(`is not a whole number ${rangeWords(range)}`)
  return {
    type: 'int',
    encode(id) {
      if (typeof id !== 'number' && typeof id !== 'string') {
        return Fault.expected('a whole number', id)
      }
      if (typeof id === 'string' && !WHOLE_NUMBER.test(id)) return refused
      return isInRange(Number(id), range) ? String(Number(id)) : refused
    },
    create: undefined,
    numberMax: range.max,
    follows: (number) => isFollowed(number, range.max),
  }
}

/** The ids of a table, as it stores them, or as a link does. */
export function idCodec(
  {
    idType: type = 'string',
    idBits,
  }: { readonly idType?: IdType | undefined; readonly idBits?: IntBits | undefined },
  limits: Limits,
): IdCodec {
  const unnumbered = { numberMax: 0, follows: (_: unknown): _ is number => false }
  switch (type) {
    case 'int':
      return numberIds(idBits)
    case 'uuid':
      return { ...unnumbered, type, encode: encodeUuid, create: uuidV7 }
    case 'string':
      return {
        ...unnumbered,
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
    const ids = idCodec(link ?? {}, options.limits)
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
