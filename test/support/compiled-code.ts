import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Plugin } from 'vitest/config'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Compiled files of a package. Node.js loads them itself. */
const COMPILED = /\/packages\/[a-z-]+\/dist\//

let isCompiled = false

/**
 * Lets tests run what is compiled of the packages, as users do, and compiles what has changed since. Modules that
 * vitest transforms take three times as long to load, and requests take a third more CPU time in them. The modules of the
 * console are for browsers, so they are not compiled one by one, and are transformed.
 */
export function compiledCode(): Plugin {
  return {
    name: 'compiled-code',
    enforce: 'pre',
    config() {
      compile()
      return { test: { server: { deps: { external: [COMPILED] } } } }
    },
    resolveId(id, importer) {
      if (importer === undefined || !id.startsWith('.')) return undefined
      const file = path.resolve(path.dirname(importer), id)
      const compiled = file.replace(/(\/packages\/[a-z-]+)\/src\/(.*\.js)$/, '$1/dist/$2')
      return compiled !== file && existsSync(compiled) ? compiled : undefined
    },
  }
}

/** Compiles the packages, once for all projects. A type error is shown, and the tests run what was compiled in spite of it. */
function compile(): void {
  if (isCompiled) return
  isCompiled = true
  const compiler = createRequire(import.meta.url).resolve('typescript/package.json')
  const program = path.join(path.dirname(compiler), 'bin', 'tsc')
  try {
    execFileSync(process.execPath, [program, '-b', path.join(ROOT, 'packages', 'cli')], {
      stdio: 'inherit',
    })
  } catch {
    // The compiler has said what is wrong.
  }
}
