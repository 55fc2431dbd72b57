import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { rolldown } from 'rolldown'
import { replaceFolder } from './replace-folder.js'

/**
 * Bundles modules of a compiled package with the packages that they load, into its folder `bundle`. Names and lines are
 * kept, so stack traces stay readable. The package runs the modules themselves if the bundle is missing or stale
 * (`packages/server/src/bundled.ts`).
 */
export async function bundlePackage({ folder, input, external = [] }) {
  await replaceFolder(path.join(folder, 'bundle'), async (target) => {
    const built = await rolldown({ input, platform: 'node', external, logLevel: 'warn' })
    const { output } = await built.write({
      dir: target,
      format: 'esm',
      entryFileNames: '[name].js',
      chunkFileNames: '[name]-[hash].js',
      comments: { legal: true, annotation: false, jsdoc: false },
    })
    await built.close()
    const modules = output.flatMap((chunk) => ('moduleIds' in chunk ? chunk.moduleIds : []))
    writeFileSync(path.join(target, 'LICENSES.txt'), licensesOf(modules))
  })
}

/** Returns the licenses of all packages that the bundle contains parts of. */
function licensesOf(modules) {
  const packages = new Set()
  for (const id of modules) {
    const found = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(id.replaceAll('\\', '/'))
    if (found !== null) packages.add(found[0])
  }
  return [...packages]
    .sort()
    .map((name) => {
      const manifest = JSON.parse(readFileSync(path.join(name, 'package.json'), 'utf8'))
      const file = readdirSync(name).find((entry) => /^licen[cs]e/i.test(entry))
      const text = file === undefined ? '' : readFileSync(path.join(name, file), 'utf8')
      return `${manifest.name} ${manifest.version} (${manifest.license})\n\n${text.trim()}\n`
    })
    .join(`\n${'-'.repeat(80)}\n\n`)
}
