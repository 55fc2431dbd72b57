/** How long random tests go on; `OFFSHOOT_TEST_STEPS` asks for more. */
export const STEPS = Number(process.env.OFFSHOOT_TEST_STEPS ?? 200)

/** Where they start: the summary of a run names it, and `OFFSHOOT_TEST_SEED` goes there again. */
export const SEED = Number(process.env.OFFSHOOT_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))

/** Enough for so many steps on a machine that is busy. */
export const STEPS_TIMEOUT_MS = 300_000 + STEPS * 5000

/** How often a service is killed; `OFFSHOOT_TEST_ROUNDS` asks for more. */
export const ROUNDS = Number(process.env.OFFSHOOT_TEST_ROUNDS ?? 20)

/** How often PostgreSQL goes away in each of several ways. */
export const AWAY_ROUNDS = Math.ceil(ROUNDS / 10)

/** Enough for so many rounds on a machine that is busy. */
export const ROUNDS_TIMEOUT_MS = 300_000 + ROUNDS * 60_000
