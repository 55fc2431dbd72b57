import { randomBytes, randomInt } from 'node:crypto'

/** The digits of base32hex in lower case, which sort like the numbers they encode. */
const DIGITS = '0123456789abcdefghijklmnopqrstuv'
const WORD = 'abcdefghijklmnopqrstuvwxyz0123456789'

/** All pairs of digits, a lookup table because ids are made by the hundred thousand. */
const PAIRS = Array.from(
  { length: 1024 },
  (_, n) => `${DIGITS.charAt(n >> 5)}${DIGITS.charAt(n & 31)}`,
)

const COUNTER_MAX = 2 ** 20 - 1
/** 35 random bits that distinguish processes which make ids in the same millisecond. */
const processPart = randomText(DIGITS, 7)

let lastMs = 0
let msPart = ''
let counter = 0

/**
 * Returns an id of 20 base32hex digits, greater than the ids before it: 45 bits of time, 20 of a
 * counter, 35 of the process. A clock that goes back and more than a million calls per millisecond
 * are handled.
 */
export function timeOrderedId(): string {
  const now = Date.now()
  if (now > lastMs) startMillisecond(now)
  else if (counter === COUNTER_MAX) startMillisecond(lastMs + 1)
  else counter++
  return `${msPart}${PAIRS[counter >> 10]}${PAIRS[counter & 1023]}${processPart}`
}

function startMillisecond(ms: number): void {
  lastMs = ms
  counter = 0
  let digits = ''
  let rest = ms
  for (let position = 0; position < 9; position++) {
    digits = DIGITS.charAt(rest % 32) + digits
    rest = Math.floor(rest / 32)
  }
  msPart = digits
}

/** `randomInt` takes its random bytes from a stock, and `randomBytes` asks for them each time. */
function randomText(characters: string, length: number): string {
  let text = ''
  for (let count = 0; count < length; count++) {
    text += characters.charAt(randomInt(characters.length))
  }
  return text
}

/** Random bytes are taken from a stock, because asking for them each time takes longer than all the rest. */
const STOCK_BYTES = 4096
let stock = Buffer.alloc(0)

let lastUuidMs = 0
let uuidCounter = 0
/** The counter of a UUID has 12 bits. */
const UUID_COUNTER_MAX = 2 ** 12 - 1

/**
 * Returns a UUID of version 7: 48 bits of time, a counter of 12 bits, and 62 random bits. It is greater than those that
 * this process made before it.
 */
export function uuidV7(): string {
  const now = Date.now()
  if (now > lastUuidMs) {
    lastUuidMs = now
    uuidCounter = 0
  } else if (uuidCounter === UUID_COUNTER_MAX) {
    lastUuidMs++
    uuidCounter = 0
  } else uuidCounter++
  if (stock.length < 8) stock = randomBytes(STOCK_BYTES)
  const random = stock.subarray(0, 8)
  stock = stock.subarray(8)
  random.writeUInt8((random.readUInt8(0) & 0x3f) | 0x80, 0)
  const time = lastUuidMs.toString(16).padStart(12, '0')
  const counter = uuidCounter.toString(16).padStart(3, '0')
  const rest = random.toString('hex')
  return `${time.slice(0, 8)}-${time.slice(8)}-7${counter}-${rest.slice(0, 4)}-${rest.slice(4)}`
}

export const newRecordId = (): string => `rec_${timeOrderedId()}`
/** The characters of the id of a user. */
export const USER_ID_LENGTH = 24
/** The characters of a UUID. */
export const UUID_LENGTH = 36
export const newUserId = (): string => `usr_${timeOrderedId()}`
export const newInviteId = (): string => `inv_${timeOrderedId()}`
export const newMigrationId = (): string => `mig_${timeOrderedId()}`
export const CHECKPOINT_ID_START = 'cp_'
export const newCheckpointId = (): string => `${CHECKPOINT_ID_START}${timeOrderedId()}`
export const newCommentId = (): string => `com_${timeOrderedId()}`
export const newOperationId = (): string => `op_${timeOrderedId()}`
export const newEntryId = (): string => `log_${timeOrderedId()}`
export const newBranchId = (): string =>
  `bb_${timeOrderedId()}${randomText(DIGITS, 6)}_${randomText(WORD, 6)}`
export const newWorkspaceId = (slug: string): string => `${slug}-${randomText(WORD, 6)}`
