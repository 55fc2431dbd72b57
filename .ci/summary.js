// Prints the closing line of a run from the report that the test command leaves behind.
import { readFileSync } from 'node:fs'

const report = JSON.parse(readFileSync(new URL('../test-results.json', import.meta.url), 'utf8'))
const { numPassedTests, numFailedTests, numPendingTests, numFailedTestSuites, testResults } = report
const brokenFiles = testResults.filter(
  (file) => file.status === 'failed' && file.assertionResults.length === 0,
).length
const failed = numFailedTests + brokenFiles
const skipped = numPendingTests > 0 ? `, ${numPendingTests} skipped` : ''
console.log(`${numPassedTests} passed, ${failed} failed${skipped}`)
process.exitCode = failed === 0 && numFailedTestSuites === 0 && numPassedTests > 0 ? 0 : 1
