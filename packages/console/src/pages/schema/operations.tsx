import type { SchemaOperation } from '@offshoot/client'
import { describeOperation, isRemoval } from '../../api/operations.js'

/** Schema operations in words. */
export function Operations({ operations }: { operations: readonly SchemaOperation[] }) {
  return (
    <ol className="operations">
      {operations.map((operation, index) => {
        const kind = isRemoval(operation)
          ? 'remove'
          : ['addTable', 'addColumn', 'addConstraint'].some((added) => added in operation)
            ? 'add'
            : 'rename'
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: operations have no identity.
          <li key={index}>
            <b className={kind} aria-hidden="true">
              {kind === 'remove' ? '−' : kind === 'add' ? '+' : '~'}
            </b>
            {describeOperation(operation)}
          </li>
        )
      })}
    </ol>
  )
}
