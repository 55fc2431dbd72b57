/** Every limit of the service, by name. Each can be changed at start (`OFFSHOOT_LIMIT_...`). */
export const LIMITS = {
  /** Characters of a database, branch, table or column name, and of a record id. */
  nameLengthMax: 255,
  /** Characters of a git branch name in the mapping. */
  gitBranchLengthMax: 1024,
  /** Characters of a free text in a control-plane body: names, colours, labels, image addresses. */
  labelLengthMax: 2048,
  /** Labels in a branch's metadata. */
  labelsMax: 100,
  /** Seconds that a branch lives on after each use: ten years. */
  ttlSecondsMax: 10 * 365 * 24 * 60 * 60,
  /** Rules for new branches of one database. */
  branchRulesMax: 100,
  keysPerUserMax: 40,
  workspacesPerUserMax: 1000,
  databasesPerWorkspaceMax: 10_000,
  tablesPerBranchMax: 1000,
  columnsPerTableMax: 256,
  /** Columns of all tables of a branch: its schema is read, compared and sent as a whole. */
  columnsPerBranchMax: 20_000,
  /** Columns of one table that an index can be asked for. */
  indexesPerTableMax: 32,
  /** Schema edit operations in one migration. */
  schemaOperationsMax: 10_000,
  /** Depth of `columns` inside `object` columns. */
  objectDepthMax: 8,
  vectorDimensionMin: 2,
  vectorDimensionMax: 10_000,
  stringLengthMax: 2048,
  emailLengthMax: 254,
  /** Bytes of one record without its files, as JSON. */
  recordBytesMax: 1024 * 1024,
  filesPerArrayMax: 50,
  base64LengthMax: 20_971_520,
  fileNameLengthMax: 1024,
  mediaTypeLengthMin: 3,
  mediaTypeLengthMax: 255,
  /** Seconds that a signed or upload URL of a file works: 24 hours. */
  urlSecondsMax: 24 * 60 * 60,
  /** Bytes of one file: 5 GiB, the most that S3 takes in one piece. */
  fileBytesMax: 5 * 1024 * 1024 * 1024,
  bulkRecordsMax: 10_000,
  /** Records of a table that are looked at to tell what its removal, or that of columns, would lose. */
  dataLossRecordsMax: 10_000,
  transactionOperationsMax: 1000,
  pageSizeMax: 1000,
  /** Bytes of rows that PostgreSQL sends for the answer to one request: 64 MiB. */
  answerBytesMax: 64 * 1024 * 1024,
  /** Bytes of a request body that is not a stream. */
  requestBytesMax: 64 * 1024 * 1024,
  /** Of these, for a transaction, or for SQL with its parameters. */
  transactionBytesMax: 16 * 1024 * 1024,
  /** Of these, for a query, a calculation or a search: a cursor, and what else there is. */
  queryBytesMax: 8 * 1024 * 1024,
  /** Of these, where there are no records: settings, schemas and their edits. */
  controlBytesMax: 1024 * 1024,
  /** Objects and lists inside each other in a JSON body. */
  jsonDepthMax: 128,
  /** Values in a JSON body, with objects and lists; of a bulk insert, in one record. */
  jsonValuesMax: 3_000_000,
  /** Bytes of one text in a JSON body: the longest file in base64, and a fifth for escapes. */
  jsonStringBytesMax: 24 * 1024 * 1024,
  requestTimeoutMs: 30_000,
  /** Connections of clients that are open at once; one more is closed at once. */
  connectionsMax: 5000,
  /** Connections from one address that are open at once; those of trusted proxies do not count. */
  connectionsPerAddressMax: 2000,
  /** Requests per second without a valid API key from one address, or one /64 of IPv6. */
  addressRequestsPerSecondMax: 1000,
  /** Requests that are worked on at once; more wait for their turn. */
  requestsAtOnceMax: 100,
  /** Requests that wait for their turn; more are refused. */
  requestsWaitingMax: 1000,
  /** How long a request waits for its turn; a tenth of that in a queue that does not go away. */
  requestWaitMs: 5000,
  /** Streams of records at once, each of which may hold a connection to PostgreSQL. */
  importsAtOnceMax: 8,
  /** Files that are sent or received at once. */
  filesAtOnceMax: 256,
  /** Of those, for one link. */
  filesPerLinkMax: 64,
  /** Of those, for one address that sends no valid key. */
  filesPerAddressMax: 64,
  /** Of those, for one API key. */
  filesPerKeyMax: 128,
  /** Bytes of request bodies and large answers in memory; at more, requests are refused. */
  bufferedBytesMax: 256 * 1024 * 1024,
  /** Bytes of the request line and all headers. */
  headersBytesMax: 16 * 1024,
  headersTimeoutMs: 10_000,
  /** How long a client may keep the server waiting for the next bytes, or let it wait with them. */
  stallTimeoutMs: 10_000,
  /** What a body or an answer has to move at the least, on the average of such a time. */
  transferBytesPerSecondMin: 1024,
  /** Milliseconds that a query, a calculation or the statements of one SQL request may run. */
  queryTimeoutMs: 20_000,
  /** Characters of SQL in one request. */
  sqlLengthMax: 50_000,
  /** Connections to PostgreSQL for SQL of callers, beside those for everything else. */
  sqlConnectionsMax: 8,
  /** Of these, for one workspace. */
  sqlConnectionsPerWorkspaceMax: 4,
  /** SQL requests that wait for such a connection; more are refused. */
  sqlWaitingMax: 32,
  /** Of these, for one workspace. */
  sqlWaitingPerWorkspaceMax: 16,
  /** How long a SQL request waits for such a connection. */
  sqlWaitMs: 5000,
  /** Statements in one batch of SQL. */
  sqlStatementsMax: 100,
  /** Parameters of one SQL statement. */
  sqlParametersMax: 10_000,
  /** Rows that one SQL statement answers with. */
  sqlRowsMax: 1000,
  /** Bytes of JSON that the statements of one SQL request answer with: 16 MiB. */
  sqlResultBytesMax: 16 * 1024 * 1024,
  /** How long an invite can be accepted. */
  inviteDaysMax: 30,
} as const

export type LimitName = keyof typeof LIMITS
export type Limits = Readonly<Record<LimitName, number>>

/**
 * Limits of what one query may ask for, so that planning it stays short here and in PostgreSQL. They
 * are fixed: behind them are PostgreSQL's own limits.
 */
export const QUERY_LIMITS = {
  /** Characters of a query as JSON: its filter, sort, columns and aggregations. */
  queryLengthMax: 512 * 1024,
  /** Characters of a cursor, and bytes of what it holds. */
  cursorLengthMax: 4 * 1024 * 1024,
  /** Characters of a path: the name of a column, through links and objects, or into a JSON document. */
  pathLengthMax: 8192,
  /** Names in the columns of one request, those of its reverse links included. */
  columnsMax: 1000,
  /** Values of a record, and of those its links lead to. PostgreSQL selects at most 1664. */
  valuesMax: 1500,
  /** Records that are looked up for one record: one for each link in `columns`, and for each reverse link. */
  relationsMax: 64,
  /** Links that filter, sort, groups and aggregations go through. PostgreSQL plans all orders of them. */
  joinsMax: 10,
  /** Values that a filter compares with, and what combines them. */
  conditionsMax: 20_000,
  /** Comparisons in a statement. A list of values is one; each table that rows come from has its own. */
  comparisonsMax: 2000,
  /**
   * Tables of PostgreSQL that a statement names. On a fork, a table is made of the rows of each branch
   * before it, and each of these must look into the nearer ones.
   */
  scannedTablesMax: 1500,
  /** Conditions inside of each other. */
  conditionDepthMax: 50,
  /** Names in the different lists of columns of one transaction. */
  transactionColumnsMax: 10_000,
} as const
