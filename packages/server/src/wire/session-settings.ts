import { unsupported, WireError } from './wire-error.js'

/*
 * The settings of a connection, as SET and SHOW know them. Statements run with the settings of the service, so most are
 * only remembered.
 */

const DATE_STYLE = 'ISO, MDY'
/** Words for the form of dates and for the order of their parts, as PostgreSQL reads them. Others mean other dates. */
const DATE_STYLE_WORD = /^(?:iso|mdy|us|noneuro\w*|default)$/i

/** Returns whether dates are written and read in this style. */
const isDateStyle = (value: string): boolean =>
  value.split(',').every((word) => DATE_STYLE_WORD.test(word.trim()))

interface FixedSetting {
  readonly value: string
  accepts(value: string): boolean
  /** Says why another value is refused: texts would mean something else than the client wants. undefined: it is ignored. */
  refusal?(value: string): string
}

/** What the service does, whatever a client sets. */
const FIXED: Readonly<Record<string, FixedSetting>> = {
  client_encoding: {
    value: 'UTF8',
    accepts: (value) => /^(?:utf-?8|unicode)$/i.test(value),
    refusal: () => 'only the encoding UTF8 is supported',
  },
  datestyle: {
    value: DATE_STYLE,
    accepts: isDateStyle,
    refusal: (value) => `DateStyle can only be "${DATE_STYLE}", not "${value}"`,
  },
  intervalstyle: { value: 'postgres', accepts: (value) => /^postgres$/i.test(value) },
  standard_conforming_strings: {
    value: 'on',
    accepts: (value) => switchOf('standard_conforming_strings', value) === 'on',
    refusal: () => `standard_conforming_strings is always on: write E'...' for escapes`,
  },
  integer_datetimes: { value: 'on', accepts: () => false },
  bytea_output: { value: 'hex', accepts: (value) => value === 'hex' },
  server_encoding: { value: 'UTF8', accepts: () => false },
  transaction_isolation: { value: 'serializable', accepts: (value) => value === 'serializable' },
  default_transaction_isolation: {
    value: 'serializable',
    accepts: (value) => value === 'serializable',
  },
  is_superuser: { value: 'off', accepts: () => false },
  max_identifier_length: { value: '63', accepts: () => false },
  in_hot_standby: { value: 'off', accepts: () => false },
  role: { value: 'none', accepts: () => true },
}

/** Those of them that are also judged if a client sends them when it connects. Some send encodings in quotes. */
const JUDGED_AT_START = new Set(['datestyle', 'standard_conforming_strings'])

/** What a client can set. Most of it is only remembered. */
const REMEMBERED: Readonly<Record<string, string>> = {
  application_name: '',
  client_min_messages: 'notice',
  default_transaction_read_only: 'off',
  extra_float_digits: '1',
  idle_in_transaction_session_timeout: '0',
  lock_timeout: '0',
  row_security: 'on',
  search_path: '"$user", public',
  session_authorization: '',
  statement_timeout: '0',
  timezone: 'UTC',
  transaction_read_only: 'off',
}

/** The settings that a client learns at the start, by the names that it expects. */
const REPORTED = [
  'application_name',
  'client_encoding',
  'DateStyle',
  'default_transaction_read_only',
  'in_hot_standby',
  'integer_datetimes',
  'IntervalStyle',
  'is_superuser',
  'server_encoding',
  'server_version',
  'session_authorization',
  'standard_conforming_strings',
  'TimeZone',
]

const USUAL_NAMES = new Map(REPORTED.map((name) => [name.toLowerCase(), name]))

/** Returns the name of a setting as PostgreSQL writes it. */
export const usualName = (name: string): string => USUAL_NAMES.get(name.toLowerCase()) ?? name

/** Zones that are UTC by another name. */
const UTC = /^(?:utc|gmt|etc\/utc|etc\/gmt|zulu|universal|[+-]?0|[+-]?00(?::00)?)$/i
/** Hours, such as `+02`, and what `set time zone interval` writes. */
const OFFSET = /^(?:[+-]?\d{1,2}(?:\.\d+)?|interval '[+-]?\d{1,2}(?::\d\d){0,2}')$/i

/** Returns whether PostgreSQL knows a zone of times: its names are those of the same public list. */
function isTimeZone(value: string): boolean {
  if (OFFSET.test(value)) return true
  // PostgreSQL reads signs in such a zone the other way round than its users expect.
  if (/^[+-]?\d/.test(value)) return false
  try {
    new Intl.DateTimeFormat('en', { timeZone: value })
    return true
  } catch {
    return false
  }
}

/** Names and values of one connection together take this many characters at most. */
const LENGTH_MAX = 16 * 1024
/** Those that the savepoints of its transaction keep take this many, too. */
const SAVED_LENGTH_MAX = 256 * 1024

/** The setting that is the mode of the open transaction. */
const TRANSACTION_READ_ONLY = 'transaction_read_only'
/** Settings that are on or off. */
const BOOLEANS = new Set(['default_transaction_read_only', TRANSACTION_READ_ONLY])

/** Settings that are times, after which something ends. */
const TIMEOUTS = new Set([
  'idle_in_transaction_session_timeout',
  'lock_timeout',
  'statement_timeout',
])
const TIMEOUT_MAX = 2 ** 31 - 1
/** Milliseconds of the units of times, the largest first. */
const TIME_UNITS = { d: 86_400_000, h: 3_600_000, min: 60_000, s: 1000, ms: 1, us: 0.001 }

/** Returns a value as SHOW returns it. Throws if the setting cannot have it. */
function validValue(name: string, value: string): string {
  const key = name.toLowerCase()
  requireMeaning(key, value)
  if (key === 'timezone' && !isTimeZone(value)) throw invalidValue('TimeZone', value)
  if (TIMEOUTS.has(key)) return timeoutText(key, value)
  return BOOLEANS.has(key) ? switchOf(name, value) : value
}

const invalidValue = (name: string, value: string) =>
  new WireError('22023', `invalid value for parameter "${name}": "${value}"`)

/** Returns a time in the largest unit that it has a whole number of. */
function timeoutText(name: string, value: string): string {
  const count = millisecondsOf(value)
  if (count === undefined) throw invalidValue(name, value)
  if (count < 0 || count > TIMEOUT_MAX) {
    throw new WireError(
      '22023',
      `${count} ms is outside the valid range for parameter "${name}" (0 ms .. ${TIMEOUT_MAX} ms)`,
    )
  }
  if (count === 0) return '0'
  const [unit, factor] = Object.entries(TIME_UNITS).find(([, each]) => count % each === 0) ?? []
  return `${count / (factor ?? 1)}${unit}`
}

/** Returns the milliseconds of a time. undefined: it is none. */
function millisecondsOf(text: string): number | undefined {
  const [, count, unit = 'ms'] =
    /^\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*(d|h|min|s|ms|us)?\s*$/.exec(text) ?? []
  if (count === undefined) return undefined
  return Math.round(Number(count) * TIME_UNITS[unit as keyof typeof TIME_UNITS])
}

/** Returns whether a setting is on or off. */
function switchOf(name: string, value: string): 'on' | 'off' {
  // As in PostgreSQL, the beginning of a word is enough.
  if (/^(?:on|t(?:r(?:ue?)?)?|y(?:es?)?|1)$/i.test(value.trim())) return 'on'
  if (/^(?:off?|f(?:a(?:l(?:se?)?)?)?|no?|0)$/i.test(value.trim())) return 'off'
  throw new WireError('22023', `parameter "${name}" requires a Boolean value`)
}

/** Throws if texts would have to be read in another way, because they would mean something else than the client wants. */
function requireMeaning(key: string, value: string): void {
  const { accepts, refusal } = FIXED[key] ?? {}
  if (refusal !== undefined && !accepts?.(value)) throw unsupported(refusal(value))
}

/** The transaction that is open, as far as it is a setting. */
interface TransactionMode {
  readonly isReadOnly: boolean
  setReadOnly(isReadOnly: boolean): void
}

/** What was set at a savepoint. */
interface SavedSettings {
  readonly set: ReadonlyMap<string, string>
  readonly local: ReadonlyMap<string, string>
}

/** What follows from the settings. */
interface CurrentSettings {
  readonly reported: readonly (readonly [string, string])[]
  readonly statementTimeoutMs: number
  readonly lockTimeoutMs: number
  readonly timeZone: string | undefined
  readonly allowsDataLoss: boolean
  readonly isReadOnlyByDefault: boolean
}

export class SessionSettings {
  readonly #initial: ReadonlyMap<string, string>
  #set: ReadonlyMap<string, string> = new Map()
  /** What SET LOCAL has set, up to the end of the transaction. */
  #local: ReadonlyMap<string, string> = new Map()
  /** What was set when the transaction began. */
  #before: ReadonlyMap<string, string> | undefined
  /** What was set when each of its savepoints was made. */
  #saved: SavedSettings[] = []
  #transaction: TransactionMode | undefined
  /** What each statement asks for, until a setting changes. */
  #current: CurrentSettings | undefined

  /** `given` are the settings that the client has sent when it connected, and those of the service. */
  constructor(given: Readonly<Record<string, string>>) {
    this.#initial = new Map(
      Object.entries({ ...REMEMBERED, ...given }).map(([name, value]) => [
        name.toLowerCase(),
        validValue(name, value),
      ]),
    )
  }

  /** A transaction begins. */
  begin(transaction?: TransactionMode): void {
    this.#before = this.#set
    this.#transaction = transaction
  }

  /** A transaction ends. */
  end({ isKept }: { isKept: boolean }): void {
    this.#current = undefined
    if (!isKept && this.#before !== undefined) this.#set = this.#before
    this.#before = undefined
    this.#saved = []
    this.#transaction = undefined
    this.#local = new Map()
  }

  /** The transaction makes a savepoint, after `depth` others. */
  save(depth: number): void {
    this.#saved.length = depth
    this.#saved.push({ set: this.#set, local: this.#local })
  }

  /** The transaction returns to a savepoint, which is after `depth` others. */
  returnTo(depth: number): void {
    const saved = this.#saved[depth]
    if (saved === undefined) return
    this.#current = undefined
    this.#set = saved.set
    this.#local = saved.local
    this.#saved.length = depth + 1
  }

  /** Runs work as a transaction of its own, unless one is open. */
  async duringTransaction<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#before !== undefined) return work()
    this.begin()
    try {
      const result = await work()
      this.end({ isKept: true })
      return result
    } catch (error) {
      this.end({ isKept: false })
      throw error
    }
  }

  /** Sets a value, with `isLocal` up to the end of the transaction. Returns a notice if it has no effect. */
  set(name: string, given: string, { isLocal = false } = {}): string | undefined {
    const key = name.toLowerCase()
    if (key === 'role' || key === 'session_authorization') {
      // Tools for migrations set the role back to their own after each step.
      const isOwn = given === this.#initial.get('session_authorization')
      if (isOwn || (key === 'role' && given === 'none')) return undefined
      throw unsupported('the role of a connection is that of its API key')
    }
    if (isLocal && this.#before === undefined) {
      return 'SET LOCAL can only be used in transaction blocks'
    }
    const fixed = FIXED[key]
    if (fixed !== undefined) {
      if (fixed.accepts(given)) return undefined
      requireMeaning(key, given)
      return `"${name}" is always ${fixed.value}: the new value is ignored`
    }
    const value = validValue(name, given)
    if (key === TRANSACTION_READ_ONLY) {
      this.#transaction?.setReadOnly(value === 'on')
      return undefined
    }
    this.#requireSpace(key.length + value.length)
    this.#current = undefined
    // Savepoints keep what was set before.
    if (isLocal) this.#local = new Map(this.#local).set(key, value)
    else {
      this.#set = new Map(this.#set).set(key, value)
      this.#local = without(this.#local, key)
    }
    if (this.#initial.has(key) || key.includes('.')) return undefined
    return `"${name}" has no effect here`
  }

  /** Throws if there is no space for another value of this length. */
  #requireSpace(length: number): void {
    const own = lengthOf(this.#set) + lengthOf(this.#local)
    const saved = new Set(this.#saved.flatMap(({ set, local }) => [set, local]))
    const kept = [...saved].reduce((sum, values) => sum + lengthOf(values), 0)
    for (const [taken, max, what] of [
      [own, LENGTH_MAX, 'a connection'],
      [own + kept, SAVED_LENGTH_MAX, 'a connection with their values at its savepoints'],
    ] as const) {
      if (taken + length <= max) continue
      throw new WireError('54000', `the settings of ${what} take more than ${max} characters`)
    }
  }

  reset(name: string | undefined): void {
    this.#current = undefined
    this.#set = without(this.#set, name?.toLowerCase())
    this.#local = without(this.#local, name?.toLowerCase())
  }

  find(name: string): string | undefined {
    const key = name.toLowerCase().replace(/^transaction isolation level$/, 'transaction_isolation')
    if (key === TRANSACTION_READ_ONLY) {
      const isReadOnly = this.#transaction?.isReadOnly ?? this.isReadOnlyByDefault
      return isReadOnly ? 'on' : 'off'
    }
    return FIXED[key]?.value ?? this.#local.get(key) ?? this.#set.get(key) ?? this.#initial.get(key)
  }

  get(name: string): string {
    const value = this.find(name)
    if (value !== undefined) return value
    throw new WireError('42704', `unrecognized configuration parameter "${name}"`)
  }

  /** All settings, by name. */
  get all(): readonly (readonly [string, string])[] {
    const names = new Set([...Object.keys(FIXED), ...this.#initial.keys(), ...this.#set.keys()])
    return [...names].sort().map((name) => [name, this.get(name)])
  }

  get #derived(): CurrentSettings {
    if (this.#current !== undefined) return this.#current
    const zone = this.get('timezone')
    this.#current = {
      reported: REPORTED.map((name) => [name, this.find(name) ?? '']),
      statementTimeoutMs: millisecondsOf(this.get('statement_timeout')) ?? 0,
      lockTimeoutMs: millisecondsOf(this.get('lock_timeout')) ?? 0,
      timeZone: UTC.test(zone) ? undefined : zone,
      allowsDataLoss: /^(?:on|true|yes|1)$/i.test(this.find('offshoot.allow_data_loss') ?? ''),
      isReadOnlyByDefault: this.get('default_transaction_read_only') === 'on',
    }
    return this.#current
  }

  /** The settings that the client is told. It is the same list until a setting changes. */
  get reported(): CurrentSettings['reported'] {
    return this.#derived.reported
  }

  /** Milliseconds that a statement may take; 0 if the client has set no limit. */
  get statementTimeoutMs(): number {
    return this.#derived.statementTimeoutMs
  }

  /** Milliseconds that a statement may wait for an advisory lock; 0 if the client has set no limit. */
  get lockTimeoutMs(): number {
    return this.#derived.lockTimeoutMs
  }

  /** Whether the client wants to know what is less than a warning. */
  get wantsNotices(): boolean {
    return !/^(?:warning|error|fatal|panic)$/i.test(this.get('client_min_messages'))
  }

  /** The zone of times in results; undefined for UTC. */
  get timeZone(): string | undefined {
    return this.#derived.timeZone
  }

  /** Whether transactions only read unless they say otherwise, also those of single statements. */
  get isReadOnlyByDefault(): boolean {
    return this.#derived.isReadOnlyByDefault
  }

  /** Whether statements may remove tables and columns that hold values: `set offshoot.allow_data_loss = on`. */
  get allowsDataLoss(): boolean {
    return this.#derived.allowsDataLoss
  }
}

function lengthOf(values: ReadonlyMap<string, string>): number {
  let length = 0
  for (const [name, text] of values) length += name.length + text.length
  return length
}

/** Returns values without one of them, or without all. */
function without(values: ReadonlyMap<string, string>, name: string | undefined) {
  if (name === undefined) return new Map<string, string>()
  return new Map([...values].filter(([each]) => each !== name))
}

/** Returns the settings that a client sends when it connects, by names that are known here. */
export function initialSettings(startup: ReadonlyMap<string, string>): Record<string, string> {
  const options = (startup.get('options') ?? '').matchAll(/(?:-c\s*|--)([\w.]+)=((?:\\.|\S)*)/g)
  // A backslash makes the next character, such as a space, a part of the value.
  const unescaped = Array.from(
    options,
    ([, name = '', value = '']) => [name, value.replace(/\\(.)/g, '$1')] as const,
  )
  const given = [...startup, ...unescaped]
  return Object.fromEntries(
    given
      .map(([name, value]) => [name.toLowerCase(), value] as const)
      .filter(([name]) => JUDGED_AT_START.has(name) || name in REMEMBERED)
      .filter(([name]) => name !== 'session_authorization'),
  )
}
