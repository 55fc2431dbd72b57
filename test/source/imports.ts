import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** One import in the sources of a package. Paths are relative to the root of the repository. */
export interface Import {
  readonly file: string
  readonly line: number
  /** A path such as `packages/server/src/app.ts`, or the name of a package. */
  readonly target: string
}

// Static imports start a line, because the formatter puts them there.
const STATIC_IMPORT =
  /^(?:import|export)\s+(?:type\s+)?(?:[\w*][^'{}]*?\s+)?(?:\{[^}]*\}\s+)?from\s+'([^']+)'/gm
const BARE_IMPORT = /^import\s+'([^']+)'/gm
const DYNAMIC_IMPORT = /\bimport\('([^']+)'\)/g

const NAMED_IMPORT = /^import\s+(?:type\s+)?\{([^}]*)\}\s+from\s+'([^']+)'/gm

/** A name that a file imports. */
export interface ImportedName {
  readonly target: string
  readonly name: string
}

/** Lists the names in the imports of a file. */
export function listNames(file: string, text: string): ImportedName[] {
  return [...text.matchAll(NAMED_IMPORT)].flatMap(([, names = '', target = '']) =>
    names
      .split(',')
      .map((name) =>
        name
          .trim()
          .replace(/^type /, '')
          .replace(/ as .*$/, ''),
      )
      .filter((name) => name !== '')
      .map((name) => ({ target: resolve(file, target), name })),
  )
}

/** Reads the imports of all sources in `packages/<name>/src`, type imports and dynamic ones included. */
export function readImports(): Import[] {
  return readSources().flatMap(({ file, text }) =>
    findImports(text).map(({ line, target }) => ({
      file,
      line,
      target: resolve(file, target),
    })),
  )
}

/** Reads all sources in `packages/<name>/src`. */
export function readSources(): { readonly file: string; readonly text: string }[] {
  return listSources().map((file) => ({
    file,
    text: readFileSync(path.join(ROOT, file), 'utf8'),
  }))
}

function listSources(): string[] {
  return listFiles('packages', /^[\w-]+\/src\/.*(?<!\.d)\.tsx?$/)
}

/** Lists the files of a folder whose path in it matches, without what was installed or compiled. */
export function listFiles(folder: string, pattern: RegExp): string[] {
  return readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => pattern.test(file) && !/(^|\/)(node_modules|dist|bundle)\//.test(file))
    .map((file) => path.join(folder, file))
    .sort()
}

/** Finds the imports in a text, each with the number of the line that names its target. */
export function findImports(text: string): { line: number; target: string }[] {
  return [STATIC_IMPORT, BARE_IMPORT, DYNAMIC_IMPORT].flatMap((pattern) =>
    [...text.matchAll(pattern)].map((match) => ({
      line: text.slice(0, match.index + match[0].length).split('\n').length,
      target: match[1] ?? '',
    })),
  )
}

function resolve(file: string, target: string): string {
  if (!target.startsWith('.')) return target
  const source = path.join(path.dirname(file), target).replace(/\.js$/, '.ts')
  return existsSync(path.join(ROOT, `${source}x`)) ? `${source}x` : source
}
