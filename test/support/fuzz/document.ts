import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'

/** The parts of JSON Schema that the OpenAPI document uses. */
export interface Schema {
  readonly $ref?: string
  readonly type?: string
  readonly title?: string
  readonly enum?: readonly unknown[]
  readonly const?: unknown
  readonly anyOf?: readonly Schema[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly additionalProperties?: boolean | Schema
  readonly patternProperties?: Readonly<Record<string, Schema>>
  readonly minProperties?: number
  readonly maxProperties?: number
  readonly items?: Schema
  readonly minItems?: number
  readonly maxItems?: number
  readonly minLength?: number
  readonly maxLength?: number
  readonly pattern?: string
  readonly format?: string
  readonly minimum?: number
  readonly maximum?: number
  readonly examples?: readonly unknown[]
}

export interface Media {
  readonly schema: Schema
  readonly example?: unknown
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>
}

export interface Parameter {
  readonly name: string
  readonly in: string
  readonly required?: boolean
  readonly schema: Schema
  readonly example?: unknown
}

interface OperationDescription {
  readonly parameters?: readonly Parameter[]
  readonly security?: readonly unknown[]
  readonly requestBody?: {
    readonly required?: boolean
    readonly content: Readonly<Record<string, Media>>
  }
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, Media>> }>
  >
}

interface OpenApi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, OperationDescription>>>>
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> }
}

/** One operation of `/openapi.json`. */
export interface Operation extends OperationDescription {
  readonly method: string
  /** The path, with `{name}` for parameters. */
  readonly path: string
  readonly name: string
}

/** The OpenAPI document, and validation against it. */
export class Document {
  readonly operations: readonly Operation[]
  readonly #components: OpenApi['components']
  readonly #ajv = new Ajv2020({ strict: false, allErrors: false })
  readonly #validators = new Map<Schema, ValidateFunction>()

  constructor(document: OpenApi) {
    // The package exports its function as `default` of a CommonJS module.
    ;(formats as unknown as (ajv: Ajv2020) => void)(this.#ajv)
    this.#components = document.components
    this.operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({
        ...operation,
        method: method.toUpperCase(),
        path,
        name: `${method.toUpperCase()} ${path}`,
      })),
    )
  }

  resolve(schema: Schema): Schema {
    if (schema.$ref === undefined) return schema
    const shared = this.#components.schemas[schema.$ref.split('/').at(-1) ?? '']
    if (shared === undefined) throw new Error(`the document has no [${schema.$ref}]`)
    return this.resolve(shared)
  }

  /** Describes the fault of a value; undefined if it is valid. */
  faultOf(schema: Schema, value: unknown): string | undefined {
    let validate = this.#validators.get(schema)
    if (validate === undefined) {
      // References start at the root of the document.
      validate = this.#ajv.compile({ components: this.#components, ...schema })
      this.#validators.set(schema, validate)
    }
    return validate(value) ? undefined : this.#ajv.errorsText(validate.errors)
  }
}

export function examplesOf(media: Media): unknown[] {
  return [
    ...(media.example === undefined ? [] : [media.example]),
    ...Object.values(media.examples ?? {}).map(({ value }) => value),
  ]
}
