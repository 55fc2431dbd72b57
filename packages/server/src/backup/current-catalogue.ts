import type { Queryable } from '../postgres/database.js'
import { isUndefinedTable } from '../postgres/failures.js'
import { isCurrent, MigrateError } from '../postgres/migrate.js'
import { BackupError } from './errors.js'

/** Refuses an instance whose catalogue is not that of this version: its tables have other columns. */
export async function requireCurrentCatalogue(database: Queryable): Promise<void> {
  try {
    if (await isCurrent(database)) return
  } catch (error) {
    if (error instanceof MigrateError) throw new BackupError(error.message)
    if (!isUndefinedTable(error)) throw error
    throw new BackupError('there is no instance in this database: start its service first')
  }
  throw new BackupError(
    'the catalogue of the instance is of an earlier version: start its service with this version first',
  )
}
