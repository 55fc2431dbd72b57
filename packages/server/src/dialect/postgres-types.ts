import { TYPES } from './allowed.js'

/** Types of PostgreSQL that no statement can use. `TYPES` has those that statements can use. */
const OTHER_TYPES = `
  aclitem bit box cid circle cstring datemultirange gtsvector int2vector int4multirange int8multirange jsonpath line lseg
  macaddr8 name nummultirange oid oidvector path pg_lsn pg_node_tree pg_snapshot point polygon record refcursor tid trigger
  tsmultirange tstzmultirange txid_snapshot unknown varbit vector void xid xid8 xml reg\\w* any\\w*`

/** Matches the name of a type that PostgreSQL has of its own, to be a part of other patterns. */
export const POSTGRES_TYPE = `(?:${[...TYPES, ...OTHER_TYPES.trim().split(/\s+/)].join('|')})`
