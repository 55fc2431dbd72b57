import { defineConfig } from 'vitest/config'
import { compiledCode } from './test/support/compiled-code.js'
import { ProjectSequencer } from './test/support/project-sequencer.js'
import { SummaryReporter } from './test/support/summary-reporter.js'

/**
 * These measure what the machine can do, or fill a disk up to a certain moment, so nothing else of the run may
 * use the machine at the same time.
 */
const ALONE = ['test/proof/overload.test.ts', 'test/proof/disk-full.test.ts']

/**
 * Time limits of tests only end those that hang. They are far above what a test takes, because the
 * machine may be busy with other work.
 */
const HANGING_MS = 300_000
const timeouts = {
  testTimeout: HANGING_MS,
  hookTimeout: HANGING_MS,
  teardownTimeout: HANGING_MS,
  // The limit of vitest is one second. This one leaves the test time to say what it has waited for.
  expect: { poll: { timeout: HANGING_MS * 0.8 } },
}

/**
 * Files of a project share the processes of the run, so that each process loads the service once. Their
 * tests leave no state behind in modules or in global objects.
 */
const shared = { isolate: false }

/** With a given seed, or as a long run, random tests explore instead of repeating what is known to pass. */
const EXPLORING = ['SEED', 'LONG', 'STEPS', 'ROUNDS', 'REQUESTS', 'COST_REQUESTS', 'STATEMENTS']
process.env.OFFSHOOT_TEST_EXPLORES ??= String(
  EXPLORING.some((name) => process.env[`OFFSHOOT_TEST_${name}`] !== undefined),
)

/**
 * Proofs are the heaviest tests, so they only run when they are asked for: by
 * `npm run test:proofs`, in the long form, or by their project or path.
 */
const PROVES =
  process.env.OFFSHOOT_TEST_PROOFS === '1' ||
  process.env.OFFSHOOT_TEST_LONG === '1' ||
  process.argv.some((argument) => /\bproof\b/.test(argument))
/**
 * Each process of Node.js 20 that starts reads the certificates in this file, which takes longer than the rest of its
 * start. Only proofs and long forms talk to other machines.
 */
if (!PROVES) delete process.env.NODE_EXTRA_CA_CERTS

const proofs = PROVES ? ['test/proof/**/*.test.ts'] : []

/**
 * All random tests of a run start from one seed. It is fixed in a normal run, which then fails because of a change and
 * not by chance.
 */
process.env.OFFSHOOT_TEST_SEED ??=
  process.env.OFFSHOOT_TEST_EXPLORES === 'true' ? String(Math.floor(Math.random() * 2 ** 31)) : '1'

export default defineConfig({
  test: {
    // Tests wait for processes and time limits during much of their time, so two cores serve four.
    maxWorkers: 4,
    // Tests are not slow by the clock: the machine decides. The summary names the slowest files.
    slowTestThreshold: HANGING_MS,
    sequence: { sequencer: ProjectSequencer },
    reporters: ['default', 'json', new SummaryReporter({ seed: process.env.OFFSHOOT_TEST_SEED })],
    outputFile: { json: 'test-results.json' },
    projects: [
      {
        plugins: [compiledCode()],
        test: {
          name: 'pure',
          include: [
            'packages/*/src/**/*.test.ts',
            'test/source/**/*.test.ts',
            'test/support/**/*.test.ts',
          ],
          exclude: ['**/*.pg.test.ts'],
          setupFiles: ['test/support/cpu-meter.ts', 'test/support/property-seed.ts'],
          ...shared,
          ...timeouts,
        },
      },
      {
        plugins: [compiledCode()],
        test: {
          name: 'postgres',
          include: ['packages/*/src/**/*.pg.test.ts', 'test/api/**/*.test.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          setupFiles: ['test/support/cpu-meter.ts', 'test/support/property-seed.ts'],
          ...shared,
          ...timeouts,
        },
      },
      {
        plugins: [compiledCode()],
        test: {
          name: 'console',
          include: ['test/console/**/*.test.ts'],
          setupFiles: ['test/support/cpu-meter.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          ...shared,
          ...timeouts,
        },
      },
      {
        plugins: [compiledCode()],
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          setupFiles: ['test/support/cpu-meter.ts'],
          ...timeouts,
        },
      },
      {
        plugins: [compiledCode()],
        test: {
          name: 'proof',
          include: proofs,
          exclude: ALONE,
          globalSetup: ['test/support/global-setup.ts'],
          setupFiles: ['test/support/cpu-meter.ts', 'test/support/property-seed.ts'],
          ...timeouts,
        },
      },
      {
        plugins: [compiledCode()],
        test: {
          name: 'alone',
          include: PROVES ? ALONE : [],
          setupFiles: ['test/support/cpu-meter.ts'],
          ...timeouts,
          // After all others, one file at a time.
          sequence: { groupOrder: 1 },
          fileParallelism: false,
        },
      },
    ],
  },
})
