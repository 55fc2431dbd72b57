import type { MetadataKey } from '@offshoot/contract/names'
import type { TextRow } from '../../postgres/statement.js'
import type { FileForm, FileRecord } from '../columns/file-value.js'
import { decodeField, decodeFields, type Projection } from '../columns/projection.js'
import { type LinkPlan, METADATA_COUNT, type ReadPlan } from './read-plan.js'

/** How a response writes records: the key of the metadata, and the links of files. */
export interface MetadataForm {
  readonly key: MetadataKey
  readonly files?: FileForm
}

/** Writes a record as JSON, with its id and metadata. */
export function writeRecord(plan: ReadPlan, row: TextRow, form: MetadataForm): string {
  return `{${writeMembers(plan, row, form, { id: true, metadata: true })}}`
}

/** Writes a record with further members of its metadata, such as `"score":1.5`. */
export function writeFound(plan: ReadPlan, row: TextRow, form: MetadataForm, more: string): string {
  const members = writeMembers(plan, row, form, { id: true, metadata: false })
  const metadata = writeMetadata(row, plan.offset, form)
  return `{${members},${metadata.slice(0, -1)},${more}}}`
}

/** Writes only the requested columns, for `get` in a transaction. */
export function writeSelection(plan: ReadPlan, row: TextRow, form: MetadataForm): string {
  const { wantsId, wantsMetadata } = plan
  return `{${writeMembers(plan, row, form, { id: wantsId, metadata: wantsMetadata })}}`
}

function writeMembers(
  plan: ReadPlan,
  row: TextRow,
  form: MetadataForm,
  include: { id: boolean; metadata: boolean },
): string {
  const { offset, projection } = plan
  const members: string[] = []
  if (include.id) members.push(`"id":"${row[offset]}"`)
  const start = offset + METADATA_COUNT
  const texts =
    start === METADATA_COUNT && plan.links.length === 0
      ? row.slice(start)
      : row.slice(start, start + projection.columns.length)
  const own =
    plan.links.length === 0
      ? decodeFields(projection.fields, texts, fileRecord(row[offset], form))
      : writeFields(
          projection.fields,
          texts,
          new Map(plan.links.map((link) => [link.position, link])),
        )
  if (own !== '') members.push(own)
  if (include.metadata) members.push(writeMetadata(row, offset, form))
  return members.join(',')

  /** Writes fields like `decodeFields`, and also expands links. */
  function writeFields(
    fields: Projection['fields'],
    texts: TextRow,
    links: ReadonlyMap<number, LinkPlan>,
  ): string {
    const written = fields.flatMap((field): string[] => {
      const text = texts[field.position] ?? field.nullText
      if (text === undefined) return []
      const link = links.get(field.position)
      if (link !== undefined) {
        // A link is not a foreign key. If the linked record does not exist, the link is left out.
        if (row[link.plan.offset] === null) return []
        return [`${field.firstKey}${writeRecord(link.plan, row, form)}`]
      }
      return [
        field.nested === undefined
          ? `${field.firstKey}${decodeField(field, text, fileRecord(row[offset], form))}`
          : `${field.firstKey}{${writeFields(field.nested, texts, links)}}`,
      ]
    })
    return written.join(',')
  }
}

/** Writes the member `"{key}":{...}` from a row whose metadata starts at the offset. */
export function writeMetadata(row: TextRow, offset: number, form: MetadataForm): string {
  const [, version, createdAt, updatedAt] = row.slice(offset, offset + METADATA_COUNT)
  return `"${form.key}":{"version":${version},"createdAt":"${isoTime(createdAt)}","updatedAt":"${isoTime(updatedAt)}"}`
}

/** Converts `2024-01-02 03:04:05.1+00` to RFC 3339. Times of records have millisecond precision. */
function isoTime(text: string | null | undefined): string {
  const time = text ?? ''
  const fraction = time.length > 22 ? time.slice(20, -3) : ''
  return `${time.slice(0, 10)}T${time.slice(11, 19)}.${fraction.padEnd(3, '0')}Z`
}

function fileRecord(
  recordId: string | null | undefined,
  form: MetadataForm,
): FileRecord | undefined {
  return form.files && { recordId: recordId ?? '', form: form.files }
}
