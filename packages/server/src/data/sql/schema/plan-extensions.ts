import type { Node } from 'libpg-query'
import { contentOf, type NodeOf } from '../../../dialect/nodes.js'
import { notSupported } from './not-supported.js'
import type { SchemaWork } from './schema-work.js'

/*
 * There are no extensions. Migrations create some for one type or one function that is there without them, and then go on. They
 * are told what that is; anything else of the extension is refused where it is used.
 */

/** The feature that tables can use although the extension is not there, by the name of the extension. */
const PROVIDED: ReadonlyMap<string, string> = new Map([
  ['pgcrypto', 'the default gen_random_uuid()'],
  ['uuid-ossp', 'the default uuid_generate_v4()'],
  ['vector', 'columns of the type vector(n)'],
])
/** PostgreSQL has it from the start. */
const LANGUAGE = 'plpgsql'

/** Plans a CREATE EXTENSION. Returns its command tag. */
export function createExtension(
  work: SchemaWork,
  { extname: name = '', if_not_exists: isOptional = false }: NodeOf<'CreateExtensionStmt'>,
): string {
  const tag = 'CREATE EXTENSION'
  if (name === LANGUAGE && isOptional) return work.skip(tag, `extension "${name}" already exists`)
  const provided = PROVIDED.get(name)
  if (provided === undefined) throw notSupported(`${tag} [${name}]`, 'there are no extensions')
  work.note(`extension [${name}] is not there: of it, ${provided} can be used`)
  return tag
}

/** Plans a DROP EXTENSION. */
export function dropExtension(work: SchemaWork, object: Node, isOptional: boolean): void {
  const name = contentOf(object, 'String')?.sval ?? ''
  if (!isOptional) throw notSupported(`DROP EXTENSION [${name}]`, 'there are no extensions')
  work.skip('DROP EXTENSION', `extension "${name}" does not exist`)
}
