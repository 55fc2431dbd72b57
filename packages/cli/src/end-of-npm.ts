import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)

const CHECK_MS = 500
const SHELLS: ReadonlySet<string> = new Set(['sh', 'dash', 'bash', 'zsh', 'ksh', 'ash', 'busybox'])

/**
 * Aborts when the npm that has started this process ends, or the shell between them. npm passes signals to its shell
 * only, and the shell dies of them without telling this process.
 */
export async function endOfNpm(): Promise<AbortSignal> {
  const ended = new AbortController()
  const parent = process.ppid
  const { name, parent: grandparent } = await describeProcess(parent)
  const npm = SHELLS.has(path.basename(name)) ? grandparent : parent
  const timer = setInterval(() => {
    if (process.ppid === parent && isAlive(npm)) return
    clearInterval(timer)
    ended.abort()
  }, CHECK_MS)
  timer.unref()
  return ended.signal
}

/** Returns the name of a program, and its parent. Without `/proc` and `ps`, it returns the process itself. */
async function describeProcess(pid: number): Promise<{ name: string; parent: number }> {
  try {
    // Linux: number (name) state parent ...
    const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(async () => {
      const { stdout } = await execute('ps', ['-o', 'ppid=,comm=', '-p', String(pid)])
      return stdout.replace(/^\s*(\d+)\s+(.*?)\s*$/s, '($2) S $1 ')
    })
    const [, name, parent] = /\((.*)\) \S (\d+) /s.exec(text) ?? []
    if (name !== undefined) return { name, parent: Number(parent) }
  } catch {
    // There is neither of the two.
  }
  return { name: '', parent: pid }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
