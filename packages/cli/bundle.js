#!/usr/bin/env node
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { isBundleFresh } from './dist/offshoot.js'

/*
 * Bundles the commands that talk to a server with the packages that they load. To find and read the modules one by one takes
 * more than half of the CPU time of a short command.
 */

const folder = fileURLToPath(new URL('.', import.meta.url))

if (!process.argv.includes('--if-stale') || !isBundleFresh()) {
  const { bundlePackage } = await import('../../scripts/bundle-package.js')
  await bundlePackage({ folder, input: { program: path.join(folder, 'dist', 'program.js') } })
}
