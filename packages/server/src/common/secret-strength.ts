/** Minimum length of a secret from the settings. */
export const SECRET_LENGTH_MIN = 24
/**
 * Minimum estimated entropy in bits. A random hexadecimal text of the minimum length has about 85.
 */
const SECRET_BITS_MIN = 64

/**
 * Returns whether a secret is long enough and does not consist of few characters, sequences or
 * repetitions.
 */
export function isStrongSecret(text: string): boolean {
  return text.length >= SECRET_LENGTH_MIN && estimateBits(text) >= SECRET_BITS_MIN
}

/** Minimum length of a repetition; shorter ones occur by chance. */
const REPEATED_MIN = 3

/**
 * Estimates an upper bound of the entropy of a text in bits. Each character counts by the number of
 * different characters in the text, but counts nothing if it continues a sequence (`aaa`, `abc`,
 * `321`) or repeats an earlier part. Words are not recognised.
 */
export function estimateBits(text: string): number {
  const bitsPerCharacter = Math.log2(new Set(text).size || 1)
  let bits = 0
  for (let at = 0; at < text.length; at++) {
    if (!isExpected(text, at)) bits += bitsPerCharacter
  }
  return bits
}

function isExpected(text: string, at: number): boolean {
  const [first = Number.NaN, second = Number.NaN, third = Number.NaN] = [at - 2, at - 1, at].map(
    (index) => text.charCodeAt(index),
  )
  const step = third - second
  if (Math.abs(step) <= 1 && step === second - first) return true
  const start = at - REPEATED_MIN + 1
  return start > 0 && text.lastIndexOf(text.slice(start, at + 1), start - 1) >= 0
}
