import { usePlace } from '../../api/place.js'
import { useBranchDetails } from '../../api/queries.js'
import { usePlaceOfAddress } from '../../app/use-address.js'
import { Empty, ErrorNote, Loading } from '../../ui/feedback.js'
import { Page } from '../../ui/page.js'
import './data.css'
import { DataGrid } from './data-grid.js'
import { tableKey } from './first-rows.js'

/** The rows of the table that the address names. */
export function TableData() {
  const place = usePlace()
  const { table: name = '' } = usePlaceOfAddress()
  const branch = useBranchDetails(place)
  const table = branch.data?.schema.tables.find((one) => one.name === name)
  if (branch.isPending) {
    return (
      <Page title={name} isFull>
        <Loading lines={8} />
      </Page>
    )
  }
  if (branch.isError) {
    return (
      <Page title={name}>
        <ErrorNote error={branch.error} onRetry={() => void branch.refetch()} />
      </Page>
    )
  }
  if (table === undefined) {
    return (
      <Page title={name}>
        <Empty icon="table" title={`There is no table “${name}” on this branch`}>
          It may exist on another branch, or was renamed.
        </Empty>
      </Page>
    )
  }
  const key = tableKey(place, table.name)
  return <DataGrid key={key} name={key} table={table} />
}
