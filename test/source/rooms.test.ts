import { describe, expect, it } from 'vitest'
import { findImports, type Import, listNames, readImports, readSources } from './imports.js'
import { KNOWN_VIOLATIONS } from './known-violations.js'
import { explainImport, findCycles, isInRows, ROWS_FACE, ROWS_NAMES_MAX, SERVER } from './rooms.js'

const at = (file: string, target: string): Import => ({
  file: `packages/${file}`,
  line: 1,
  target: target.startsWith('@') ? target : `packages/${target}`,
})

describe('the imports of all packages', () => {
  const imports = readImports()
  const wrong = imports.flatMap((found) => {
    const reason = explainImport(found)
    if (reason === undefined) return []
    const { file, line, target } = found
    return [{ edge: `${file} -> ${target}`, text: `${file}:${line} imports ${target}: ${reason}` }]
  })

  it('are found', () => {
    expect(imports.length).toBeGreaterThan(1_000)
  })

  it('follow the order of the rooms', () => {
    const news = wrong.filter(({ edge }) => !KNOWN_VIOLATIONS.includes(edge))
    expect(news.map(({ text }) => text).join('\n')).toBe('')
  })

  it('no longer have violations that were removed from the code but not from the list', () => {
    const needed = new Set(wrong.map(({ edge }) => edge))
    expect(KNOWN_VIOLATIONS.filter((edge) => !needed.has(edge))).toEqual([])
  })

  it('use every module of the face of rows/ from above', () => {
    const used = new Set(
      imports
        .filter(({ file }) => !file.startsWith(`${SERVER}rows/`) && !file.endsWith('.test.ts'))
        .map(({ target }) => target.slice(SERVER.length)),
    )
    expect(ROWS_FACE.filter((module) => !used.has(module))).toEqual([])
  })

  it('name few things of rows/ from above', () => {
    const names = readSources().flatMap(({ file, text }) => {
      const from = file.slice(SERVER.length)
      if (!file.startsWith(SERVER) || isInRows(from) || file.endsWith('.test.ts')) return []
      return listNames(file, text)
        .filter(({ target }) => isInRows(target.slice(SERVER.length)))
        .map(({ target, name }) => `${target} ${name}`)
    })
    expect(new Set(names).size).toBeLessThanOrEqual(ROWS_NAMES_MAX)
  })

  it('have no cycles', () => {
    expect(findCycles(imports).map((cycle) => cycle.join(' -> '))).toEqual([])
  })
})

/** They publish it. */
const TELLS_CLUSTER = ['http/routes/health.ts', 'telemetry/events.ts']

it('Only postgres/ knows whether the server is a cluster', () => {
  const asking = readSources()
    .filter(({ file, text }) => file.startsWith(SERVER) && /isCluster/.test(text))
    .map(({ file }) => file.slice(SERVER.length))
  expect(asking.filter((file) => !file.startsWith('postgres/'))).toEqual(TELLS_CLUSTER)
})

describe('the modules of rows/', () => {
  const sources = readSources().filter(
    ({ file }) => file.startsWith(`${SERVER}rows/`) && !file.endsWith('.test.ts'),
  )

  it('keep no state: a storage owns it', () => {
    const stateful = sources.filter(({ text }) =>
      /^(?:export )?(?:let |const .*= new (?:WeakMap|WeakSet|LRUCache|SharedCache)\b)/m.test(text),
    )
    expect(stateful.map(({ file }) => file)).toEqual([])
  })

  it('define what they export', () => {
    const passed = sources.filter(({ text }) => /^export .*from '/m.test(text))
    expect(passed.map(({ file }) => file)).toEqual([])
  })
})

describe('the check itself', () => {
  it.each([
    ['server/src/rows/a.ts', 'server/src/domain/access/b.ts', 'rows is not above domain/access'],
    ['server/src/domain/keys/a.ts', 'server/src/domain/users/b.ts', 'is not above'],
    ['server/src/blobs/a.ts', 'server/src/postgres/b.ts', 'is not above'],
    ['server/src/data/sql/a.ts', 'server/src/rows/layout/b.ts', 'rows/ is only imported through'],
    ['server/src/rows/layout/a.ts', 'server/src/rows/reading/b.ts', 'is not above'],
    ['server/src/rows/columns/a.ts', 'server/src/rows/gates/b.ts', 'is not above'],
    ['server/src/new-room/a.ts', 'server/src/common/b.ts', 'is in no room'],
    ['server/src/common/a.ts', 'server/src/new.ts', 'is in no room'],
    ['server/src/app.ts', 'contract/src/limits.ts', 'imported by its name'],
    ['contract/src/a.ts', '@offshoot/server/start', 'may import no package of this repository'],
    ['cli/src/a.ts', '@offshoot/contract/limits', 'may import @offshoot/server'],
    ['client/src/a.ts', '@offshoot/contract/errors', 'may import no package of this repository'],
  ])('refuses that %s imports %s', (file, target, reason) => {
    expect(explainImport(at(file, target))).toContain(reason)
  })

  it.each([
    ['server/src/rows/layout/a.ts', 'server/src/rows/columns/b.ts'],
    ['server/src/domain/keys/a.ts', `server/src/${ROWS_FACE[0]}`],
    ['server/src/data/sql/a.test.ts', 'server/src/rows/layout/b.ts'],
    ['server/src/main.ts', 'server/src/app.ts'],
    ['server/src/main.ts', '@offshoot/embedded-postgres'],
  ])('allows that %s imports %s', (file, target) => {
    expect(explainImport(at(file, target))).toBeUndefined()
  })

  it('finds every form of import with its line', () => {
    const text = [
      "import a from './a.js'",
      'import {',
      '  b,',
      "} from './b.js'",
      "import type { C } from './c.js'",
      "import * as d from './d.js'",
      "import e, { type F } from './e.js'",
      "import './g.js'",
      "export * from './h.js'",
      "export { i } from './i.js'",
      "const j = await import('./j.js')",
      "const text = sql`select 1 from 'nothing'`",
    ].join('\n')
    expect(
      findImports(text)
        .map(({ line, target }) => `${line} ${target}`)
        .sort((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10)),
    ).toEqual([
      '1 ./a.js',
      '4 ./b.js',
      '5 ./c.js',
      '6 ./d.js',
      '7 ./e.js',
      '8 ./g.js',
      '9 ./h.js',
      '10 ./i.js',
      '11 ./j.js',
    ])
  })

  it('finds cycles of any length', () => {
    const imports = [at('a', 'b'), at('b', 'c'), at('c', 'b'), at('d', 'd'), at('d', 'a')]
    expect(findCycles(imports)).toEqual([['packages/b', 'packages/c'], ['packages/d']])
  })
})
