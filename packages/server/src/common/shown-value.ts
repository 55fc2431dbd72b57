import { SHOWN_VALUE_LENGTH_MAX } from '@offshoot/contract/limits'

/** Returns a value as errors show it: its beginning, if it is long. */
export function shownValue(text: string | null): string {
  if (text === null || text.length <= SHOWN_VALUE_LENGTH_MAX) return text ?? ''
  // Half of a character is left out.
  return `${text.slice(0, SHOWN_VALUE_LENGTH_MAX).replace(/[\uD800-\uDBFF]$/, '')}…`
}
