/** Characters that a secret chosen by somebody must have. */
export const SECRET_LENGTH_MIN = 24
/** Bits that it must be estimated to hold. A random hexadecimal text of the least length has about 85. */
export const SECRET_BITS_MIN = 64

/** Whether a secret is long enough and not made of few characters, sequences or repetitions. */
export function isStrongSecret(text: string): boolean {
  return text.length >= SECRET_LENGTH_MIN && estimateBits(text) >= SECRET_BITS_MIN
}

/** As many characters make a repetition; shorter ones happen by chance. */
const REPEATED_MIN = 3

/**
 * A rough upper bound of the bits in a text. A character counts as one of those that the text has, unless
 * it goes on with a sequence (`aaa`, `abc`, `321`) or repeats what came earlier; then it counts nothing.
 * Words of a language are not recognised.
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
