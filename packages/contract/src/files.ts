import { type Static, Type } from 'typebox'
import {
  DatabaseBranchNameSchema,
  DatabaseNameSchema,
  DateTimeSchema,
  FileItemIdSchema,
  RecordIdSchema,
  TableNameSchema,
} from './names.js'

/** Seconds that a signed URL works when the file does not say. */
export const SIGNED_URL_SECONDS = 60
/** Seconds that an upload URL works when the file does not say. */
export const UPLOAD_URL_SECONDS = 24 * 60 * 60
/** Of a file that nobody gave a type, and whose first bytes are not known either. */
export const DEFAULT_MEDIA_TYPE = 'application/octet-stream'

export const FileParamsSchema = Type.Object({
  databaseBranch: DatabaseBranchNameSchema,
  tableName: TableNameSchema,
  recordId: RecordIdSchema,
  columnName: Type.String({
    description: 'A `file` or `file[]` column.',
    minLength: 1,
    maxLength: 4096,
    examples: ['photo'],
  }),
})

export const FileItemParamsSchema = Type.Object({
  ...FileParamsSchema.properties,
  fileId: FileItemIdSchema,
})

export const MakePrivateQuerySchema = Type.Object({ fileId: Type.Optional(FileItemIdSchema) })

const Sha256Schema = Type.String({
  description: 'The sha-256 of the content, in hexadecimal; also the `ETag` of the file.',
  pattern: '^[0-9a-f]{64}$',
  examples: ['9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'],
})

export const PrivateFileParamsSchema = Type.Object({
  databaseName: DatabaseNameSchema,
  sha256: Sha256Schema,
})

/** A content that is public on no branch. */
export const PrivateFileSchema = Type.Object(
  { sha256: Sha256Schema, createdAt: DateTimeSchema },
  { title: 'PrivateFile' },
)
export type PrivateFile = Static<typeof PrivateFileSchema>

export const PrivateFileListSchema = Type.Object(
  { files: Type.Array(PrivateFileSchema) },
  { title: 'PrivateFileList' },
)

export const FileLinkParamsSchema = Type.Object({
  accessId: Type.String({
    description: 'What a link says about where its file is.',
    minLength: 1,
    maxLength: 4096,
    examples: ['YmJfMAo3CnJlY18wCgprZXk'],
  }),
})

export const FileLinkQuerySchema = Type.Object({
  verify: Type.Optional(
    Type.String({ description: 'The signature of a signed or upload URL.', maxLength: 1024 }),
  ),
})

/** What is known about a file; its content is at the address of the file. */
export const FileSchema = Type.Object(
  {
    id: Type.Optional(Type.String({ description: 'Of a file in a `file[]` column.' })),
    name: Type.String(),
    mediaType: Type.String(),
    size: Type.Integer({ description: 'Bytes of the content.' }),
    version: Type.Integer({ description: 'Grows with each update of the file.' }),
    url: Type.String({ description: 'Open to everybody when `enablePublicUrl` is true.' }),
    enablePublicUrl: Type.Boolean(),
    signedUrlTimeout: Type.Integer({ description: 'Seconds that a signed URL works.' }),
    uploadUrlTimeout: Type.Integer({ description: 'Seconds that an upload URL works.' }),
    attributes: Type.Object(
      { width: Type.Optional(Type.Integer()), height: Type.Optional(Type.Integer()) },
      { description: 'Of an image: its width and height.' },
    ),
  },
  {
    title: 'File',
    examples: [
      {
        name: 'ada.png',
        mediaType: 'image/png',
        size: 4096,
        version: 0,
        url: 'http://localhost:6001/file/YmJfMAo3CnJlY18wCgprZXk',
        enablePublicUrl: false,
        signedUrlTimeout: SIGNED_URL_SECONDS,
        uploadUrlTimeout: UPLOAD_URL_SECONDS,
        attributes: { width: 64, height: 64 },
      },
    ],
  },
)
export type File = Static<typeof FileSchema>

export const RotateLinkKeySchema = Type.Object(
  {
    endLinks: Type.Optional(
      Type.Boolean({ description: 'Ends every link that an earlier key has signed.' }),
    ),
  },
  { additionalProperties: false, title: 'RotateLinkKey', examples: [{ endLinks: true }] },
)
export type RotateLinkKey = Static<typeof RotateLinkKeySchema>

export const RotatedLinkKeySchema = Type.Object(
  {
    createdAt: DateTimeSchema,
    endedKeys: Type.Integer({ description: 'Earlier keys that verify no link any more.' }),
  },
  { title: 'RotatedLinkKey' },
)
export type RotatedLinkKey = Static<typeof RotatedLinkKeySchema>
