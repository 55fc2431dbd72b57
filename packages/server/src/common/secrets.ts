import { createHash, randomBytes } from 'node:crypto'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
const SECRET_LENGTH = 44

export const newApiKey = (): string => `off_${randomText(SECRET_LENGTH)}`
export const newInviteKey = (): string => `ik_${randomText(SECRET_LENGTH)}`

/**
 * How a secret is kept. It has 260 random bits, so one round of a plain hash is as hard to reverse as
 * a slow one, and costs a request next to nothing.
 */
export function hashSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

function randomText(length: number): string {
  let text = ''
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // Bytes beyond the last whole multiple of the alphabet would favour its first letters.
      if (byte < 248 && text.length < length) text += ALPHABET.charAt(byte % ALPHABET.length)
    }
  }
  return text
}
