import type { TableDefinition } from '@offshoot/client'
import { Button } from '../../ui/button.js'
import { Dialog } from '../../ui/dialog.js'
import { TableHead } from '../../ui/table-head.js'
import { discardRow, rebase, type Staged } from './staging.js'
import type { Conflicts } from './use-save.js'
import { shortText } from './values.js'

/** Shows what someone else has changed since the rows were read, beside one's own changes. */
export function ConflictDialog({
  table,
  staged,
  conflicts,
  onChange,
  onSettled,
  onClose,
}: {
  table: TableDefinition
  staged: Staged
  conflicts: Conflicts
  onChange: (step: (staged: Staged) => Staged) => void
  onSettled: (ids: readonly string[]) => void
  onClose: () => void
}) {
  const settle = (ids: readonly string[], isMine: boolean) => {
    onChange((present) => {
      let next = present
      for (const id of ids) {
        const current = conflicts.get(id)
        next = isMine && current ? rebase(next, current) : discardRow(next, id)
      }
      return next
    })
    onSettled(ids)
  }
  const settleAll = (isMine: boolean) => settle([...conflicts.keys()], isMine)
  return (
    <Dialog
      title={
        conflicts.size === 1
          ? 'Someone else has changed this row'
          : 'Someone else has changed these rows'
      }
      description="Nothing was saved. Decide for each row, then save again."
      onClose={onClose}
      wide
    >
      {[...conflicts].map(([id, current]) => {
        const edit = staged.edits.get(id)
        const base = edit?.base ?? staged.deletes.get(id)
        const changed = table.columns.filter(
          (column) =>
            (edit !== undefined && column.name in edit.fields) ||
            (current !== null &&
              base !== undefined &&
              shortText(column, base[column.name]) !== shortText(column, current[column.name])),
        )
        return (
          <section key={id} className="card">
            <header className="card-head">
              <code className="grow clip">{id}</code>
              {current !== null && (
                <Button onClick={() => settle([id], true)}>
                  {staged.deletes.has(id) ? 'Delete it anyway' : 'Keep mine'}
                </Button>
              )}
              <Button kind="primary" onClick={() => settle([id], false)}>
                {current === null ? 'Give up my change' : 'Take theirs'}
              </Button>
            </header>
            {current === null ? (
              <p className="card-body">This row was deleted.</p>
            ) : (
              <div className="table-wrap">
                <table className="facts">
                  <TableHead titles={['Column', 'Before', 'Mine', 'Theirs']} />
                  <tbody>
                    {changed.map((column) => (
                      <tr key={column.name}>
                        <td>{column.name}</td>
                        <td>{shortText(column, base?.[column.name]) || '–'}</td>
                        <td>
                          {staged.deletes.has(id)
                            ? 'deleted'
                            : edit !== undefined && column.name in edit.fields
                              ? shortText(column, edit.fields[column.name]) || '–'
                              : 'not changed'}
                        </td>
                        <td>{shortText(column, current[column.name]) || '–'}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )}
          </section>
        )
      })}
      {conflicts.size > 1 && (
        <div className="row end">
          <Button onClick={() => settleAll(true)}>Keep all of mine</Button>
          <Button onClick={() => settleAll(false)}>Take all of theirs</Button>
        </div>
      )}
    </Dialog>
  )
}
