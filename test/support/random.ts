/** Steps of random tests, set by `OFFSHOOT_TEST_STEPS`. */
export const STEPS = Number(process.env.OFFSHOOT_TEST_STEPS ?? 200)

/** Seed of random tests, from `vitest.config.ts`. The summary of a run prints it. */
export const SEED = Number(process.env.OFFSHOOT_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))

/** Whether the seed or the number of steps was given, so that tests with fixed seeds explore instead. */
export const EXPLORES = process.env.OFFSHOOT_TEST_EXPLORES === 'true'

/** Timeout of a random test, generous for a busy machine. */
export const STEPS_TIMEOUT_MS = 300_000 + STEPS * 5000

/** Number of times a service is killed, set by `OFFSHOOT_TEST_ROUNDS`. */
export const ROUNDS = Number(process.env.OFFSHOOT_TEST_ROUNDS ?? 10)

/** Number of times PostgreSQL is interrupted, for each kind of interruption. */
export const AWAY_ROUNDS = Math.ceil(ROUNDS / 10)

/** Timeout of a test with rounds, generous for a busy machine. */
export const ROUNDS_TIMEOUT_MS = 300_000 + ROUNDS * 60_000
