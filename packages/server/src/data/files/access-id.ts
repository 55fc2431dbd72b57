import type { FileAddress } from '../../rows/files.js'

/** A file by its place, as its link names it. */
export interface FilePlace extends FileAddress {
  readonly branchId: string
}

/** The part of a link that names a file. None of the ids can hold a line break. */
export function writeAccessId(branchId: string, file: FileAddress): string {
  const { columnId, recordId, fileId, key } = file
  return Buffer.from([branchId, columnId, recordId, fileId, key].join('\n')).toString('base64url')
}

/** undefined when the text is not one that `writeAccessId` has written. */
export function readAccessId(text: string): FilePlace | undefined {
  const parts = Buffer.from(text, 'base64url').toString().split('\n')
  const [branchId = '', column = '', recordId = '', fileId = '', key = ''] = parts
  if (parts.length !== 5 || !/^\d{1,15}$/.test(column)) return undefined
  const file = { columnId: Number(column), recordId, fileId, key }
  return writeAccessId(branchId, file) === text ? { branchId, ...file } : undefined
}
