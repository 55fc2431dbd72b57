import { TEXT } from '../dialect/declared-types.js'
import { parseArray } from '../postgres/array-literal.js'
import { arrayLiteral } from '../postgres/carriers.js'
import { textIn } from './frames.js'
import { decodeNetwork, encodeNetwork } from './network-values.js'
import { decodeMultirange, decodeRange, encodeMultirange, encodeRange } from './range-values.js'
import { invalidBinary, unsupported } from './wire-error.js'

/*
 * Values are sent to PostgreSQL and read from it as texts. Clients may send and ask for the binary form of the types that
 * columns and expressions have. Both forms are those of PostgreSQL.
 */

interface ValueType {
  readonly name: string
  readonly arrayId: number
  /** Bytes of the binary form; -1 if they vary. */
  readonly bytes: number
  encode(text: string): Buffer
  decode(bytes: Buffer): string
}

const plainText = {
  bytes: -1,
  encode: (text: string) => Buffer.from(text),
  decode: textIn,
}

/** Writes numbers of a fixed size. */
function sized(
  bytes: number,
  write: (buffer: Buffer, text: string) => void,
  decode: (buffer: Buffer) => string,
): Pick<ValueType, 'bytes' | 'encode' | 'decode'> {
  return {
    bytes,
    encode(text) {
      const buffer = Buffer.alloc(bytes)
      write(buffer, text)
      return buffer
    },
    decode(buffer) {
      if (buffer.length !== bytes) throw invalidBinary()
      return decode(buffer)
    },
  }
}

const float = (text: string): number => (text === 'NaN' ? Number.NaN : Number(text))

const floatText = (value: number): string =>
  Object.is(value, -0) ? '-0' : Number.isFinite(value) ? String(value) : floatName(value)

const floatName = (value: number): string =>
  Number.isNaN(value) ? 'NaN' : value > 0 ? 'Infinity' : '-Infinity'

/**
 * Reads an integer of any size. A column that was declared as `integer` is one of 8 bytes here, and clients of COPY in binary
 * form send the type that they have declared.
 */
function decodeInteger(bytes: Buffer): string {
  if (bytes.length === 2) return String(bytes.readInt16BE())
  if (bytes.length === 4) return String(bytes.readInt32BE())
  if (bytes.length !== 8) throw invalidBinary()
  return String(bytes.readBigInt64BE())
}

/** Reads a number that was declared as `real` or as `double precision`. */
function decodeFloat(bytes: Buffer): string {
  if (bytes.length === 4) return floatText(bytes.readFloatBE())
  if (bytes.length !== 8) throw invalidBinary()
  return floatText(bytes.readDoubleBE())
}

/** Times are counted from the start of the year 2000. */
const EPOCH_MS = Date.UTC(2000, 0, 1)
const DAY_MS = 86_400_000
const [INFINITE, MINUS_INFINITE] = [2n ** 63n - 1n, -(2n ** 63n)]
const [INFINITE_DAY, MINUS_INFINITE_DAY] = [2 ** 31 - 1, -(2 ** 31)]

const TIMESTAMP =
  /^(\d{4,6})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?(?:Z|([+-])(\d\d)(?::?(\d\d))?)?( BC)?$/

function toMicroseconds(text: string): bigint {
  if (text === 'infinity') return INFINITE
  if (text === '-infinity') return MINUS_INFINITE
  const found = TIMESTAMP.exec(text)
  if (found === null) throw unsupported(`the time [${text}] has no binary form here`)
  const [, year, month, day, hour = 0, minute = 0, second = 0, fraction = '', sign] = found
  const date = new Date(0)
  date.setUTCFullYear(
    found[11] === undefined ? Number(year) : 1 - Number(year),
    Number(month) - 1,
    Number(day),
  )
  if (Number.isNaN(date.getTime())) throw unsupported(`the time [${text}] has no binary form here`)
  const zone = (Number(found[9] ?? 0) * 60 + Number(found[10] ?? 0)) * (sign === '-' ? -1 : 1)
  const ms = date.getTime() - EPOCH_MS + (Number(hour) * 60 + Number(minute) - zone) * 60_000
  return BigInt(ms + Number(second) * 1000) * 1000n + BigInt(fraction.padEnd(6, '0'))
}

/** Divides and rounds down, also below zero. */
const floorDivide = (value: bigint, by: bigint): bigint => {
  const quotient = value / by
  return value % by < 0n ? quotient - 1n : quotient
}

function fromMicroseconds(value: bigint, zone: string): string {
  if (value === INFINITE) return 'infinity'
  if (value === MINUS_INFINITE) return '-infinity'
  const seconds = floorDivide(value, 1_000_000n)
  const fraction = String(value - seconds * 1_000_000n).padStart(6, '0')
  const date = new Date(Number(seconds) * 1000 + EPOCH_MS)
  if (Number.isNaN(date.getTime())) throw invalidBinary()
  const year = date.getUTCFullYear()
  const shownYear = String(year > 0 ? year : 1 - year).padStart(4, '0')
  const rest = date
    .toISOString()
    .replace(/^[+-]?\d+/, '')
    .slice(0, 15)
    .replace('T', ' ')
  return `${shownYear}${rest}.${fraction}${zone}${year > 0 ? '' : ' BC'}`
}

const timestamp = (zone: string) =>
  sized(
    8,
    (buffer, text) => buffer.writeBigInt64BE(toMicroseconds(text)),
    (buffer) => fromMicroseconds(buffer.readBigInt64BE(), zone),
  )

function toDays(text: string): number {
  if (text === 'infinity') return INFINITE_DAY
  if (text === '-infinity') return MINUS_INFINITE_DAY
  return Number(toMicroseconds(text) / 1000n) / DAY_MS
}

function fromDays(days: number): string {
  if (days === INFINITE_DAY) return 'infinity'
  if (days === MINUS_INFINITE_DAY) return '-infinity'
  const text = fromMicroseconds(BigInt(days) * BigInt(DAY_MS) * 1000n, '')
  return text.replace(/ \d\d:\d\d:\d\d\.\d+/, '')
}

function timeMicroseconds(text: string): bigint {
  const [, hour, minute, second, fraction = ''] =
    /^(\d\d):(\d\d):(\d\d)(?:\.(\d+))?$/.exec(text) ?? []
  const seconds = (Number(hour) * 60 + Number(minute)) * 60 + Number(second)
  return BigInt(seconds) * 1_000_000n + BigInt(fraction.padEnd(6, '0'))
}

function timeText(value: bigint): string {
  const [seconds, fraction] = [
    Number(value / 1_000_000n),
    String(value % 1_000_000n).padStart(6, '0'),
  ]
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60]
  return `${parts.map((part) => String(part).padStart(2, '0')).join(':')}.${fraction}`
}

const ZONED_TIME = /^(.*?)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?$/

/** A time in a zone has the microseconds of its day, and the seconds that its zone is behind UTC. */
function encodeTimeInZone(buffer: Buffer, text: string): void {
  const [, time = '', sign, ...parts] = ZONED_TIME.exec(text) ?? []
  const [hours = 0, minutes = 0, seconds = 0] = parts.map((part) => Number(part ?? 0))
  const ahead = (hours * 60 + minutes) * 60 + seconds
  buffer.writeBigInt64BE(timeMicroseconds(time), 0)
  buffer.writeInt32BE(sign === '-' ? ahead : -ahead, 8)
}

function decodeTimeInZone(buffer: Buffer): string {
  const behind = buffer.readInt32BE(8)
  const size = Math.abs(behind)
  const parts = [Math.floor(size / 3600), Math.floor(size / 60) % 60, size % 60]
  const zone = parts.map((part) => String(part).padStart(2, '0')).join(':')
  return `${timeText(buffer.readBigInt64BE(0))}${behind > 0 ? '-' : '+'}${zone}`
}

/** An amount has no unit in its binary form, only hundredths. */
function moneyText(value: bigint): string {
  const digits = String(value < 0n ? -value : value).padStart(3, '0')
  return `${value < 0n ? '-' : ''}${digits.slice(0, -2)}.${digits.slice(-2)}`
}

const INTERVAL =
  /^(?:(-?\d+) years? ?)?(?:\+?(-?\d+) mons? ?)?(?:\+?(-?\d+) days? ?)?(?:([+-])?(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?$/

/** An interval has microseconds, days and months. */
function encodeInterval(buffer: Buffer, text: string): void {
  if (text === 'infinity' || text === '-infinity') {
    writeInfiniteInterval(buffer, text)
    return
  }
  const found = INTERVAL.exec(text)
  if (found === null) throw unsupported(`the interval [${text}] has no binary form here`)
  const [years = 0, months = 0, days = 0] = found.slice(1, 4).map((part) => Number(part ?? 0))
  const [hours, minutes, seconds] = found.slice(5, 8).map((part) => BigInt(part ?? 0))
  const whole = ((hours ?? 0n) * 60n + (minutes ?? 0n)) * 60n + (seconds ?? 0n)
  const microseconds = whole * 1_000_000n + BigInt((found[8] ?? '').padEnd(6, '0'))
  buffer.writeBigInt64BE(found[4] === '-' ? -microseconds : microseconds, 0)
  buffer.writeInt32BE(days, 8)
  buffer.writeInt32BE(years * 12 + months, 12)
}

function writeInfiniteInterval(buffer: Buffer, text: string): void {
  const isPositive = text === 'infinity'
  buffer.writeBigInt64BE(isPositive ? INFINITE : MINUS_INFINITE, 0)
  buffer.writeInt32BE(isPositive ? INFINITE_DAY : MINUS_INFINITE_DAY, 8)
  buffer.writeInt32BE(isPositive ? INFINITE_DAY : MINUS_INFINITE_DAY, 12)
}

function decodeInterval(buffer: Buffer): string {
  const value = buffer.readBigInt64BE(0)
  if (value === INFINITE && buffer.readInt32BE(12) === INFINITE_DAY) return 'infinity'
  if (value === MINUS_INFINITE && buffer.readInt32BE(12) === MINUS_INFINITE_DAY) return '-infinity'
  const [sign, size] = value < 0n ? ['-', -value] : ['+', value]
  const [seconds, fraction] = [size / 1_000_000n, String(size % 1_000_000n).padStart(6, '0')]
  const parts = [seconds / 3600n, (seconds / 60n) % 60n, seconds % 60n]
  const clock = parts.map((part) => String(part).padStart(2, '0')).join(':')
  return `${buffer.readInt32BE(12)} mons ${buffer.readInt32BE(8)} days ${sign}${clock}.${fraction}`
}

/** The digits of a number are sent in groups of four. */
const GROUP = 4
const SIGNS: Readonly<Record<string, number>> = {
  NaN: 0xc000,
  Infinity: 0xd000,
  '-Infinity': 0xf000,
}
/** The scale that PostgreSQL gives infinite numbers. */
const INFINITE_SCALE = 32

function encodeNumeric(text: string): Buffer {
  const special = SIGNS[text]
  const [, sign = '', whole = '', fraction = ''] = /^(-?)(\d*)(?:\.(\d*))?$/.exec(text) ?? []
  const padded = whole.padStart(Math.ceil(whole.length / GROUP) * GROUP, '0')
  const all = padded + fraction.padEnd(Math.ceil(fraction.length / GROUP) * GROUP, '0')
  const groups = special === undefined ? (all.match(/\d{4}/g) ?? []).map(Number) : []
  let weight = padded.length / GROUP - 1
  while (groups[0] === 0) {
    groups.shift()
    weight--
  }
  while (groups.at(-1) === 0) groups.pop()
  const buffer = Buffer.alloc(8 + 2 * groups.length)
  buffer.writeUInt16BE(groups.length, 0)
  buffer.writeInt16BE(groups.length === 0 ? 0 : weight, 2)
  buffer.writeUInt16BE(special ?? (sign === '' ? 0 : 0x4000), 4)
  const isInfinite = special !== undefined && text !== 'NaN'
  buffer.writeUInt16BE(isInfinite ? INFINITE_SCALE : fraction.length, 6)
  for (const [index, group] of groups.entries()) buffer.writeUInt16BE(group, 8 + 2 * index)
  return buffer
}

function decodeNumeric(buffer: Buffer): string {
  if (buffer.length < 8) throw invalidBinary()
  const [count, weight, sign, scale] = [
    buffer.readUInt16BE(0),
    buffer.readInt16BE(2),
    buffer.readUInt16BE(4),
    buffer.readUInt16BE(6),
  ]
  const special = Object.entries(SIGNS).find(([, value]) => value === sign)?.[0]
  if (special !== undefined) return special
  if (buffer.length !== 8 + 2 * count || count > 10_000) throw invalidBinary()
  const group = (index: number) =>
    String(index >= 0 && index < count ? buffer.readUInt16BE(8 + 2 * index) : 0).padStart(
      GROUP,
      '0',
    )
  let whole = ''
  for (let index = 0; index <= weight; index++) whole += group(index)
  let fraction = ''
  for (let index = weight + 1; fraction.length < scale; index++) fraction += group(index)
  const digits = `${whole.replace(/^0+(?=\d)/, '') || '0'}${scale > 0 ? `.${fraction.slice(0, scale)}` : ''}`
  return sign === 0x4000 ? `-${digits}` : digits
}

const network = ({
  isCidr,
}: {
  isCidr: boolean
}): Pick<ValueType, 'bytes' | 'encode' | 'decode'> => ({
  bytes: -1,
  encode: (text) => encodeNetwork(text, { isCidr }),
  decode: decodeNetwork,
})

/** Ranges by their oids: the name, the oid of its array and of its bounds. */
const RANGES: readonly (readonly [id: number, name: string, arrayId: number, boundId: number])[] = [
  [3904, 'int4range', 3905, 23],
  [3906, 'numrange', 3907, 1700],
  [3908, 'tsrange', 3909, 1114],
  [3910, 'tstzrange', 3911, 1184],
  [3912, 'daterange', 3913, 1082],
  [3926, 'int8range', 3927, 20],
]
const MULTIRANGES: typeof RANGES = [
  [4451, 'int4multirange', 6150, 23],
  [4532, 'nummultirange', 6151, 1700],
  [4533, 'tsmultirange', 6152, 1114],
  [4534, 'tstzmultirange', 6153, 1184],
  [4535, 'datemultirange', 6155, 1082],
  [4536, 'int8multirange', 6157, 20],
]

const TYPES: ReadonlyMap<number, ValueType> = new Map<number, ValueType>([
  ...RANGES.map(([id, name, arrayId, boundId]): [number, ValueType] => [
    id,
    {
      name,
      arrayId,
      bytes: -1,
      encode: (text) => encodeRange(text, typeOf(boundId)),
      decode: (bytes) => decodeRange(bytes, typeOf(boundId)),
    },
  ]),
  ...MULTIRANGES.map(([id, name, arrayId, boundId]): [number, ValueType] => [
    id,
    {
      name,
      arrayId,
      bytes: -1,
      encode: (text) => encodeMultirange(text, typeOf(boundId)),
      decode: (bytes) => decodeMultirange(bytes, typeOf(boundId)),
    },
  ]),
  [
    16,
    {
      name: 'bool',
      arrayId: 1000,
      ...sized(
        1,
        (buffer, text) => buffer.writeUInt8(text === 't' || text === 'true' ? 1 : 0),
        (buffer) => (buffer[0] === 0 ? 'false' : 'true'),
      ),
    },
  ],
  [
    17,
    {
      name: 'bytea',
      arrayId: 1001,
      bytes: -1,
      encode: (text) => Buffer.from(text.slice(2), 'hex'),
      decode: (bytes) => `\\x${bytes.toString('hex')}`,
    },
  ],
  [
    20,
    {
      name: 'int8',
      arrayId: 1016,
      ...sized(
        8,
        (buffer, text) => buffer.writeBigInt64BE(BigInt(text)),
        (buffer) => String(buffer.readBigInt64BE()),
      ),
      decode: decodeInteger,
    },
  ],
  [
    21,
    {
      name: 'int2',
      arrayId: 1005,
      ...sized(
        2,
        (buffer, text) => buffer.writeInt16BE(Number(text)),
        (buffer) => String(buffer.readInt16BE()),
      ),
    },
  ],
  [
    23,
    {
      name: 'int4',
      arrayId: 1007,
      ...sized(
        4,
        (buffer, text) => buffer.writeInt32BE(Number(text)),
        (buffer) => String(buffer.readInt32BE()),
      ),
    },
  ],
  [25, { name: 'text', arrayId: 1009, ...plainText }],
  [
    26,
    {
      name: 'oid',
      arrayId: 1028,
      ...sized(
        4,
        (buffer, text) => buffer.writeUInt32BE(Number(text)),
        (buffer) => String(buffer.readUInt32BE()),
      ),
    },
  ],
  [114, { name: 'json', arrayId: 199, ...plainText }],
  [
    700,
    {
      name: 'float4',
      arrayId: 1021,
      ...sized(
        4,
        (buffer, text) => buffer.writeFloatBE(float(text)),
        (buffer) => floatText(buffer.readFloatBE()),
      ),
    },
  ],
  [
    701,
    {
      name: 'float8',
      arrayId: 1022,
      ...sized(
        8,
        (buffer, text) => buffer.writeDoubleBE(float(text)),
        (buffer) => floatText(buffer.readDoubleBE()),
      ),
      decode: decodeFloat,
    },
  ],
  [705, { name: 'unknown', arrayId: 0, ...plainText }],
  [1042, { name: 'bpchar', arrayId: 1014, ...plainText }],
  [1043, { name: 'varchar', arrayId: 1015, ...plainText }],
  [
    1082,
    {
      name: 'date',
      arrayId: 1182,
      ...sized(
        4,
        (buffer, text) => buffer.writeInt32BE(toDays(text)),
        (buffer) => fromDays(buffer.readInt32BE()),
      ),
    },
  ],
  [
    1083,
    {
      name: 'time',
      arrayId: 1183,
      ...sized(
        8,
        (buffer, text) => buffer.writeBigInt64BE(timeMicroseconds(text)),
        (buffer) => timeText(buffer.readBigInt64BE()),
      ),
    },
  ],
  [18, { name: 'char', arrayId: 1002, ...plainText }],
  [19, { name: 'name', arrayId: 1003, ...plainText }],
  [650, { name: 'cidr', arrayId: 651, ...network({ isCidr: true }) }],
  [
    790,
    {
      name: 'money',
      arrayId: 791,
      ...sized(
        8,
        (buffer, text) => buffer.writeBigInt64BE(BigInt(text.replace(/[^\d-]/g, ''))),
        (buffer) => moneyText(buffer.readBigInt64BE()),
      ),
    },
  ],
  [
    829,
    {
      name: 'macaddr',
      arrayId: 1040,
      ...sized(
        6,
        (buffer, text) => void buffer.write(text.replaceAll(':', ''), 'hex'),
        (buffer) => buffer.toString('hex').replace(/(..)(?=.)/g, '$1:'),
      ),
    },
  ],
  [869, { name: 'inet', arrayId: 1041, ...network({ isCidr: false }) }],
  [1114, { name: 'timestamp', arrayId: 1115, ...timestamp('') }],
  [1184, { name: 'timestamptz', arrayId: 1185, ...timestamp('+00') }],
  [1266, { name: 'timetz', arrayId: 1270, ...sized(12, encodeTimeInZone, decodeTimeInZone) }],
  [1186, { name: 'interval', arrayId: 1187, ...sized(16, encodeInterval, decodeInterval) }],
  [
    1700,
    { name: 'numeric', arrayId: 1231, bytes: -1, encode: encodeNumeric, decode: decodeNumeric },
  ],
  [2278, { name: 'void', arrayId: 0, ...plainText }],
  [
    2950,
    {
      name: 'uuid',
      arrayId: 2951,
      ...sized(
        16,
        (buffer, text) => void buffer.write(text.replaceAll('-', ''), 'hex'),
        (buffer) =>
          buffer.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5'),
      ),
    },
  ],
  [
    3802,
    {
      name: 'jsonb',
      arrayId: 3807,
      bytes: -1,
      encode: (text) => Buffer.concat([Buffer.from([1]), Buffer.from(text)]),
      decode: (bytes) => bytes.toString('utf8', 1),
    },
  ],
])

const ELEMENTS: ReadonlyMap<number, number> = new Map(
  [...TYPES].map(([typeId, { arrayId }]) => [arrayId, typeId]),
)

const IDS: ReadonlyMap<string, number> = new Map([...TYPES].map(([id, { name }]) => [name, id]))

/** Returns the oid of a type that a statement names, or 0 if it is not known here. */
export function typeIdOf(name: string, { isArray }: { isArray: boolean }): number {
  const id = IDS.get(name) ?? 0
  return isArray ? (TYPES.get(id)?.arrayId ?? 0) : id
}

/** Types of texts. A statement may compare their values with anything that has the same text. */
const TEXTS = new Set([18, 19, 25, 1042, 1043])
/** Types that tell nothing. */
const UNKNOWN = new Set([705, 2278])

/** Returns the name of a declared type, or undefined if PostgreSQL infers it. */
export function declaredName(typeId: number): string | undefined {
  const element = ELEMENTS.get(typeId)
  if (element !== undefined && typeId !== 0) return `${TYPES.get(element)?.name}[]`
  if (TEXTS.has(typeId)) return TEXT
  return UNKNOWN.has(typeId) ? undefined : TYPES.get(typeId)?.name
}

/** Bytes of the binary form of a type; -1 if they vary. */
export function sizeOf(typeId: number): number {
  return TYPES.get(typeId)?.bytes ?? -1
}

function typeOf(typeId: number): ValueType {
  const type = TYPES.get(typeId)
  if (type === undefined) {
    throw unsupported(`the type with the oid ${typeId} has no binary form here: use texts`)
  }
  return type
}

/** Converts the text of a value to its binary form. */
export function toBinary(typeId: number, text: string): Buffer {
  const elementId = typeId === 0 ? undefined : ELEMENTS.get(typeId)
  return elementId === undefined ? typeOf(typeId).encode(text) : encodeArray(elementId, text)
}

/** Converts the binary form of a value to its text. */
export function fromBinary(typeId: number, bytes: Buffer): string {
  const elementId = typeId === 0 ? undefined : ELEMENTS.get(typeId)
  return elementId === undefined ? typeOf(typeId).decode(bytes) : decodeArray(elementId, bytes)
}

/** Levels of an array of PostgreSQL. */
const LEVELS_MAX = 6

function encodeArray(elementId: number, text: string): Buffer {
  const { encode } = typeOf(elementId)
  const { sizes, items } = parseArray(text)
  // The bounds of levels that do not begin at 1 precede the elements.
  const bounds = text.slice(0, text.indexOf('{')).matchAll(/\[(-?\d+):/g)
  const lowers = [...bounds].map(([, lower]) => Number(lower))
  const head = Buffer.alloc(12 + 8 * sizes.length)
  head.writeInt32BE(sizes.length, 0)
  head.writeInt32BE(items.includes(null) ? 1 : 0, 4)
  head.writeInt32BE(elementId, 8)
  for (const [level, size] of sizes.entries()) {
    head.writeInt32BE(size, 12 + 8 * level)
    head.writeInt32BE(lowers[level] ?? 1, 16 + 8 * level)
  }
  const parts = items.flatMap((item) => {
    const value = item === null ? undefined : encode(item)
    const length = Buffer.alloc(4)
    length.writeInt32BE(value?.length ?? -1)
    return value === undefined ? [length] : [length, value]
  })
  return Buffer.concat([head, ...parts])
}

function decodeArray(elementId: number, bytes: Buffer): string {
  const { decode } = typeOf(elementId)
  if (bytes.length < 12) throw invalidBinary()
  const levels = bytes.readInt32BE(0)
  if (levels < 0 || levels > LEVELS_MAX || bytes.length < 12 + 8 * levels) throw invalidBinary()
  const sizes = Array.from({ length: levels }, (_, level) => bytes.readInt32BE(12 + 8 * level))
  const lowers = sizes.map((_, level) => bytes.readInt32BE(16 + 8 * level))
  let position = 12 + 8 * levels
  const read = (): string | null => {
    if (position + 4 > bytes.length) throw invalidBinary()
    const length = bytes.readInt32BE(position)
    position += 4
    if (length === -1) return null
    if (length < 0 || position + length > bytes.length) throw invalidBinary()
    position += length
    return decode(bytes.subarray(position - length, position))
  }
  const write = (level: number): string => {
    const size = sizes[level] ?? 0
    if (size < 0 || size > bytes.length) throw invalidBinary()
    if (level === levels - 1) return arrayLiteral(Array.from({ length: size }, read))
    return `{${Array.from({ length: size }, () => write(level + 1)).join(',')}}`
  }
  const literal = levels === 0 ? '{}' : write(0)
  if (position !== bytes.length) throw invalidBinary()
  if (lowers.every((lower) => lower === 1)) return literal
  return `${lowers.map((lower, level) => `[${lower}:${lower + (sizes[level] ?? 0) - 1}]`).join('')}=${literal}`
}
