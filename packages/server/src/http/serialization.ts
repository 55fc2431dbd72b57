import { SerializerSelector } from '@fastify/fast-json-stringify-compiler'
import type { FastifyServerOptions } from 'fastify'

type BuildSerializer = NonNullable<
  NonNullable<
    NonNullable<FastifyServerOptions['schemaController']>['compilersFactory']
  >['buildSerializer']
>

const build = SerializerSelector()

/**
 * What Fastify does, but for each answer of each route when it is given for the first time: there are
 * hundreds, most of which never are, and a start would take a second more.
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
