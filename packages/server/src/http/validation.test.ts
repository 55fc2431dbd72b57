import { BranchMetadataSchema, BranchParamsSchema } from '@offshoot/contract/branches'
import { EmailSchema } from '@offshoot/contract/names'
import { type TSchema, Type } from 'typebox'
import { describe, expect, it } from 'vitest'
import { createBuildValidator, describeValidation } from './validation.js'

/** Returns the message for an invalid value. */
function describeFault(schema: TSchema, httpPart: string, value: unknown): string {
  const build = createBuildValidator() as unknown as (
    shared: object,
  ) => (part: object) => ((value: unknown) => boolean) & { errors: never[] }
  const validate = build({})({ schema, httpPart })
  return validate(value) ? '' : describeValidation(validate.errors, httpPart)
}

describe('describeValidation', () => {
  const Body = Type.Object(
    {
      name: Type.String({ minLength: 1, maxLength: 3, pattern: '^[a-z\\-~]+$' }),
      email: Type.Optional(EmailSchema),
      many: Type.Optional(Type.Array(Type.Integer(), { minItems: 1, maxItems: 2 })),
      code: Type.Optional(Type.String({ minLength: 2, pattern: '^x' })),
      kind: Type.Optional(Type.Enum(['one', 'two'])),
      at: Type.Optional(Type.String({ format: 'date-time' })),
      deep: Type.Optional(BranchMetadataSchema),
      filled: Type.Optional(Type.Object({}, { minProperties: 1 })),
      single: Type.Optional(Type.Object({}, { maxProperties: 1 })),
    },
    { additionalProperties: false },
  )

  it.each([
    [[], 'body: must be of type object'],
    [null, 'body: must be of type object'],
    [{}, 'body: field [name]: is required'],
    [{ name: 1 }, 'body: field [name]: must be of type string'],
    [{ name: '' }, 'body: field [name]: must not be empty'],
    [{ name: 'abcd' }, 'body: field [name]: must have at most 3 characters'],
    [{ name: 'A' }, 'body: field [name]: can only contain the characters a-z-~'],
    [{ name: 'a', nom: 1 }, 'body: field [nom]: is not known'],
    [{ name: 'a', '': 1 }, 'body: field []: is not known'],
    [{ name: 'a', email: 'nobody' }, 'body: field [email]: must be a valid email'],
    [{ name: 'a', email: 'a@b@c' }, 'body: field [email]: must be a valid email'],
    [{ name: 'a', many: [] }, 'body: field [many]: must not be empty'],
    [{ name: 'a', many: [1, 2, 3] }, 'body: field [many]: must have at most 2 items'],
    [{ name: 'a', many: [1, '2'] }, 'body: field [many.1]: must be of type integer'],
    [{ name: 'a', code: 'x' }, 'body: field [code]: must have at least 2 characters'],
    [{ name: 'a', code: 'ab' }, 'body: field [code]: must match ^x'],
    [{ name: 'a', kind: 'three' }, 'body: field [kind]: must be one of [one, two]'],
    [{ name: 'a', at: 'now' }, 'body: field [at]: must be a valid date-time'],
    [
      { name: 'a', deep: { labels: ['\0'] } },
      'body: field [deep.labels.0]: must not contain a NUL character or half of a surrogate pair',
    ],
    [{ name: 'a', deep: { 'a/b': 1 } }, 'body: field [deep.a/b]: is not known'],
    [{ name: 'a', filled: {} }, 'body: field [filled]: must name at least one field'],
    [
      { name: 'a', single: { a: 1, b: 2 } },
      'body: field [single]: must have exactly one of its fields',
    ],
  ])('names the field and the fault of %j', (value, message) => {
    expect(describeFault(Body, 'body', value)).toBe(message)
  })

  it('does not turn the values of a body into other types', () => {
    const Flags = Type.Object({ on: Type.Boolean(), size: Type.Integer() })
    expect(describeFault(Flags, 'body', { on: 'true', size: 1 })).not.toBe('')
    expect(describeFault(Flags, 'querystring', { on: 'true', size: '1' })).toBe('')
  })

  it('counts characters, not code units, at both limits of a length', () => {
    const Text = Type.Object({ text: Type.String({ minLength: 2, maxLength: 3 }) })
    const faultOf = (text: string) => describeFault(Text, 'body', { text })
    for (const character of ['a', 'é', '😀']) {
      expect(faultOf(character)).toContain('characters')
      expect(faultOf(character.repeat(2))).toBe('')
      expect(faultOf(character.repeat(3))).toBe('')
      expect(faultOf(character.repeat(4))).toBe(
        'body: field [text]: must have at most 3 characters',
      )
    }
    expect(faultOf('😀a')).toBe('')
    expect(faultOf('😀😀a')).toBe('')
    expect(faultOf('')).toContain('characters')
  })

  it('calls what is in an address by its own name', () => {
    const Query = Type.Object({ from: Type.String({ minLength: 1 }) })
    expect(describeFault(Query, 'querystring', {})).toBe('query: parameter [from]: is required')
    expect(describeFault(BranchParamsSchema, 'params', { databaseBranch: 'shop' })).toBe(
      'path: part [databaseBranch]: must have the form {database}:{branch}',
    )
  })
})

describe('createBuildValidator', () => {
  it('returns the same validator for copies of the same schemas, and another one for others', () => {
    const build = createBuildValidator() as unknown as (shared: object) => unknown
    const text = () => ({ $id: 'Text', type: 'string' })
    const number = { $id: 'Number', type: 'number' }
    const one = build({ Text: text() })
    expect(build({ Text: text() })).toBe(one)
    expect(build({ Text: text(), Number: number })).not.toBe(one)
    expect(build({})).not.toBe(one)
  })
})
