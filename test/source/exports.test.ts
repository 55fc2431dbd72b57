import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { listFiles, ROOT } from './imports.js'

const EXPORT =
  /^export (?:declare |abstract |async )*(?:function\*?|const|let|class|type|interface|enum) ([\w$]+)/gm

/** What users of a package import. */
const entries = new Set(
  listFiles('packages', /^[\w-]+\/package\.json$/).flatMap((file) => {
    const { exports = {} } = JSON.parse(readFileSync(path.join(ROOT, file), 'utf8'))
    return Object.values<{ source?: string }>(exports).map(({ source = '' }) =>
      path.join(path.dirname(file), source),
    )
  }),
)

it('nothing is exported that no other file imports', () => {
  const files = ['packages', 'test', 'bench', 'scripts'].flatMap((folder) =>
    listFiles(folder, /(?<!\.d)\.[jt]sx?$/),
  )
  const texts = new Map(files.map((file) => [file, readFileSync(path.join(ROOT, file), 'utf8')]))
  const unused = [...texts].flatMap(([file, text]) => {
    if (!/^packages\/(server|cli|embedded-postgres)\/src\//.test(file) || entries.has(file))
      return []
    const module = `/${path.basename(file).replace(/\.\w+$/, '')}`
    const importers = [...texts].filter(([other, text]) => other !== file && text.includes(module))
    return [...text.matchAll(EXPORT)].flatMap(([, name = '']) => {
      const word = new RegExp(`(?<![\\w$])${name.replace('$', '\\$')}(?![\\w$])`)
      return importers.some(([, text]) => word.test(text)) ? [] : [`${file}: ${name}`]
    })
  })
  expect(texts.size).toBeGreaterThan(1_000)
  expect(unused).toEqual([])
})
