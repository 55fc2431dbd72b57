import { existsSync, renameSync, rmSync } from 'node:fs'

/**
 * Replaces a folder by what `build` writes into the folder it is given. That is another folder, which is renamed at
 * the end, so that several processes can build at once and none sees a part of a build.
 */
export async function replaceFolder(target, build) {
  const building = `${target}-${process.pid}`
  const old = `${building}-old`
  try {
    await build(building)
    if (existsSync(target)) renameSync(target, old)
    renameSync(building, target)
  } finally {
    rmSync(building, { recursive: true, force: true })
    rmSync(old, { recursive: true, force: true })
  }
}
