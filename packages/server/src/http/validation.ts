import { DATABASE_BRANCH_PATTERN, EMAIL_PATTERN, TEXT_PATTERN } from '@offshoot/contract/names'
import { _, Ajv, type Options, type ValidateFunction } from 'ajv'
import formats from 'ajv-formats'
import type { FastifySchemaValidationError, FastifyServerOptions } from 'fastify'
import { nearest } from '../common/nearest.js'

export type BuildValidator = NonNullable<
  NonNullable<
    NonNullable<FastifyServerOptions['schemaController']>['compilersFactory']
  >['buildValidator']
>

const COMMON: Options = {
  allErrors: false,
  useDefaults: false,
  removeAdditional: false,
  strict: false,
  // A number too large for a double is parsed as Infinity; it is refused.
  strictNumbers: true,
  // Errors then contain the schema, which lists the known fields for suggestions.
  verbose: true,
  // The schemas are constants checked by tests; validating them would slow down every start.
  validateSchema: false,
}

/** Compiles the schema of a part of a request. */
type Compile = (part: { schema: object; httpPart?: string }) => Validate

/**
 * Uses two validators: bodies are not coerced; paths, queries and headers are, because all their
 * values are text.
 */
function createCompile(externalSchemas: Readonly<Record<string, object>>): Compile {
  const body = createAjv({ ...COMMON, coerceTypes: false }, externalSchemas)
  // Ajv skips limits of numbers that are not finite when it is strict, but coerces `1e400` to one.
  const texts = createAjv({ ...COMMON, coerceTypes: true, strictNumbers: false }, externalSchemas)
  return ({ schema, httpPart }) => {
    if (httpPart === 'body') return whenNeeded(() => body.compile(schema))
    const validate = whenNeeded(() => texts.compile(schema))
    return httpPart === 'querystring' ? anyCaseBooleans(schema, validate) : validate
  }
}

/**
 * Returns a builder of validators. Fastify calls it for each plugin, with copies of the same shared schemas. They are
 * prepared once for each set of schemas, which their ids tell apart.
 */
export function createBuildValidator(): BuildValidator {
  const known = new Map<string, Compile>()
  const build = (externalSchemas: Readonly<Record<string, object>> = {}): Compile => {
    const ids = Object.keys(externalSchemas).join(' ')
    const compile = known.get(ids) ?? createCompile(externalSchemas)
    known.set(ids, compile)
    return compile
  }
  return build as unknown as BuildValidator
}

type Validate = Pick<ValidateFunction, 'errors'> & ((values: Record<string, unknown>) => unknown)

/** Compiles at the first use, because compiling all schemas would slow down the start. */
function whenNeeded(compile: () => ValidateFunction): Validate {
  let compiled: ValidateFunction | undefined
  const validate: Validate = (values) => {
    compiled ??= compile()
    const isValid = compiled(values)
    validate.errors = compiled.errors ?? null
    return isValid
  }
  return validate
}

/** Accepts `True` and `False`, because the Python client of Xata Lite sends them. */
function anyCaseBooleans(schema: object, validate: Validate): Validate {
  const { properties = {} } = schema as { properties?: Record<string, { type?: unknown }> }
  const names = Object.keys(properties).filter((name) => properties[name]?.type === 'boolean')
  if (names.length === 0) return validate
  const anyCase: Validate = (values) => {
    for (const name of names) {
      const value = values[name]
      if (typeof value === 'string') values[name] = value.toLowerCase()
    }
    const isValid = validate(values)
    anyCase.errors = validate.errors ?? null
    return isValid
  }
  return anyCase
}

/**
 * The limits of the length of a text, in characters. Ajv counts the characters of the whole text, which blocks
 * the event loop for a text of megabytes. A character has one or two UTF-16 code units, so most texts need no
 * count, and none of them is long.
 */
const LENGTH_LIMITS = [
  {
    keyword: 'maxLength',
    isExceeded: (text: string, max: number) =>
      text.length > max && (text.length > 2 * max || charactersOf(text) > max),
  },
  {
    keyword: 'minLength',
    isExceeded: (text: string, min: number) =>
      text.length < 2 * min && (text.length < min || charactersOf(text) < min),
  },
] as const

function charactersOf(text: string): number {
  let count = 0
  for (const _ of text) count++
  return count
}

function createAjv(options: Options, externalSchemas: Readonly<Record<string, object>>): Ajv {
  const ajv = new Ajv(options)
  for (const { keyword, isExceeded } of LENGTH_LIMITS) {
    ajv.removeKeyword(keyword).addKeyword({
      keyword,
      type: 'string',
      schemaType: 'number',
      before: 'pattern',
      error: {
        message: 'has a length beyond the limit',
        params: ({ schemaCode }) => _`{limit: ${schemaCode}}`,
      },
      compile: (limit: number) => (text: string) => !isExceeded(text, limit),
    })
  }
  // The package exports its function as `default` of a CommonJS module.
  ;(formats as unknown as (ajv: Ajv) => void)(ajv)
  for (const schema of Object.values(externalSchemas)) ajv.addSchema(schema)
  return ajv
}

/** Names of the parts of a request in messages. */
const PARTS: Readonly<Record<string, string>> = {
  body: 'body',
  querystring: 'query',
  params: 'path',
  headers: 'headers',
}

/** Returns a message that names the part, the field and the fault. */
export function describeValidation(
  errors: readonly FastifySchemaValidationError[],
  context: string | undefined,
): string {
  const part = PARTS[context ?? ''] ?? 'request'
  const [error] = errors
  if (error === undefined) return `${part}: is malformed`
  const { field, fault } = describeFault(error)
  const name = part === 'path' ? 'part' : part === 'query' ? 'parameter' : 'field'
  return field === undefined ? `${part}: ${fault}` : `${part}: ${name} [${field}]: ${fault}`
}

/** Describes one error. The field is undefined if the whole part is at fault. */
function describeFault(error: FastifySchemaValidationError): {
  field: string | undefined
  fault: string
} {
  const path = error.instancePath.split('/').slice(1).map(unescapePointer)
  const { params } = error as { params: Record<string, unknown> }
  const at = (...more: unknown[]) => {
    const names = [...path, ...more.map(String)]
    return names.length === 0 ? undefined : names.join('.')
  }
  switch (error.keyword) {
    case 'required':
      return { field: at(params.missingProperty), fault: 'is required' }
    case 'additionalProperties': {
      const name = String(params.additionalProperty)
      const { properties = {} } =
        (error as { parentSchema?: { properties?: object } }).parentSchema ?? {}
      return { field: at(name), fault: describeUnknown(name, Object.keys(properties)) }
    }
    case 'enum':
      return {
        field: at(),
        fault: `must be one of [${(params.allowedValues as unknown[]).join(', ')}]`,
      }
    case 'type':
      return { field: at(), fault: `must be of type ${[params.type].flat().join(' or ')}` }
    case 'minLength':
      return { field: at(), fault: describeMinimum(params.limit, 'characters') }
    case 'maxLength':
      return { field: at(), fault: `must have at most ${params.limit} characters` }
    case 'minItems':
      return { field: at(), fault: describeMinimum(params.limit, 'items') }
    case 'maxItems':
      return { field: at(), fault: `must have at most ${params.limit} items` }
    case 'minProperties':
      return { field: at(), fault: 'must name at least one field' }
    case 'maxProperties':
      return { field: at(), fault: 'must have exactly one of its fields' }
    case 'format':
      return { field: at(), fault: `must be a valid ${params.format}` }
    case 'pattern':
      return { field: at(), fault: describePattern(String(params.pattern)) }
    default:
      return { field: at(), fault: error.message ?? 'is malformed' }
  }
}

/** Describes an unknown name, with a suggestion if a known name is similar. */
export function describeUnknown(name: string, known: readonly string[]): string {
  const meant = nearest(name, known)
  return meant === undefined ? 'is not known' : `is not known; did you mean [${meant}]?`
}

function describeMinimum(limit: unknown, things: string): string {
  return limit === 1 ? 'must not be empty' : `must have at least ${limit} ${things}`
}

const PATTERN_FAULTS: Readonly<Record<string, string>> = {
  [TEXT_PATTERN]: 'must not contain a NUL character or half of a surrogate pair',
  [EMAIL_PATTERN]: 'must be a valid email',
  [DATABASE_BRANCH_PATTERN]: 'must have the form {database}:{branch}',
}

function describePattern(pattern: string): string {
  const fault = PATTERN_FAULTS[pattern]
  if (fault !== undefined) return fault
  const classes = /^\^\[([^\]]+)\]\+\$$/.exec(pattern)?.[1]
  if (classes !== undefined) {
    return `can only contain the characters ${classes.replaceAll('\\', '')}`
  }
  return `must match ${pattern}`
}

function unescapePointer(part: string): string {
  return part.replaceAll('~1', '/').replaceAll('~0', '~')
}
