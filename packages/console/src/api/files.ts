import type { AnySchema, Branch, FileHandle, FileInfo } from '@offshoot/client'

/** A cell that holds a file, or a list of them. */
export interface FileCell {
  readonly table: string
  readonly id: string
  readonly column: string
  readonly isList: boolean
}

/** Returns the handle of a file of the cell. A new file of a list has no id yet. */
export function fileHandle(
  branch: Branch<AnySchema>,
  { table, id, column, isList }: FileCell,
  file?: FileInfo,
): FileHandle {
  return branch.table(table).file(id, column, isList ? (file?.id ?? '') : undefined)
}

/** Reads the files of a cell. Returns undefined if there is no such record. */
export async function readFiles(
  branch: Branch<AnySchema>,
  { table, id, column }: FileCell,
): Promise<readonly FileInfo[] | undefined> {
  const record = (await branch.table(table).read(id)) as Record<string, unknown> | undefined
  return record && filesOf(record[column])
}

/** The files in the value of a cell. */
export function filesOf(value: unknown): readonly FileInfo[] {
  return value === null || value === undefined ? [] : [value as FileInfo | FileInfo[]].flat()
}

/** Stores a file, and then its name: the content is stored without one. */
export async function uploadFile(
  branch: Branch<AnySchema>,
  cell: FileCell,
  file: File,
): Promise<void> {
  const { table, id, column, isList } = cell
  const added = await fileHandle(branch, cell).upload(file)
  const name = file.name.replace(/[^\p{L}\p{N}!\-_.*'()]/gu, '_')
  if (!isList) await branch.table(table).update(id, { [column]: { name } })
  else if (added.id !== undefined) {
    const list = (await readFiles(branch, cell)) ?? []
    const named = list.map((one) => (one.id === added.id ? { id: one.id, name } : { id: one.id }))
    await branch.table(table).update(id, { [column]: named })
  }
}

/** Pictures that a page shows. Scripts cannot run in any of them. */
const PICTURES = /^image\/(png|jpeg|gif|webp|avif|bmp)$/
/** Larger pictures are only downloaded. */
const PICTURE_BYTES_MAX = 10 * 1024 * 1024

export function isPicture({ mediaType, size }: Pick<FileInfo, 'mediaType' | 'size'>): boolean {
  return PICTURES.test(mediaType ?? '') && (size ?? 0) <= PICTURE_BYTES_MAX
}
