import type { Limits } from '@offshoot/contract/limits'
import { NAME_PATTERN } from '@offshoot/contract/names'

const pattern = new RegExp(NAME_PATTERN)

/** Validates the name of a table or column. Returns the fault, if there is one. */
export function checkName(name: string, limits: Limits): string | undefined {
  if (name === '') return 'name is empty'
  if (name.length > limits.nameLengthMax) {
    return `name is longer than ${limits.nameLengthMax} characters`
  }
  if (!pattern.test(name)) return 'name may hold only letters, digits, underscores, hyphens and ~'
  return undefined
}
