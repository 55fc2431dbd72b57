/*
 * How large a statement may get while it is read and written anew. These limits keep that work linear
 * in the statement, and what is sent to PostgreSQL within what PostgreSQL takes. The limits that an
 * operator can change are in the contract.
 */

/** Nodes of a parsed statement: an operator, a constant, a column and the like are one each. */
export const NODES_MAX = 100_000

/** Nodes inside of each other, such as parentheses, operators, casts and subqueries. */
export const DEPTH_MAX = 500

/** Queries that the WITH clauses of one statement name. */
export const NAMED_QUERIES_MAX = 100

/** Tables, subqueries and functions that one statement can draw on. */
export const RELATIONS_MAX = 100

/** Columns of one table or query: PostgreSQL takes no more in a list of targets. */
export const COLUMNS_MAX = 1_664

/** Columns of all tables and queries of a statement together, with those that `*` stands for. */
export const COLUMNS_IN_ALL_MAX = 30_000

/** Characters of the statements of a request as PostgreSQL gets them, with the tables of the branch written out. */
export const WRITTEN_LENGTH_MAX = 4 * 1024 * 1024

/**
 * The scanner of PostgreSQL looks at a run of operator characters again for each operator or comment
 * in it. This is how many characters it may look at in one statement.
 */
export const OPERATOR_STEPS_MAX = 4_000_000

/**
 * Nodes of a column of a subquery that PostgreSQL may put in the place of its name. With more, the
 * subquery is calculated on its own: where columns are used twice at each of many levels, what the
 * planner would write out doubles with each of them.
 */
export const INLINED_NODES_MAX = 32

/**
 * Characters of SQL in a request that is planned at once, and what its tables may add. Anything larger
 * is planned by a thread, so that no statement keeps other requests waiting.
 */
export const LENGTH_AT_ONCE_MAX = 4_000
export const CELLS_AT_ONCE_MAX = 5_000

/** Milliseconds that the thread may take for one request, and its memory in MiB. */
export const PLANNING_MS_MAX = 10_000
export const PLANNING_MEMORY_MB_MAX = 512
