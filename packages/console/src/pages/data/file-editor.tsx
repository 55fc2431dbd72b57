import type { FileInfo } from '@offshoot/client'
import { useEffect, useState } from 'react'
import {
  type FileCell,
  fileHandle,
  filesOf,
  isPicture,
  readFiles,
  uploadFile,
} from '../../api/files.js'
import { useBranch } from '../../api/place.js'
import { useRights } from '../../api/session.js'
import { usePlaceOfAddress } from '../../app/use-address.js'
import { Button, IconButton } from '../../ui/button.js'
import { ErrorNote } from '../../ui/feedback.js'
import { saveBlob } from '../../ui/save-blob.js'
import type { EditorProps } from './editor-props.js'
import type { Row } from './values.js'

/** Shows, uploads and deletes the files of a cell. Files are stored at once, not with the next save. */
export function FileEditor({
  column,
  value,
  row,
  onStored,
}: EditorProps & { row: Row | undefined; onStored: () => void }) {
  const { table = '' } = usePlaceOfAddress()
  const branch = useBranch()
  const { canWrite } = useRights()
  const isList = column.type === 'file[]'
  const [files, setFiles] = useState(filesOf(value))
  const [error, setError] = useState<unknown>(null)
  const [isBusy, setBusy] = useState(false)
  if (row === undefined) return <p className="pad muted">Save the record first, then add files.</p>
  const cell: FileCell = { table, id: row.id, column: column.name, isList }
  const handle = (file: FileInfo) => fileHandle(branch, cell, file)
  const work = async (change: () => Promise<unknown>) => {
    setBusy(true)
    setError(null)
    try {
      await change()
      setFiles((await readFiles(branch, cell)) ?? [])
      onStored()
    } catch (caught) {
      setError(caught)
    } finally {
      setBusy(false)
    }
  }
  const upload = async (chosen: readonly File[]) => {
    for (const file of chosen) await uploadFile(branch, cell, file)
  }
  return (
    <div className="form pad">
      {files.map((file) => (
        <div key={file.id ?? file.name} className="file-line">
          <Preview file={file} read={() => handle(file).download()} />
          <div className="grow">
            <div className="clip">{file.name || 'unnamed'}</div>
            <div className="faint">
              {file.mediaType} · {file.size.toLocaleString()} bytes
            </div>
          </div>
          <IconButton
            label={`Download ${file.name}`}
            icon="download"
            onClick={() =>
              void handle(file)
                .download()
                .then((blob) => blob && saveBlob(blob, file.name || 'file'))
                .catch(setError)
            }
          />
          {canWrite && (
            <IconButton
              label={`Delete ${file.name}`}
              icon="trash"
              disabled={isBusy}
              onClick={() => void work(() => handle(file).delete())}
            />
          )}
        </div>
      ))}
      {files.length === 0 && <p className="faint">No file yet.</p>}
      <ErrorNote error={error} />
      {canWrite && (
        <label className="field">
          <span>{isList ? 'Add files' : files.length === 0 ? 'Upload a file' : 'Replace it'}</span>
          <input
            type="file"
            multiple={isList}
            disabled={isBusy}
            onChange={(event) => {
              const chosen = [...(event.target.files ?? [])]
              void work(() => upload(chosen))
            }}
          />
          <small className="faint">Files are stored at once, not with the next save.</small>
        </label>
      )}
      {isBusy && <Button isBusy>Storing</Button>}
    </div>
  )
}

function Preview({ file, read }: { file: FileInfo; read: () => Promise<Blob | undefined> }) {
  const [url, setUrl] = useState<string>()
  const isShown = isPicture(file)
  // biome-ignore lint/correctness/useExhaustiveDependencies: the version names the content.
  useEffect(() => {
    if (!isShown) return
    let made: string | undefined
    let isGone = false
    void read()
      .then((blob) => {
        if (blob === undefined || isGone) return
        made = URL.createObjectURL(blob)
        setUrl(made)
      })
      .catch(() => undefined)
    return () => {
      isGone = true
      if (made !== undefined) URL.revokeObjectURL(made)
    }
  }, [isShown, file.url, file.version])
  if (url === undefined) return null
  return <img className="file-preview" src={url} alt={`Preview of ${file.name}`} />
}
