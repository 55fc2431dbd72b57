import { contentOf, type NodeOf, namesOf } from '../../../dialect/nodes.js'
import { findOtherPart } from './not-supported.js'

/** What a CREATE INDEX asks for. */
interface IndexForm {
  /** The columns, in the order of the index; undefined for expressions. */
  readonly keys: readonly (string | undefined)[]
  /** Operator classes for patterns, which are left out. */
  readonly patternClasses: readonly string[]
  /** Words for what the storage has no index for. */
  readonly obstacle: string | undefined
}

export function readIndex(statement: NodeOf<'IndexStmt'>): IndexForm {
  const { accessMethod = 'btree', unique: isUnique = false, indexParams = [] } = statement
  const elements = indexParams.map((each) => contentOf(each, 'IndexElem') ?? {})
  const keys = elements.map(({ name }) => name)
  const obstacles = [
    accessMethod === 'btree' ? undefined : `USING ${accessMethod}`,
    findOtherPart(statement, INDEX_PARTS, INDEX_WORDS),
    ...elements.map((each) => {
      const isUsual = namesOf(each.opclass).every(isPatternClass)
      const known = isUsual ? [...ELEMENT_PARTS, 'opclass'] : ELEMENT_PARTS
      return findOtherPart(each, known, ELEMENT_WORDS)
    }),
    isUnique || keys.length < 2 ? undefined : 'several columns',
  ]
  return {
    keys,
    patternClasses: elements.flatMap(({ opclass }) => namesOf(opclass).filter(isPatternClass)),
    obstacle: obstacles.find((each) => each !== undefined),
  }
}

/** Operator classes of indexes that also find texts that begin with others. Tools add them to the index of a column. */
const PATTERN_CLASSES = new Set(['varchar_pattern_ops', 'text_pattern_ops', 'bpchar_pattern_ops'])

const isPatternClass = (name: string | undefined): name is string => PATTERN_CLASSES.has(name ?? '')

const INDEX_PARTS = [
  ...['idxname', 'relation', 'accessMethod', 'indexParams', 'unique', 'concurrent'],
  'if_not_exists',
]
const INDEX_WORDS = {
  whereClause: 'WHERE',
  indexIncludingParams: 'INCLUDE',
  options: 'WITH',
  tableSpace: 'TABLESPACE',
  nulls_not_distinct: 'NULLS NOT DISTINCT',
}
const ELEMENT_PARTS = ['name', 'ordering', 'nulls_ordering']
const ELEMENT_WORDS = {
  expr: 'an expression',
  collation: 'COLLATE',
  opclass: 'an operator class',
}
