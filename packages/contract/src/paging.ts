import { type TSchema, Type } from 'typebox'
import { LIMITS } from './limits.js'
import { TEXT_PATTERN } from './names.js'

/** Items of a page of a list, unless the request says otherwise. */
export const LIST_PAGE_SIZE = 50

const AFTER = 'The `cursor` of the previous page.'
const CURSOR = 'The last of the page. The next page is read `after` it.'

/** The parts of a list that is read in pages: fields of the query, and the `meta` of the answer. */
function pageWith<After extends TSchema, Cursor extends TSchema>(
  items: string,
  { after, cursor }: { after: After; cursor: Cursor },
) {
  return {
    query: {
      size: Type.Optional(
        Type.Integer({
          description: `The maximum number of ${items} to list.`,
          minimum: 1,
          maximum: LIMITS.pageSizeMax,
        }),
      ),
      after: Type.Optional(after),
    },
    meta: Type.Object({ cursor: Type.Optional(cursor), more: Type.Boolean() }),
  }
}

/** Pages whose items have an id or a name. */
export const pageOf = (items: string) =>
  pageWith(items, {
    after: Type.String({
      description: AFTER,
      minLength: 1,
      maxLength: LIMITS.nameLengthMax,
      pattern: TEXT_PATTERN,
    }),
    cursor: Type.String({ description: CURSOR }),
  })

/** Pages whose items have a number. */
export const pageOfNumbered = (items: string, numberMax: number) =>
  pageWith(items, {
    after: Type.Integer({ description: AFTER, minimum: 1, maximum: numberMax }),
    cursor: Type.Integer({ description: CURSOR }),
  })
