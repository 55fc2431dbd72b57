import { SerializerSelector } from '@fastify/fast-json-stringify-compiler'
import type { FastifyServerOptions } from 'fastify'

type BuildSerializer = NonNullable<
  NonNullable<
    NonNullable<FastifyServerOptions['schemaController']>['compilersFactory']
  >['buildSerializer']
>

const build = SerializerSelector()

/**
 * Compiles each serializer at its first use. Fastify compiles all at startup; there are hundreds,
 * most of which are never used, and a start would take a second longer.
 */
export const buildSerializer = ((externalSchemas: unknown, options?: object) => {
  const compile = build(externalSchemas, options)
  return (route: Parameters<typeof compile>[0]) => {
    let serialize: ReturnType<typeof compile> | undefined
    return (document: unknown) => {
      serialize ??= compile(route)
      return serialize(document)
    }
  }
}) as unknown as BuildSerializer
