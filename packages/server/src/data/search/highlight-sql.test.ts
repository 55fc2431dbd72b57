import { expect, it } from 'vitest'
import { raw } from '../../postgres/sql.js'
import { SearchedText } from '../../rows/reading/searched-text.js'
import { Parameters } from '../query/parameters.js'
import { highlightSql } from './highlight-sql.js'
import { makePatterns } from './patterns.js'
import { readTerms } from './terms.js'

it('All columns of a table are highlighted by one query', () => {
  // With a query for each column, planning took five seconds for 50 tables of 20 columns.
  const columns = Array.from({ length: 20 }, (_, index) => ({
    path: [`c${index}`],
    index,
    objects: [],
    text: new SearchedText('text'),
    weight: 1,
  }))
  const parameters = new Parameters()
  const patterns = makePatterns(readTerms('word', 1).terms, { stems: new Map(), isPrefix: false })
  const column = (index: number) => raw(`c${index}`)
  const { text } = highlightSql({ columns }, { patterns, parameters, column })
  expect(text).toContain('c19')
  expect(text.split('json_agg(parts.part)')).toHaveLength(2)
  expect(parameters.values.filter((value) => value === patterns.words)).toHaveLength(1)
})
