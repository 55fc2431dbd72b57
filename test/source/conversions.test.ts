import { COLUMN_TYPES } from '@offshoot/contract/schema'
import { expect, it } from 'vitest'
import { CONVERSIONS } from '../../packages/console/src/pages/schema/conversions.js'
import { conversionFault } from '../../packages/server/src/rows/columns/conversions.js'

it.each(COLUMN_TYPES)('the console knows what the server converts from type %s', (type) => {
  const converted = COLUMN_TYPES.filter(
    (to) =>
      conversionFault({ id: 1, name: 'a', type: to, from: { id: 2, name: 'a', type } }) ===
      undefined,
  )
  expect([...CONVERSIONS[type]].sort()).toEqual(converted.sort())
})
