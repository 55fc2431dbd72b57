import { type ColumnTypeEntry, NOW, selectItself } from './column-type.js'
import { encodeDatetime, isBeyondYears, NO_DATE_OF_YEARS, NOT_REAL } from './datetime-type.js'
import { Fault } from './fault.js'

/*
 * Dates without a time, and times of a day without a date or an offset.
 */

const DATE = /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/
const TIME = /^[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?$/

const NOT_A_DATE = new Fault('is not a date, such as 2026-01-31')
const NOT_A_TIME = new Fault('is not a time of a day, such as 09:30:00')
/** What precedes a time, so that it is checked like the time of a datetime. */
const ANY_DATE = '2000-01-01T'

const NO_SUCH_TIME = new Fault('is a time that does not exist')

/** Returns the text of a date, or a fault. */
export function encodeDate(value: unknown): string | Fault {
  if (typeof value !== 'string') return Fault.expected('a string', value)
  if (!DATE.test(value)) return isBeyondYears(value) ? NO_DATE_OF_YEARS : NOT_A_DATE
  const midnight = encodeDatetime(`${value}T00:00:00Z`)
  return midnight instanceof Fault ? midnight : value
}

/** Returns the text of a time, or a fault. */
export function encodeTime(value: unknown): string | Fault {
  if (typeof value !== 'string') return Fault.expected('a string', value)
  if (!TIME.test(value)) return NOT_A_TIME
  const full = value.length === 5 ? `${value}:00` : value
  const moment = encodeDatetime(`${ANY_DATE}${full}Z`)
  if (moment instanceof Fault) return moment === NOT_REAL ? NO_SUCH_TIME : moment
  // Zeros beyond microseconds are cut off, because PostgreSQL rejects very long texts.
  return moment.slice(ANY_DATE.length, -1)
}

/** The length of `2026-01-31`. */
const DATE_LENGTH = 10

const quoted = (text: string): string => `"${text}"`

export const dateType: ColumnTypeEntry = {
  sqlType: 'date',
  allows: { unique: true, index: true, notNull: true, defaultValue: true, computed: true },
  select: selectItself,
  compile: () => ({ encode: encodeDate, decode: quoted }),
  atMoment: (now) => now.slice(0, DATE_LENGTH),
  parseDefault: (text) => (text === 'now' ? NOW : encodeDate(text)),
}

export const timeType: ColumnTypeEntry = {
  sqlType: 'time',
  allows: { unique: true, index: true, notNull: true, defaultValue: true, computed: true },
  select: selectItself,
  compile: () => ({ encode: encodeTime, decode: quoted }),
  atMoment: (now) => now.slice(DATE_LENGTH + 1, -1),
  parseDefault: (text) => (text === 'now' ? NOW : encodeTime(text)),
}
