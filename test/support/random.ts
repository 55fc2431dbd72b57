/** How long random tests go on; `OFFSHOOT_TEST_STEPS` asks for more. */
export const STEPS = Number(process.env.OFFSHOOT_TEST_STEPS ?? 200)

/** Where they start; a failure names it, and `OFFSHOOT_TEST_SEED` goes there again. */
export const SEED = Number(process.env.OFFSHOOT_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))

/** Enough for so many steps on a machine that is busy. */
export const STEPS_TIMEOUT_MS = 30_000 + STEPS * 1000
