import { DocumentSchemas } from '../document-schemas.js'

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
  readonly #schemas: DocumentSchemas

  constructor(document: OpenApi) {
    this.#components = document.components
    this.operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({
        ...operation,
        method: method.toUpperCase(),
        path,
        name: `${method.toUpperCase()} ${path}`,
      })),
    )
    this.#schemas = new DocumentSchemas(
      document.components,
      this.operations.flatMap(({ requestBody, responses }) =>
        [requestBody, ...Object.values(responses)].flatMap((part) =>
          Object.values(part?.content ?? {}).map(({ schema }) => schema),
        ),
      ),
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
    return this.#schemas.faultOf(schema, value)
  }
}

export function examplesOf(media: Media): unknown[] {
  return [
    ...(media.example === undefined ? [] : [media.example]),
    ...Object.values(media.examples ?? {}).map(({ value }) => value),
  ]
}
