import type { FileAddress } from '../../rows/columns/file-value.js'

/** The location of a file, as its link encodes it. */
export interface FilePlace extends FileAddress {
  readonly branchId: string
}

/** Encodes the location of a file for a link. The separator is safe: no id can contain a line break. */
export function writeAccessId(branchId: string, file: FileAddress): string {
  const { columnId, recordId, fileId, key } = file
  return Buffer.from([branchId, columnId, recordId, fileId, key].join('\n')).toString('base64url')
}

/** Decodes the location of a file. Returns undefined unless `writeAccessId` would write exactly this text. */
export function readAccessId(text: string): FilePlace | undefined {
  const parts = Buffer.from(text, 'base64url').toString().split('\n')
  const [branchId = '', column = '', recordId = '', fileId = '', key = ''] = parts
  if (parts.length !== 5 || !/^\d{1,15}$/.test(column)) return undefined
  const file = { columnId: Number(column), recordId, fileId, key }
  return writeAccessId(branchId, file) === text ? { branchId, ...file } : undefined
}
