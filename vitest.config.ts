import { defineConfig } from 'vitest/config'

const resolve = { conditions: ['source'] }
const ssr = { resolve: { conditions: ['source'] } }

/** What compares the rates of a machine with each other needs one that does nothing else. */
const ALONE = ['test/e2e/overload.test.ts']

export default defineConfig({
  test: {
    // The default leaves one of two cores idle.
    maxWorkers: 2,
    reporters: ['default', 'json'],
    outputFile: { json: 'test-results.json' },
    projects: [
      {
        resolve,
        ssr,
        test: {
          name: 'pure',
          include: ['packages/*/src/**/*.test.ts'],
          exclude: ['**/*.pg.test.ts'],
          testTimeout: 30_000,
        },
      },
      {
        resolve,
        ssr,
        test: {
          name: 'postgres',
          include: ['packages/*/src/**/*.pg.test.ts', 'test/api/**/*.test.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          testTimeout: 30_000,
          hookTimeout: 30_000,
        },
      },
      {
        resolve,
        ssr,
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          exclude: ALONE,
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        resolve,
        ssr,
        test: {
          name: 'proof',
          include: ['test/proof/**/*.test.ts'],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        resolve,
        ssr,
        test: {
          name: 'alone',
          include: ALONE,
          testTimeout: 60_000,
          hookTimeout: 60_000,
          // After all others, one file at a time.
          sequence: { groupOrder: 1 },
          fileParallelism: false,
        },
      },
    ],
  },
})
