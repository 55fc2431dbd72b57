import path from 'node:path'
import type { Reporter, TestModule } from 'vitest/node'

const SLOWEST_FILES = 10

interface Counts {
  passed: number
  failed: number
  skipped: number
  files: number
  ms: number
  cpuMs: number
}

interface Failure {
  readonly file: string
  readonly name: string
  readonly reason: string
}

/** Prints a summary at the end of a run: counts, times, failures and the seed. */
export class SummaryReporter implements Reporter {
  readonly #seed: string
  readonly #write: (text: string) => void
  #startedAt = performance.now()

  constructor(options: { seed: string; write?: (text: string) => void }) {
    this.#seed = options.seed
    this.#write = options.write ?? ((text) => process.stdout.write(text))
  }

  onTestRunStart(): void {
    this.#startedAt = performance.now()
    // A run that is interrupted has no summary.
    this.#write(`${this.#seedLine()}\n`)
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly { message?: string }[]): void {
    const failures = [
      ...modules.flatMap(failuresOf),
      ...unhandled.map(({ message }) => ({
        file: 'outside of a test',
        name: 'unhandled error',
        reason: firstLine(message),
      })),
    ]
    const seconds = formatSeconds(performance.now() - this.#startedAt)
    const cpu = formatSeconds(modules.reduce((sum, module) => sum + cpuOf(module), 0))
    const lines = [
      '',
      'Summary',
      ...countLines(modules),
      `  finished after ${seconds}, with ${cpu} of CPU`,
      '',
      'Files that took the most CPU time',
      ...slowestLines(modules),
      '',
      this.#seedLine(),
      ...failureLines(failures),
      '',
    ]
    this.#write(`${lines.join('\n')}\n`)
  }

  #seedLine(): string {
    return `Seed of the random tests: ${this.#seed} (OFFSHOOT_TEST_SEED=${this.#seed} repeats them)`
  }
}

function countLines(modules: readonly TestModule[]): string[] {
  const projects = new Map<string, Counts>()
  for (const module of modules) {
    const name = module.project.name
    const counts = projects.get(name) ?? {
      passed: 0,
      failed: 0,
      skipped: 0,
      files: 0,
      ms: 0,
      cpuMs: 0,
    }
    projects.set(name, counts)
    counts.files++
    counts.ms += timeOf(module)
    counts.cpuMs += cpuOf(module)
    for (const test of module.children.allTests()) {
      const { state } = test.result()
      if (state === 'pending') counts.skipped++
      else counts[state]++
    }
  }
  return [...projects].map(([name, { passed, failed, skipped, files, ms, cpuMs }]) => {
    const count = `${passed} passed, ${failed} failed, ${skipped} skipped`
    const time = `${formatSeconds(cpuMs)} of CPU in ${formatSeconds(ms)}`
    return `  ${name.padEnd(10)} ${count} in ${files} files, which took ${time}`
  })
}

function slowestLines(modules: readonly TestModule[]): string[] {
  return [...modules]
    .sort((left, right) => cpuOf(right) - cpuOf(left))
    .slice(0, SLOWEST_FILES)
    .map((module) => {
      const [cpu, time] = [cpuOf(module), timeOf(module)].map((ms) =>
        formatSeconds(ms).padStart(12),
      )
      return `  ${cpu} of CPU in ${time}  ${fileOf(module)}`
    })
}

function cpuOf(module: TestModule): number {
  return module.meta().cpuMs ?? 0
}

function failureLines(failures: readonly Failure[]): string[] {
  if (failures.length === 0) return ['Nothing failed.']
  return [
    `Failed (${failures.length}):`,
    ...failures.map(({ file, name, reason }) => `  ${file}\n    ${name}\n    ${reason}`),
  ]
}

function failuresOf(module: TestModule): Failure[] {
  const file = fileOf(module)
  const suites = [...module.children.allSuites()].flatMap((suite) =>
    suite.errors().map(({ message }) => ({
      file,
      name: suite.fullName,
      reason: firstLine(message),
    })),
  )
  const tests = [...module.children.allTests('failed')].map((test) => ({
    file,
    name: test.fullName,
    reason: firstLine(test.result().errors?.[0]?.message),
  }))
  const whole = module.errors().map(({ message }) => ({
    file,
    name: 'the file as a whole',
    reason: firstLine(message),
  }))
  return [...whole, ...suites, ...tests]
}

function timeOf(module: TestModule): number {
  const { duration, collectDuration, setupDuration } = module.diagnostic()
  return duration + collectDuration + setupDuration
}

function fileOf(module: TestModule): string {
  return path.relative(process.cwd(), module.moduleId)
}

function firstLine(text = 'no reason given'): string {
  return text.split('\n')[0]?.slice(0, 200) ?? ''
}

function formatSeconds(ms: number): string {
  const seconds = ms / 1000
  if (seconds < 60) return `${seconds.toFixed(1)} s`
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`
}
