/**
 * Every limit of the service, by name. Most can be configured (`OFFSHOOT_LIMIT_...`); those that the
 * schemas of the interface state are fixed.
 */
export const LIMITS = {
  /** Characters of a database, branch, table or column name, and of a record id. */
  nameLengthMax: 255,
  /** Characters of a git branch name in the mapping. */
  gitBranchLengthMax: 1024,
  /** Characters of a free text in a control-plane body: a name, colour, label or image URL. */
  labelLengthMax: 2048,
  /** Labels in the metadata of a branch. */
  labelsMax: 100,
  /** Seconds after its last use that a branch with a `ttl` can live: ten years. */
  ttlSecondsMax: 10 * 365 * 24 * 60 * 60,
  /** Checkpoints of one branch that users have made. */
  checkpointsPerBranchMax: 1000,
  /** Changes of one branch whose checkpoints are kept: the service makes one before and one after each. 0: it makes none. */
  automaticCheckpointsMax: 20,
  /** Open proposals of one database. */
  openProposalsMax: 1000,
  /** Comments of one proposal. */
  commentsPerProposalMax: 1000,
  /** Rules for new branches of one database. */
  branchRulesMax: 100,
  keysPerUserMax: 40,
  workspacesPerUserMax: 1000,
  databasesPerWorkspaceMax: 10_000,
  tablesPerBranchMax: 1000,
  columnsPerTableMax: 256,
  /** Columns of all tables of a branch. Its schema is read, compared and sent as a whole. */
  columnsPerBranchMax: 20_000,
  /** Indexes of one table that users request. Indexes of links and unique columns do not count. */
  indexesPerTableMax: 32,
  /** Schema edit operations in one migration. */
  schemaOperationsMax: 10_000,
  /** Characters of an expression over the columns of a record, such as that of a check constraint. */
  expressionLengthMax: 2000,
  /** Constraints of one table. */
  constraintsPerTableMax: 50,
  /** Columns of a unique constraint. */
  constraintColumnsMax: 8,
  /** Records that the deletion of others deletes or changes, because they link to them. */
  linkedRecordsMax: 100_000,
  /** Records that are listed because they violate a constraint that is added. */
  violationsListedMax: 10,
  /** Nesting depth of `object` columns. */
  objectDepthMax: 8,
  vectorDimensionMin: 2,
  vectorDimensionMax: 10_000,
  /** Digits of a `decimal` column. */
  decimalPrecisionMax: 1000,
  /** Values of an `enum` column. */
  enumValuesMax: 1000,
  /** Characters of a value of an `enum` column. */
  enumValueLengthMax: 255,
  stringLengthMax: 2048,
  emailLengthMax: 254,
  /** Bytes of one record without its files, as JSON. */
  recordBytesMax: 1024 * 1024,
  filesPerArrayMax: 50,
  base64LengthMax: 20_971_520,
  fileNameLengthMax: 1024,
  mediaTypeLengthMin: 3,
  mediaTypeLengthMax: 255,
  /** Lifetime of a signed or upload URL of a file, in seconds: 24 hours. */
  urlSecondsMax: 24 * 60 * 60,
  /** Bytes of one file: 5 GiB, the maximum of a single S3 upload. */
  fileBytesMax: 5 * 1024 * 1024 * 1024,
  bulkRecordsMax: 10_000,
  /** Records of a table that are counted to report the data loss of removing it or its columns. */
  dataLossRecordsMax: 10_000,
  transactionOperationsMax: 1000,
  /** Resolutions of conflicts in one merge, pull or revert. */
  resolutionsMax: 10_000,
  /** Tables or records that `only` of one merge, pull or revert names. */
  onlyMax: 1000,
  pageSizeMax: 1000,
  /** Bytes of rows that PostgreSQL returns for one request: 64 MiB. */
  answerBytesMax: 64 * 1024 * 1024,
  /** Bytes of a request body that is not a stream. */
  requestBytesMax: 64 * 1024 * 1024,
  /** Bytes of the body of a transaction, or of a SQL request with its parameters. */
  transactionBytesMax: 16 * 1024 * 1024,
  /** Bytes of the body of a merge or a pull, with its resolutions. */
  mergeBytesMax: 16 * 1024 * 1024,
  /** Changed rows of a merge that locks both branches. A larger one locks the target only to publish. */
  mergeLockedRowsMax: 2000,
  /** Rows of a table that a new rule is checked for while writers wait. More are checked without a lock before. */
  ruleLockedRowsMax: 5000,
  /** Bytes of the body of a query, an aggregation or a search, including its cursor. */
  queryBytesMax: 8 * 1024 * 1024,
  /** Bytes of a body without records: settings, schemas and schema edits. */
  controlBytesMax: 1024 * 1024,
  /** Nesting depth of objects and lists in a JSON body. */
  jsonDepthMax: 128,
  /**
   * Values in a JSON body, including objects and lists. For a bulk insert: in one record. V8 keeps names and short
   * texts in a hash table, and growing it beyond 1.4 million entries blocks the event loop for 80 ms or more.
   */
  jsonValuesMax: 1_200_000,
  /** Bytes of one string in a JSON body: the longest file in base64, plus a fifth for escapes. */
  jsonStringBytesMax: 24 * 1024 * 1024,
  requestTimeoutMs: 30_000,
  /**
   * Time after which a merge, a change of many records or a schema edit that is still running is answered by an operation. For
   * an import it begins with the end of the upload.
   */
  answerWithinMs: 20_000,
  /** Time that each statement of such work may take. */
  operationTimeoutMs: 60 * 60 * 1000,
  /** Operations that one process runs after their requests were answered. A workspace gets three quarters of the places. */
  operationsAtOnceMax: 4,
  /** Concurrent connections of clients. A connection beyond the limit is closed immediately. */
  connectionsMax: 5000,
  /** Concurrent connections from one address. Connections of trusted proxies do not count. */
  connectionsPerAddressMax: 2000,
  /** Requests per second without a valid API key from one IPv4 address or one IPv6 /64 network. */
  addressRequestsPerSecondMax: 1000,
  /** Requests per second to `/health` and `/metrics` from one address. */
  monitoringRequestsPerSecondMax: 100,
  /** Requests that run concurrently. Further requests wait in a queue. */
  requestsAtOnceMax: 100,
  /** Requests in the queue. Further requests are refused. */
  requestsWaitingMax: 1000,
  /** Time that a request may wait in the queue. A tenth of it while the queue does not drain. */
  requestWaitMs: 5000,
  /** Concurrent streamed bulk inserts. Each of them may hold a connection to PostgreSQL. */
  importsAtOnceMax: 8,
  /** Concurrent transfers of files, in both directions. */
  filesAtOnceMax: 256,
  /** Concurrent transfers of files for one link. */
  filesPerLinkMax: 64,
  /** Concurrent transfers of files for one client address without a valid API key. */
  filesPerAddressMax: 64,
  /** Concurrent transfers of files for one API key. */
  filesPerKeyMax: 128,
  /** Bytes of request bodies and large answers in memory. Above it, requests are refused. */
  bufferedBytesMax: 256 * 1024 * 1024,
  /** Bytes of the request line and all headers. */
  headersBytesMax: 16 * 1024,
  headersTimeoutMs: 10_000,
  /** Time in which PostgreSQL must answer, or `/health` reports the service as unavailable. */
  healthTimeoutMs: 5000,
  /** Time without progress after which the transfer of a body or an answer is aborted. */
  stallTimeoutMs: 10_000,
  /** Minimum transfer rate of a body or an answer, on average over `stallTimeoutMs`. */
  transferBytesPerSecondMin: 1024,
  /** Time that a query, an aggregation or the statements of one SQL request may run. */
  queryTimeoutMs: 20_000,
  /** Characters of SQL in one request. */
  sqlLengthMax: 50_000,
  /** Connections to PostgreSQL for long SQL requests. They are separate from the main pool. */
  sqlConnectionsMax: 8,
  /** Connections to PostgreSQL for long SQL requests in one workspace. */
  sqlConnectionsPerWorkspaceMax: 4,
  /** Connections to PostgreSQL for short SQL requests, in addition to those for long ones. */
  sqlQuickConnectionsMax: 6,
  /** Connections to PostgreSQL for short SQL requests in one workspace. */
  sqlQuickConnectionsPerWorkspaceMax: 4,
  /** Transactions that clients of PostgreSQL keep open. Each has a connection, in addition to those for SQL requests. */
  sqlTransactionsMax: 32,
  /** Transactions that clients of PostgreSQL keep open in one workspace. */
  sqlTransactionsPerWorkspaceMax: 24,
  /** Time that a transaction of a client of PostgreSQL may wait for its next statement. */
  sqlTransactionIdleMs: 10_000,
  /** Time that a transaction of a client of PostgreSQL may take. */
  sqlTransactionMs: 60_000,
  /** SQL requests that wait for a connection, short and long ones separately. Further requests are refused. */
  sqlWaitingMax: 512,
  /** SQL requests in one workspace that wait for a connection. */
  sqlWaitingPerWorkspaceMax: 256,
  /** Time that a SQL request may wait for a connection. */
  sqlWaitMs: 5000,
  /** Statements in one batch of SQL. */
  sqlStatementsMax: 100,
  /** Statements of a request that changes the schema and the records. */
  sqlScriptStatementsMax: 1000,
  /** Parameters of one SQL statement. */
  sqlParametersMax: 10_000,
  /**
   * Rows that one SQL statement returns. A statement with more of them is refused. The same goes for records that it writes,
   * if it has RETURNING, ON CONFLICT DO UPDATE or a WITH that writes; others write any number.
   */
  sqlRowsMax: 100_000,
  /** Bytes of JSON that the statements of one SQL request return: 16 MiB. */
  sqlResultBytesMax: 16 * 1024 * 1024,
  /** Days within which an invite can be accepted. */
  inviteDaysMax: 30,
} as const

export type LimitName = keyof typeof LIMITS
export type Limits = Readonly<Record<LimitName, number>>

/**
 * Limits on the size of one query. They bound the time for planning it, here and in PostgreSQL. They
 * cannot be configured, because they follow from limits of PostgreSQL.
 */
export const QUERY_LIMITS = {
  /** Characters of a query as JSON: its filter, sort, columns and aggregations. */
  queryLengthMax: 512 * 1024,
  /** Characters of a cursor, and bytes of its decoded content. */
  cursorLengthMax: 4 * 1024 * 1024,
  /** Characters of a column path, including its steps through links, objects and JSON documents. */
  pathLengthMax: 8192,
  /** Names in the `columns` of one request, including those of its reverse links. */
  columnsMax: 1000,
  /** Values of a record and its linked records. A select list of PostgreSQL has at most 1664. */
  valuesMax: 1500,
  /** Links and reverse links in `columns`. Each of them needs a lookup per record. */
  relationsMax: 64,
  /** Links that filter, sort, groups and aggregations use. PostgreSQL plans every join order. */
  joinsMax: 10,
  /** Conditions of a filter: compared values, and the operators that combine them. */
  conditionsMax: 20_000,
  /**
   * Comparisons in a statement. A list of values counts as one. Comparisons are repeated for each
   * physical table that rows are read from.
   */
  comparisonsMax: 2000,
  /**
   * Comparisons that search within a text, such as `$contains` and `$pattern`. PostgreSQL does not check
   * for cancellation while it searches a long text, and keeps memory for each search of a row.
   */
  patternsMax: 200,
  /**
   * Tables of PostgreSQL that a statement names. On a fork, each table consists of a table per
   * ancestor branch, and each of these is checked against the tables of nearer branches.
   */
  scannedTablesMax: 1500,
  /** Nesting depth of conditions. */
  conditionDepthMax: 50,
  /** Names in the distinct `columns` lists of one transaction. */
  transactionColumnsMax: 10_000,
} as const

/** The largest quota: the largest integer that every JSON parser represents exactly. */
export const QUOTA_BYTES_MAX = Number.MAX_SAFE_INTEGER

/** A longer value is cut in the errors that show it. */
export const SHOWN_VALUE_LENGTH_MAX = 100
