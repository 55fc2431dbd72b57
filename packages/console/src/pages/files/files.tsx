import type { ColumnDefinition, FileInfo } from '@offshoot/client'
import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link, useSearch } from 'wouter'
import { keys } from '../../api/answers.js'
import {
  type FileCell,
  fileHandle,
  filesOf,
  isPicture,
  readFiles,
  uploadFile,
} from '../../api/files.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useSchema } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button, IconButton } from '../../ui/button.js'
import { formatBytes } from '../../ui/bytes.js'
import { Dialog, FormDialog } from '../../ui/dialog.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Field, TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { saveBlob } from '../../ui/save-blob.js'
import { TableHead } from '../../ui/table-head.js'
import { notify, notifyError } from '../../ui/toasts.js'
import { Wide } from '../../ui/wide.js'

const PAGE_SIZE = 50

type FileColumn = Omit<FileCell, 'id'>

interface FileRow {
  readonly cell: FileCell
  readonly index: number
  readonly file: FileInfo
}

/** The files of a branch, by the column that holds them. */
export function FilesPage() {
  const place = usePlace()
  const schema = useSchema()
  const columns: FileColumn[] = schema.tables.flatMap((table) =>
    table.columns
      .filter(({ type }: ColumnDefinition) => type === 'file' || type === 'file[]')
      .map(({ name, type }) => ({ table: table.name, column: name, isList: type === 'file[]' })),
  )
  const chosen = new URLSearchParams(useSearch()).get('column')
  const nameOf = ({ table, column }: FileColumn) => `${table}.${column}`
  const current = columns.find((column) => nameOf(column) === chosen) ?? columns[0]
  return (
    <Page title="Files" subtitle="Files of records, by table and column.">
      {current === undefined ? (
        <Empty
          icon="file"
          title="No column holds files"
          actions={
            <Link className="button primary" href={href(paths.schema(place))}>
              Open the schema
            </Link>
          }
        >
          Add a column of the type file or file[] to a table. Then upload files to its records.
        </Empty>
      ) : (
        <>
          <div className="row">
            {columns.map((column) => (
              <Button
                key={nameOf(column)}
                aria-pressed={column === current}
                onClick={() =>
                  goTo(`${paths.files(place)}?column=${encodeURIComponent(nameOf(column))}`)
                }
              >
                {nameOf(column)}
              </Button>
            ))}
          </div>
          <FileList key={nameOf(current)} column={current} />
        </>
      )}
    </Page>
  )
}

function FileList({ column: place }: { column: FileColumn }) {
  const { table, column } = place
  const address = usePlace()
  const branch = useBranch()
  const { canWrite } = useRights()
  const queries = useQueryClient()
  const [shown, setShown] = useState<{ name: string; url: string } | null>(null)
  const [isUploading, setUploading] = useState(false)
  const [deleted, setDeleted] = useState<FileRow | null>(null)
  const queryKey = [...keys.branch(address), 'files', table, column]
  const pages = useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam, signal }) =>
      branch
        .table(table)
        .query({ columns: [column], filter: { $exists: column }, size: PAGE_SIZE, signal })
        .page(pageParam === '' ? undefined : pageParam),
    initialPageParam: '',
    getNextPageParam: (last) => (last.hasMore ? last.cursor : undefined),
  })
  const rows: FileRow[] = (pages.data?.pages ?? []).flatMap(({ records }) =>
    (records as readonly Record<string, unknown>[]).flatMap((record) => {
      const cell = { ...place, id: String(record.id) }
      return filesOf(record[column]).map((file, index) => ({ cell, index, file }))
    }),
  )
  const open = async ({ cell, file }: FileRow) => {
    try {
      const content = await fileHandle(branch, cell, file).download()
      if (content === undefined) return
      const name = file.name || cell.id
      if (isPicture(file)) setShown({ name, url: URL.createObjectURL(content) })
      else saveBlob(content, name)
    } catch (error) {
      notifyError(error)
    }
  }
  const refresh = () => queries.invalidateQueries({ queryKey })
  return (
    <>
      {canWrite && (
        <div>
          <Button kind="primary" icon="upload" onClick={() => setUploading(true)}>
            Upload
          </Button>
        </div>
      )}
      <ErrorNote error={pages.error} onRetry={() => void pages.refetch()} />
      {pages.isPending && <Loading />}
      {pages.isSuccess && rows.length === 0 && (
        <p className="muted">
          No record of <Link href={href(paths.table(address, table))}>{table}</Link> has a file
          here.
        </p>
      )}
      {rows.length > 0 && (
        <Wide className="card" label="Files">
          <table className="facts">
            <TableHead titles={['File', 'Record', 'Type', 'Size']} hasActions />
            <tbody>
              {rows.map((row) => {
                const { cell, index, file } = row
                const name = file.name || 'without a name'
                return (
                  <tr key={`${cell.id} ${index}`}>
                    <td className="clip" title={name}>
                      {name}
                    </td>
                    <td className="clip">
                      <code>{cell.id}</code>
                    </td>
                    <td>
                      <Tag>{file.mediaType}</Tag>
                    </td>
                    <td>{formatBytes(file.size ?? 0)}</td>
                    <td className="number">
                      <Button
                        className="small"
                        aria-label={`${isPicture(file) ? 'Show' : 'Download'} ${name}`}
                        onClick={() => void open(row)}
                      >
                        {isPicture(file) ? 'Show' : 'Download'}
                      </Button>
                      {canWrite && (
                        <IconButton
                          label={`Delete ${name}`}
                          icon="trash"
                          onClick={() => setDeleted(row)}
                        />
                      )}
                    </td>
                  </tr>
                )
              })}
            </tbody>
          </table>
        </Wide>
      )}
      {pages.hasNextPage && (
        <div>
          <Button isBusy={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
            Show more files
          </Button>
        </div>
      )}
      {isUploading && (
        <UploadDialog column={place} onClose={() => setUploading(false)} onStored={refresh} />
      )}
      {deleted !== null && (
        <FormDialog
          title="Delete the file"
          description={
            <>
              <strong>{deleted.file.name || 'The file'}</strong> of record{' '}
              <code>{deleted.cell.id}</code> is deleted on this branch. Other branches keep it.
            </>
          }
          action="Delete file"
          isDangerous
          onClose={() => setDeleted(null)}
          onSubmit={async () => {
            await fileHandle(branch, deleted.cell, deleted.file).delete()
            await refresh()
            notify('The file is deleted')
          }}
        />
      )}
      {shown !== null && (
        <Dialog
          title={shown.name}
          wide
          onClose={() => {
            URL.revokeObjectURL(shown.url)
            setShown(null)
          }}
        >
          <img className="preview" src={shown.url} alt={shown.name} />
          <div className="row end">
            <a className="button plain" href={shown.url} download={shown.name}>
              Download
            </a>
          </div>
        </Dialog>
      )}
    </>
  )
}

/** Uploads files to a record that the user names. */
function UploadDialog({
  column,
  onStored,
  onClose,
}: {
  column: FileColumn
  onStored: () => Promise<unknown>
  onClose: () => void
}) {
  const branch = useBranch()
  const [id, setId] = useState('')
  const [chosen, setChosen] = useState<readonly File[]>([])
  return (
    <FormDialog
      title={`Upload to ${column.table}.${column.column}`}
      action="Upload"
      isDisabled={id === '' || chosen.length === 0}
      onClose={onClose}
      onSubmit={async () => {
        const cell = { ...column, id }
        if ((await readFiles(branch, cell)) === undefined) {
          throw new Error(`There is no record ${id} in ${column.table}.`)
        }
        for (const file of chosen) await uploadFile(branch, cell, file)
        await onStored()
        notify(chosen.length === 1 ? 'The file is stored' : `${chosen.length} files are stored`)
      }}
    >
      <TextField
        label="Record"
        hint={
          column.isList
            ? 'The id of the record that the files are added to.'
            : 'The id of the record. A file that it has already is replaced.'
        }
        value={id}
        onChange={setId}
        autoComplete="off"
      />
      <Field label={column.isList ? 'Files' : 'File'}>
        <input
          type="file"
          multiple={column.isList}
          onChange={(event) => setChosen([...(event.target.files ?? [])])}
        />
      </Field>
    </FormDialog>
  )
}
