export type { Account } from './account.js'
export type * from './api.js'
export type { Branch, Change, DifferenceOptions, ForkOptions } from './branch.js'
export { type Client, type ClientOptions, createAccount, createClient } from './client.js'
export type { Database, GitMapping } from './database.js'
export { type ErrorCode, type Fault, OffshootError, SERVICE_ERROR_CODES } from './errors.js'
export type { FileHandle } from './files.js'
export type { Filter, Path, Sort } from './filter.js'
export type { CallOptions, LongCallOptions, RepeatableBody, TransportOptions } from './http.js'
export {
  InsertManyError,
  type InsertManyOptions,
  type InsertManyProgress,
  type InsertManyResult,
  type RecordSource,
} from './insert-many.js'
export type { Proposal } from './proposal.js'
export { resolutionOf } from './resolution-of.js'
export type {
  AnySchema,
  Arithmetic,
  BaseRecord,
  Computed,
  DateTime,
  Decimal,
  File,
  FileInfo,
  FileInput,
  Files,
  FullRecord,
  InsertRecord,
  Json,
  Link,
  RecordMetadata,
  UpdateFields,
  WithDefault,
} from './schema.js'
export type { Selected, Selection } from './selection.js'
export type { SqlArrays, SqlOptions, SqlResult, SqlRunner, SqlStatement } from './sql.js'
export type {
  DeletedSet,
  Page,
  Query,
  QueryOptions,
  ReadOptions,
  RecordSet,
  SetOptions,
  Table,
  UpsertResult,
  WriteOptions,
} from './table.js'
export type { Operation, OperationResult, TransactionResults } from './transaction.js'
export type { Workspace } from './workspace.js'
