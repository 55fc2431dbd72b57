import { AppError } from '@offshoot/contract/errors'
import { SLICE_BYTES } from './json-text.js'

/*
 * `JSON.parse` reads a number beyond the range of a double, such as 1e400, as Infinity, which has no JSON
 * form: it would become null. Such numbers are refused.
 */

/** A number can only be that large with many digits, or with an exponent of three digits. */
const SUSPECT = /\d{200}|\d[eE]\+?\d{3}/
/** Bytes that two slices have in common, so that no match is cut in two. */
const OVERLAP_BYTES = 256
/** The number of values visited between two pauses. */
const VALUES_PER_PAUSE = 10_000

/** Refuses a parsed JSON text with a number that is not finite, and names it. With pauses. */
export function* requireFiniteNumbers(
  text: Buffer,
  value: unknown,
): Generator<undefined, void, undefined> {
  for (let start = 0; start < text.length; start += SLICE_BYTES) {
    const slice = text.toString('latin1', start, start + SLICE_BYTES + OVERLAP_BYTES)
    if (SUSPECT.test(slice)) {
      yield* visit(value, { path: [], count: 0 })
      return
    }
    yield
  }
}

interface Visit {
  readonly path: string[]
  count: number
}

function* visit(value: unknown, at: Visit): Generator<undefined, void, undefined> {
  if (typeof value === 'number' && !Number.isFinite(value)) throw tooLarge(at.path)
  if (typeof value !== 'object' || value === null) return
  for (const [name, item] of Object.entries(value)) {
    if (++at.count % VALUES_PER_PAUSE === 0) yield
    if (typeof item === 'string') continue
    at.path.push(name)
    yield* visit(item, at)
    at.path.pop()
  }
}

function tooLarge(path: readonly string[]): AppError {
  const place = path.length === 0 ? 'body' : `body: field [${path.join('.').slice(0, 255)}]`
  return new AppError(
    'invalid_request',
    `${place}: the number is beyond the range of 64-bit floating point`,
  )
}
