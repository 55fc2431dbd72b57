import type { SchemaOperation } from '@offshoot/client'
import { Icon } from './icon.js'
import { describeOperation } from './schema-words.js'

/** A list of schema operations in words. */
export function SchemaChanges({ operations }: { operations: readonly SchemaOperation[] }) {
  return (
    <ul className="schema-changes">
      {operations.map((operation, index) => {
        const [kind = ''] = Object.keys(operation)
        const look = kind.startsWith('add')
          ? 'added'
          : kind.startsWith('remove')
            ? 'removed'
            : 'changed'
        const icon = look === 'added' ? 'plus' : look === 'removed' ? 'trash' : 'edit'
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: operations have no identity.
          <li key={index} className={look}>
            <Icon name={icon} size={13} /> {describeOperation(operation)}
          </li>
        )
      })}
    </ul>
  )
}

/** Counts of inserted, updated and deleted rows. */
export function Counts({
  inserted,
  updated,
  deleted,
}: {
  inserted: number
  updated: number
  deleted: number
}) {
  return (
    <span className="counts">
      <span className="inserted" title="inserted">
        +{inserted.toLocaleString('en')}
      </span>
      <span className="updated" title="updated">
        ~{updated.toLocaleString('en')}
      </span>
      <span className="deleted" title="deleted">
        −{deleted.toLocaleString('en')}
      </span>
    </span>
  )
}
