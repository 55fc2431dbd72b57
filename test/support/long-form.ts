import { it } from 'vitest'
import { LONG } from './random.js'

/** A test that only `npm run test:long` runs, because a shorter one shows nearly the same in a fraction of the time. */
export const inLongForm = it.runIf(LONG)
