import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** For tests: runs programs that use modules of this folder in separate processes. */
export interface SeparateProcesses {
  /** The program can import the modules as `./<name>.js`. */
  start(program: string, ...parameters: string[]): SeparateProcess
  remove(): void
}

interface SeparateProcess {
  readonly child: ChildProcess
  /** The lines that the program has written to its standard output so far. */
  readonly lines: string[]
  /** Resolves with the first line that starts with the prefix, without the prefix. */
  line(beginning: string): Promise<string>
  /** Resolves when the process has ended and its output is read. */
  readonly ended: Promise<void>
}

/** Compiles the modules with these names, and all that they import, to a temporary folder. */
export function compileForProcesses(...names: string[]): SeparateProcesses {
  const sources = dirname(fileURLToPath(import.meta.url))
  const packages = dirname(dirname(createRequire(import.meta.url).resolve('pg/package.json')))
  const folder = mkdtempSync(join(tmpdir(), 'offshoot-test-'))
  symlinkSync(packages, join(folder, 'node_modules'))
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  const options = ['--noCheck', '--ignoreConfig', '--module', 'nodenext', '--target', 'es2023']
  const files = names.map((name) => join(sources, `${name}.ts`))
  const compiler = join(packages, 'typescript', 'bin', 'tsc')
  execFileSync(process.execPath, [compiler, ...options, '--outDir', folder, ...files])
  let count = 0
  return {
    start(program, ...parameters) {
      count += 1
      const file = join(folder, `program-${count}.js`)
      writeFileSync(file, program)
      return follow(spawn(process.execPath, [file, ...parameters]))
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
}

function follow(child: ChildProcess): SeparateProcess {
  const lines: string[] = []
  let rest = ''
  let errors = ''
  const onLine = new Set<() => void>()
  child.stdout?.on('data', (chunk: Buffer) => {
    const parts = (rest + chunk.toString()).split('\n')
    rest = parts.pop() ?? ''
    lines.push(...parts)
    for (const listener of onLine) listener()
  })
  child.stderr?.on('data', (chunk: Buffer) => {
    errors += chunk.toString()
  })
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  return {
    child,
    lines,
    ended,
    line: (beginning) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const found = lines.find((line) => line.startsWith(beginning))
          if (found !== undefined) resolve(found.slice(beginning.length))
        }
        onLine.add(look)
        look()
        void ended.then(() => reject(new Error(`no line [${beginning}] came: ${errors}`)))
      }),
  }
}
