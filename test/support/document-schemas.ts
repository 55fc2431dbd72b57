import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'

/**
 * Schemas of the OpenAPI document. They are parts of one schema, so that each component is compiled once and not for
 * every schema that refers to it.
 */
export class DocumentSchemas {
  readonly #ajv = new Ajv2020({ strict: false, allErrors: false })
  readonly #ids = new Map<string, number>()
  readonly #validators = new WeakMap<object, ValidateFunction>()

  /** References of the schemas start at the root of the document: `#/components/...`. */
  constructor(components: object, schemas: Iterable<object>) {
    // The package exports its function as `default` of a CommonJS module.
    ;(formats as unknown as (ajv: Ajv2020) => void)(this.#ajv)
    const $defs: Record<string, object> = {}
    for (const schema of schemas) {
      const text = JSON.stringify(schema)
      if (this.#ids.has(text)) continue
      $defs[this.#ids.size] = schema
      this.#ids.set(text, this.#ids.size)
    }
    this.#ajv.addSchema({ $id: 'document', components, $defs })
  }

  /** Describes the fault of a value; undefined if it is valid. */
  faultOf(schema: object, value: unknown): string | undefined {
    const validate = this.#validatorOf(schema)
    return validate(value) ? undefined : this.#ajv.errorsText(validate.errors)
  }

  #validatorOf(schema: object): ValidateFunction {
    const known = this.#validators.get(schema)
    if (known !== undefined) return known
    const id = this.#ids.get(JSON.stringify(schema))
    const found = id === undefined ? undefined : this.#ajv.getSchema(`document#/$defs/${id}`)
    if (found === undefined) throw new Error('the schema must be one of those of the document')
    this.#validators.set(schema, found)
    return found
  }
}
