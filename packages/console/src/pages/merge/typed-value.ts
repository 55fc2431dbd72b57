import type { ColumnType } from '@offshoot/client'

/** The result of reading a typed text: a value, or what is wrong with the text. */
type Typed = { readonly value: unknown } | { readonly fault: string }

/** Reads a text that somebody typed as a value of a column. The service checks it again. */
export function readTyped(type: ColumnType, text: string): Typed {
  switch (type) {
    case 'int':
      return /^-?\d+$/.test(text.trim())
        ? { value: Number(text) }
        : { fault: 'must be a whole number' }
    case 'float':
      return text.trim() !== '' && Number.isFinite(Number(text))
        ? { value: Number(text) }
        : { fault: 'must be a number' }
    case 'bool':
      return /^(true|false)$/.test(text.trim())
        ? { value: text.trim() === 'true' }
        : { fault: 'must be true or false' }
    case 'multiple':
    case 'vector':
    case 'json':
    case 'object':
    case 'file':
    case 'file[]':
      try {
        return { value: JSON.parse(text) as unknown }
      } catch {
        return { fault: 'must be JSON' }
      }
    default:
      return { value: text }
  }
}
