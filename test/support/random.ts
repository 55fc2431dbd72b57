/** Set by `npm run test:long`: the tests run in their long forms. */
export const LONG = process.env.OFFSHOOT_TEST_LONG === '1'

/**
 * Returns how much a test does: what the variable `OFFSHOOT_TEST_<name>` says, or else the number of its short or its
 * long form.
 */
export function amount(name: string, forms: { short: number; long: number }): number {
  return Number(process.env[`OFFSHOOT_TEST_${name}`] ?? (LONG ? forms.long : forms.short))
}

/** Steps of random tests. */
export const STEPS = amount('STEPS', { short: 100, long: 1000 })

/** Seed of random tests, from `vitest.config.ts`. The summary of a run prints it. */
export const SEED = Number(process.env.OFFSHOOT_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))

/** Whether the seed or the length was given, so that tests with fixed seeds explore instead. */
export const EXPLORES = process.env.OFFSHOOT_TEST_EXPLORES === 'true'

/** Timeout of a random test, generous for a busy machine. */
export const STEPS_TIMEOUT_MS = 300_000 + STEPS * 5000

/** Number of times a service is killed. The short form has one for each kind of fault. */
export const ROUNDS = amount('ROUNDS', { short: 5, long: 30 })

/** Number of times PostgreSQL is interrupted, for each kind of interruption. */
export const AWAY_ROUNDS = Math.ceil(ROUNDS / 10)

/** Timeout of a test with rounds, generous for a busy machine. */
export const ROUNDS_TIMEOUT_MS = 300_000 + ROUNDS * 60_000
