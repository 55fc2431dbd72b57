import { createHash, randomBytes } from 'node:crypto'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
const SECRET_LENGTH = 44

export const newApiKey = (): string => `off_${randomText(SECRET_LENGTH)}`
export const newInviteKey = (): string => `ik_${randomText(SECRET_LENGTH)}`

export const newSignInToken = (): string => randomText(SECRET_LENGTH)

/**
 * Hashes a secret for storage. It has 260 random bits, so a fast hash cannot be reversed by
 * guessing, and costs a request almost nothing.
 */
export function hashSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

function randomText(length: number): string {
  let text = ''
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // Larger bytes are skipped, because they would favour the first letters of the alphabet.
      if (byte < 248 && text.length < length) text += ALPHABET.charAt(byte % ALPHABET.length)
    }
  }
  return text
}
