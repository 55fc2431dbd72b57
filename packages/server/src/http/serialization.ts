import { SerializerSelector } from '@fastify/fast-json-stringify-compiler'
import type { FastifyServerOptions } from 'fastify'

type BuildSerializer = NonNullable<
  NonNullable<
    NonNullable<FastifyServerOptions['schemaController']>['compilersFactory']
  >['buildSerializer']
>

const build = SerializerSelector()

type Compile = ReturnType<typeof build>
type Serialize = ReturnType<Compile>

/** Serializers by their schemas, which are constants: routes that answer with the same schema share one. */
const compiled = new WeakMap<object, Serialize>()

/**
 * Compiles each serializer at its first use. Fastify compiles all at startup; there are hundreds,
 * most of which are never used, and a start would take a second longer.
 */
export const buildSerializer = ((externalSchemas: unknown, options?: object) => {
  const compile = build(externalSchemas, options)
  return (route: { schema: object }) => (document: unknown) => {
    let serialize = compiled.get(route.schema)
    if (serialize === undefined) {
      serialize = compile(route as Parameters<Compile>[0])
      compiled.set(route.schema, serialize)
    }
    return serialize(document)
  }
}) as unknown as BuildSerializer
