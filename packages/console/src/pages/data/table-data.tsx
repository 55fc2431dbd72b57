import { useEffect } from 'react'
import { useSearch } from 'wouter'
import { usePlace } from '../../api/place.js'
import { useBranchAt } from '../../api/queries.js'
import { paths } from '../../app/paths.js'
import { usePlaceOfAddress } from '../../app/use-address.js'
import { Empty, ErrorNote, Loading } from '../../ui/feedback.js'
import { Page } from '../../ui/page.js'
import { AsOfNote } from './as-of.js'
import './data.css'
import { DataGrid } from './data-grid.js'
import { tableKey } from './first-rows.js'
import { parseView } from './view.js'

/** The rows of the table that the address names. */
export function TableData() {
  const place = usePlace()
  const { table: name = '' } = usePlaceOfAddress()
  const { at } = parseView(useSearch())
  const branch = useBranchAt(place, at)
  const table = branch.data?.schema.tables.find((one) => one.name === name)
  const isMissing = branch.isSuccess && table === undefined
  const { refetch } = branch
  // Someone else may have made it since the schema was read.
  useEffect(() => {
    if (isMissing && name !== '') void refetch()
  }, [isMissing, name, refetch])
  if (branch.isPending || (isMissing && branch.isFetching)) {
    return (
      <Page title={name} isFull>
        <Loading lines={8} />
      </Page>
    )
  }
  if (branch.isError) {
    return (
      <Page title={name}>
        <AsOfNote at={at} path={paths.table(place, name)} />
        <ErrorNote error={branch.error} onRetry={() => void branch.refetch()} />
      </Page>
    )
  }
  if (table === undefined) {
    return (
      <Page title={name}>
        <AsOfNote at={at} path={paths.table(place, name)} />
        <Empty icon="table" title={`There is no table “${name}” on this branch`}>
          {at === ''
            ? 'It may exist on another branch, or was renamed.'
            : 'It did not exist then, or had another name.'}
        </Empty>
      </Page>
    )
  }
  const key = tableKey(place, table.name)
  return <DataGrid key={key} name={key} table={table} />
}
