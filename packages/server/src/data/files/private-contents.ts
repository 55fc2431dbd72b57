import { AppError } from '@offshoot/contract/errors'
import type { PrivateFile } from '@offshoot/contract/files'
import type { DatabaseAccess } from '../../domain/access/resolve.js'
import { requireWholeDatabase } from '../../domain/access/scope.js'
import type { Database } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import type { Session } from '../session/session.js'
import { type FileContext, type FileTarget, getFile } from './operations.js'

/*
 * A fork copies the files of its source including their settings, so a file that is made private on one branch
 * stays public on the others. Contents in this list are private on all branches of the database, regardless of
 * the settings of files. Forks, merges and resets do not change the list.
 */

interface PrivateRow {
  readonly sha256: string
  readonly createdAt: Date
}

/**
 * Disables public links to the content of a file, on all branches of the database. Signed links still work.
 */
export async function makePrivate(
  context: FileContext,
  session: Session,
  target: FileTarget,
): Promise<PrivateFile> {
  requireWholeDatabase(session.principal.scope)
  const { sha256 } = await getFile(session, target)
  if (sha256 === undefined) {
    throw new AppError('file_not_found', `column [${target.columnName}]: the file has no content`)
  }
  const { databaseId } = session.branch.rows
  const [row] = await context.database.query<PrivateRow>(sql`
    insert into offshoot.private_contents (database_id, sha256)
    values (${databaseId}, decode(${sha256}, 'hex'))
    on conflict (database_id, sha256) do update set sha256 = excluded.sha256
    returning encode(sha256, 'hex') as sha256, created_at as "createdAt"`)
  if (row === undefined) throw new Error('an inserted content was not returned')
  return toPrivateFile(row)
}

export async function readPrivateFiles(
  database: Database,
  access: DatabaseAccess,
): Promise<{ files: PrivateFile[] }> {
  requireWholeDatabase(access.principal.scope, 'read')
  const rows = await database.query<PrivateRow>(sql`
    select encode(sha256, 'hex') as sha256, created_at as "createdAt"
    from offshoot.private_contents
    where database_id = ${access.databaseId}
    order by created_at, sha256`)
  return { files: rows.map(toPrivateFile) }
}

/** Removes a content from the list. Each file decides again whether it is public. */
export async function allowPublic(
  database: Database,
  access: DatabaseAccess,
  options: { sha256: string },
): Promise<void> {
  requireWholeDatabase(access.principal.scope)
  const rows = await database.query(sql`
    delete from offshoot.private_contents
    where database_id = ${access.databaseId} and sha256 = decode(${options.sha256}, 'hex')
    returning sha256`)
  if (rows.length === 0) {
    throw new AppError('file_not_found', `content [${options.sha256}] is not private everywhere`)
  }
}

function toPrivateFile({ sha256, createdAt }: PrivateRow): PrivateFile {
  return { sha256, createdAt: createdAt.toISOString() }
}
