import { AppError } from '@offshoot/contract/errors'
import type { Migration } from '@offshoot/contract/schema-edits'
import { checksumOf } from './checksum.js'

interface PushInput {
  /** The id of the newest migration of the branch. */
  readonly head: string
  /** The pushed migrations that the branch has already. */
  readonly known: readonly { readonly id: string; readonly checksum?: string }[]
  /** The pushed migrations, oldest first. */
  readonly migrations: readonly Migration[]
}

type PlannedMigration = Migration & { readonly parentID: string }

/**
 * Returns the pushed migrations that the branch does not have yet, in the order to apply them. The
 * push must contain the head of the branch or follow it. A migration without a parent follows the
 * previous one.
 */
export function planPush({ head, known: found, migrations }: PushInput): PlannedMigration[] {
  const known = new Map(found.map(({ id, checksum }) => [id, checksum]))
  checkMigrations(migrations, known)
  const headIndex = migrations.findIndex(({ id }) => id === head)
  for (const { id } of migrations.slice(0, Math.max(headIndex, 0))) {
    if (!known.has(id)) throw diverged(id, head)
  }
  let parentID = head
  return migrations.slice(headIndex + 1).map((migration) => {
    const isNext = (migration.parentID ?? parentID) === parentID
    if (known.has(migration.id) || !isNext) throw diverged(migration.id, head)
    const planned = { ...migration, parentID }
    parentID = migration.id
    return planned
  })
}

function checkMigrations(
  migrations: readonly Migration[],
  known: ReadonlyMap<string, string | undefined>,
): void {
  const ids = new Set<string>()
  for (const { id, checksum, operations } of migrations) {
    if (ids.has(id)) throw invalid(id, 'is listed twice')
    ids.add(id)
    if (checksum !== checksumOf(operations)) {
      throw invalid(id, 'checksum does not match the operations')
    }
    if ((known.get(id) ?? checksum) !== checksum) {
      throw invalid(id, 'the branch has this migration with different operations')
    }
  }
}

function invalid(id: string, fault: string): AppError {
  return new AppError('invalid_schema', `migration [${id}]: ${fault}`)
}

function diverged(id: string, head: string): AppError {
  return new AppError(
    'conflict',
    `migration [${id}]: does not follow the head [${head}] of the branch`,
  )
}
