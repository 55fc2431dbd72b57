import { codeOf, INVALID_PARAMETER_VALUE, PERMISSION_DENIED } from '../../postgres/failures.js'
import type { Reader } from '../../postgres/server.js'
import type { SqlContext } from './sql-context.js'

/** Runs work as the role that reads the database. If that is why it fails, the role is renewed, and the work runs again. */
export async function asReader<Result>(
  { readers, session }: Pick<SqlContext, 'readers' | 'session'>,
  work: (reader: Reader) => Promise<Result>,
): Promise<Result> {
  const schema = session.branch.schemaName
  for (let isRenewed = false; ; isRenewed = true) {
    try {
      return await work({ schema, role: await readers.find(schema) })
    } catch (error) {
      if (isRenewed || !(await lacksRights({ readers }, schema, error))) throw error
      await readers.renew(schema)
    }
  }
}

/** Returns whether a statement failed because its role lacks a privilege, or was dropped by an administrator. */
export async function lacksRights(
  { readers }: Pick<SqlContext, 'readers'>,
  schema: string,
  error: unknown,
): Promise<boolean> {
  if (codeOf(error) === PERMISSION_DENIED) return true
  // Statements of callers fail with this code, too.
  if (codeOf((error as Error).cause) !== INVALID_PARAMETER_VALUE) return false
  return !(await readers.exists(schema))
}
