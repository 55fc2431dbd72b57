import { execFile } from 'node:child_process'
import { access } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const FOLDER = fileURLToPath(new URL('../programs/', import.meta.url))

/** Returns the folder of the packages of `test/programs`, and installs them if necessary. */
export async function installPrograms(): Promise<string> {
  const packages = path.join(FOLDER, 'node_modules')
  try {
    // npm writes this file last.
    await access(path.join(packages, '.package-lock.json'))
  } catch {
    const args = ['ci', '--ignore-scripts', '--no-audit', '--no-fund']
    await promisify(execFile)('npm', args, { cwd: FOLDER })
  }
  return packages
}
