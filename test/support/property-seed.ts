import fc from 'fast-check'
import { SEED } from './random.js'

/** Properties without a seed of their own start from the seed of the run. */
fc.configureGlobal({ seed: SEED })
