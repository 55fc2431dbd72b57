import { roundedIn } from '../../common/exact-json.js'
import { writeJson } from '../../common/write-json.js'
import { invalidSql } from '../../dialect/invalid-sql.js'
import { arrayLiteral } from '../../postgres/carriers.js'
import type { Parameter } from '../../postgres/statement.js'
import { checkText } from '../../rows/columns/text-types.js'

/** Names of types of PostgreSQL, by parameter. undefined: PostgreSQL infers the type. */
export type ParameterTypes = readonly (string | undefined)[]

/** Sizes and types of parameters, which are known when a statement is planned. */
export interface GivenParameters {
  /** The size of the text of each parameter, in bytes. */
  readonly parameterSizes: readonly number[]
  /** The types that the caller declares. undefined: it does not, and is not told those of the statement. */
  readonly parameterTypes?: ParameterTypes | undefined
}

/** Elements of an array that are written in one step. */
const ELEMENTS_PER_STEP = 1000

type Steps<Result> = Generator<undefined, Result, undefined>

interface EncodedParameters {
  readonly parameters: Parameter[]
  /** In bytes. */
  readonly parameterSizes: number[]
}

/** Converts parameters to texts of PostgreSQL: arrays to array literals, and objects to JSON. Numbers keep their digits. */
export function* encodeParameters(values: readonly unknown[]): Steps<EncodedParameters> {
  const parameters: Parameter[] = []
  const parameterSizes: number[] = []
  const rounded = roundedIn(values)
  for (const [index, value] of values.entries()) {
    const text = rounded?.get(String(index)) ?? (yield* textOf(value))
    const fault = text === null ? undefined : checkText(text)
    if (fault !== undefined) throw invalidSql(`parameter $${index + 1}: ${fault.message}`)
    parameters.push(text)
    parameterSizes.push(text === null ? 0 : Buffer.byteLength(text))
    yield
  }
  return { parameters, parameterSizes }
}

function* textOf(value: unknown): Steps<Parameter> {
  if (value === null || value === undefined) return null
  if (typeof value === 'string') return value
  if (Array.isArray(value)) return yield* arrayText(value)
  return typeof value === 'object' ? yield* writeJson(value) : String(value)
}

/** Writes an array literal. Nested arrays are not quoted, all other elements are. */
function* arrayText(values: readonly unknown[]): Steps<string> {
  const parts: string[] = []
  const rounded = roundedIn(values)
  for (const [index, value] of values.entries()) {
    if (Array.isArray(value)) parts.push(yield* arrayText(value))
    else {
      const text = rounded?.get(String(index)) ?? (yield* textOf(value))
      parts.push(arrayLiteral([text]).slice(1, -1))
    }
    if (index % ELEMENTS_PER_STEP === 0) yield
  }
  return `{${parts.join(',')}}`
}
