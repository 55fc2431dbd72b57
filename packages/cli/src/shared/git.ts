import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Variables that git sets for its hooks, and that would make it work on another repository than that of the folder. */
const LOCATIONS = ['GIT_DIR', 'GIT_WORK_TREE', 'GIT_INDEX_FILE', 'GIT_PREFIX', 'GIT_COMMON_DIR']

/** Runs git in a folder. Returns its output. */
export async function git(folder: string, args: readonly string[]): Promise<string> {
  const env = Object.entries(process.env).filter(([name]) => !LOCATIONS.includes(name))
  const { stdout } = await run('git', [...args], { cwd: folder, env: Object.fromEntries(env) })
  return stdout
}

/** Runs git, and returns its output without the line feed at the end. */
export async function gitLine(folder: string, args: readonly string[]): Promise<string> {
  return (await git(folder, args)).replace(/\n$/, '')
}
