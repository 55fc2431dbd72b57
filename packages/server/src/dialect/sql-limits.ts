/*
 * Limits of statements while they are parsed and rewritten. They keep this work linear in the length of the
 * statement, and the result within the limits of PostgreSQL. Limits that an operator can change are in the
 * contract.
 */

/** Maximum number of nodes of a parsed statement, such as operators, constants and columns. */
export const NODES_MAX = 100_000

/** Maximum nesting of nodes, such as parentheses, operators, casts and subqueries. */
export const DEPTH_MAX = 500

/** Maximum number of functions and operators of an expression over one row. Each takes linear time. */
export const EXPRESSION_CALLS_MAX = 200

/** Maximum number of WITH queries of a statement. */
export const NAMED_QUERIES_MAX = 100

/** Maximum number of tables, subqueries and functions in the FROM clauses of a statement. */
export const RELATIONS_MAX = 100

/** Maximum number of columns of a table or query: PostgreSQL's limit for a target list. */
export const COLUMNS_MAX = 1_664

/**
 * Maximum number of columns of all tables and queries of a statement, including those that `*` expands to.
 */
export const COLUMNS_IN_ALL_MAX = 30_000

/**
 * Maximum length of the rewritten statements of a request, including the queries for tables of the branch.
 */
export const WRITTEN_LENGTH_MAX = 4 * 1024 * 1024

/**
 * Maximum number of characters that PostgreSQL's scanner reads for operators in one statement. It reads a run
 * of operator characters again for each operator or comment in the run.
 */
export const OPERATOR_STEPS_MAX = 4_000_000

/**
 * Maximum number of nodes of a subquery's column that PostgreSQL may inline. Larger subqueries are evaluated
 * separately: if each of many levels uses a column twice, inlining doubles the size with every level.
 */
export const INLINED_NODES_MAX = 32

/**
 * Maximum length of SQL, and maximum number of cells of its tables, for planning in the main thread. Larger
 * requests are planned by a worker thread, so that they do not block other requests.
 */
export const LENGTH_AT_ONCE_MAX = 4_000
export const CELLS_AT_ONCE_MAX = 5_000

/** Time and memory limits of the worker thread for one request. */
export const PLANNING_MS_MAX = 10_000
export const PLANNING_MEMORY_MB_MAX = 512
