#!/usr/bin/env node
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { isBundleFresh } from './dist/start.js'

/*
 * Bundles the built server and its commands with the packages that they load. The modules are more than a thousand files,
 * and finding and reading them takes two thirds of the time that loading takes.
 */

const folder = fileURLToPath(new URL('.', import.meta.url))

/** Packages that load files of their own, or that are optional parts of others. */
const EXTERNAL = [/^libpg-query/, 'pg-native', 'pg-cloudflare']

if (!process.argv.includes('--if-stale') || !isBundleFresh()) {
  const { bundlePackage } = await import('../../scripts/bundle-package.js')
  await bundlePackage({
    folder,
    input: {
      main: path.join(folder, 'dist', 'main.js'),
      backup: path.join(folder, 'dist', 'backup', 'run.js'),
      'plan-worker': path.join(folder, 'dist', 'data', 'sql', 'plan-worker.js'),
      'openapi-worker': path.join(folder, 'dist', 'http', 'openapi', 'openapi-worker.js'),
    },
    external: EXTERNAL,
  })
}
