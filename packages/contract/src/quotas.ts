import { type Static, Type } from 'typebox'
import { QUOTA_BYTES_MAX } from './limits.js'
import { DateTimeSchema } from './names.js'

const BytesMaxSchema = Type.Union([
  Type.Integer({ minimum: 0, maximum: QUOTA_BYTES_MAX }),
  Type.Null(),
])

export const UsageSchema = Type.Object(
  {
    bytesMax: Type.Union([Type.Integer(), Type.Null()], {
      description: 'The quota of the workspace, or else the default quota. Null means unlimited.',
    }),
    bytesUsed: Type.Integer({ description: 'Bytes of rows and files together.' }),
    rowBytes: Type.Integer({
      description:
        'Disk space of the rows of all branches, including indexes and earlier versions.',
    }),
    fileBytes: Type.Integer({
      description: 'Bytes of files. Files with equal content count once.',
    }),
    measuredAt: Type.Union([DateTimeSchema, Type.Null()], {
      description: 'Time of the measurement. Null if the workspace has not been measured yet.',
    }),
  },
  {
    title: 'Usage',
    examples: [
      {
        bytesMax: 1_073_741_824,
        bytesUsed: 3_276_800,
        rowBytes: 2_228_224,
        fileBytes: 1_048_576,
        measuredAt: '2026-11-15T12:00:00.000Z',
      },
    ],
  },
)
export type Usage = Static<typeof UsageSchema>

export const WriteQuotaSchema = Type.Object(
  { bytesMax: BytesMaxSchema },
  { additionalProperties: false, title: 'WriteQuota', examples: [{ bytesMax: 1_073_741_824 }] },
)
