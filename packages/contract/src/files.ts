import { type Static, Type } from 'typebox'
import {
  DatabaseBranchNameSchema,
  DatabaseNameSchema,
  DateTimeSchema,
  FileItemIdSchema,
  RecordIdSchema,
  TableNameSchema,
} from './names.js'

/** Default lifetime of a signed URL, in seconds. */
export const SIGNED_URL_SECONDS = 60
/** Default lifetime of an upload URL, in seconds. */
export const UPLOAD_URL_SECONDS = 24 * 60 * 60
/** Media type of a file that was stored without one and whose first bytes match no known format. */
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
  description: 'SHA-256 hash of the content, in hexadecimal. It is also the `ETag` of the file.',
  pattern: '^[0-9a-f]{64}$',
  examples: ['9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'],
})

export const PrivateFileParamsSchema = Type.Object({
  databaseName: DatabaseNameSchema,
  sha256: Sha256Schema,
})

/** File content that was made private: no branch serves it by public URL. */
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
    description: 'The part of a file URL that identifies the file.',
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

/** Metadata of a file. The content is served at the URL of the file. */
export const FileSchema = Type.Object(
  {
    id: Type.Optional(Type.String({ description: 'Id of the file, only in a `file[]` column.' })),
    name: Type.String(),
    mediaType: Type.String(),
    size: Type.Integer({ description: 'Size of the content, in bytes.' }),
    version: Type.Integer({ description: 'Increases with each update of the file.' }),
    url: Type.String({
      description: 'URL of the content. It is public if `enablePublicUrl` is true.',
    }),
    enablePublicUrl: Type.Boolean(),
    signedUrlTimeout: Type.Integer({ description: 'Lifetime of signed URLs, in seconds.' }),
    uploadUrlTimeout: Type.Integer({ description: 'Lifetime of upload URLs, in seconds.' }),
    attributes: Type.Object(
      { width: Type.Optional(Type.Integer()), height: Type.Optional(Type.Integer()) },
      { description: 'For an image: its width and height, in pixels.' },
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
      Type.Boolean({ description: 'Invalidates every link that was signed with an earlier key.' }),
    ),
  },
  { additionalProperties: false, title: 'RotateLinkKey', examples: [{ endLinks: true }] },
)
export type RotateLinkKey = Static<typeof RotateLinkKeySchema>

export const RotatedLinkKeySchema = Type.Object(
  {
    createdAt: DateTimeSchema,
    endedKeys: Type.Integer({ description: 'Number of earlier keys whose links became invalid.' }),
  },
  { title: 'RotatedLinkKey' },
)
export type RotatedLinkKey = Static<typeof RotatedLinkKeySchema>
