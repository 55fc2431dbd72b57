import { randomBytes, randomInt } from 'node:crypto'

/** Digits of base32hex in lower case: they sort as the numbers they stand for. */
const DIGITS = '0123456789abcdefghijklmnopqrstuv'
const WORD = 'abcdefghijklmnopqrstuvwxyz0123456789'

/** Two digits at a time, because ids are made by the hundred thousand. */
const PAIRS = Array.from(
  { length: 1024 },
  (_, n) => `${DIGITS.charAt(n >> 5)}${DIGITS.charAt(n & 31)}`,
)

const COUNTER_MAX = 2 ** 20 - 1
/** What keeps two processes apart that make an id in the same millisecond: 35 random bits. */
const processPart = randomDigits(7)

let lastMs = 0
let msPart = ''
let counter = 0

/**
 * Twenty base32hex digits that grow with every call: 45 bits of time, 20 of a counter, 35 of the
 * process. A clock that goes back does not matter, nor do more than a million calls a millisecond.
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

function randomDigits(length: number): string {
  return Array.from(randomBytes(length), (byte) => DIGITS.charAt(byte & 31)).join('')
}

function randomWord(length: number): string {
  return Array.from({ length }, () => WORD.charAt(randomInt(WORD.length))).join('')
}

export const newRecordId = (): string => `rec_${timeOrderedId()}`
export const newUserId = (): string => `usr_${timeOrderedId()}`
export const newInviteId = (): string => `inv_${timeOrderedId()}`
export const newMigrationId = (): string => `mig_${timeOrderedId()}`
export const newBranchId = (): string => `bb_${timeOrderedId()}${randomDigits(6)}_${randomWord(6)}`
export const newWorkspaceId = (slug: string): string => `${slug}-${randomWord(6)}`
