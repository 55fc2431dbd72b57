import { chmod, lstat, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Failure } from './failure.js'
import { shellWord } from './shell-word.js'

export type HookName = 'post-checkout' | 'post-merge'

/** The program that a hook runs. All paths are absolute. */
interface HookCommand {
  readonly node: string
  readonly script: string
  /** The paths of node and the script that are in the work tree, below `node_modules`. */
  readonly guarded?: readonly string[]
}

/** The second line of our hooks. */
const MARK = '# Written by `offshoot hook install`; remove it with `offshoot hook uninstall`.'
/** The hook that was there before. Our hook runs it first, so it may be a program of any kind. */
const BEFORE = '.before-offshoot'

/** Earlier versions added lines between these marks to hooks. */
const OLD_START = '# offshoot: start'
const OLD_END = '# offshoot: end'

/**
 * Writes a hook as a shell script. It ends with the exit code of the hook that was there before, and never refuses
 * a checkout by itself.
 */
export function hookText(name: HookName, command: HookCommand): string {
  const lines = name === 'post-checkout' ? checkoutLines(command) : MERGE_LINES
  return `${[
    '#!/bin/sh',
    MARK,
    'status=0',
    `if [ -x "$0${BEFORE}" ]; then`,
    `  "$0${BEFORE}" "$@"`,
    '  status=$?',
    'fi',
    ...lines,
    'exit "$status"',
  ].join('\n')}\n`
}

const MERGE_LINES = [
  "echo 'offshoot: merge the branch of the merged git branch with: offshoot merge NAME' >&2",
]

/**
 * The third argument is 1 if a branch was checked out, and 0 for single files. The command runs in the background, so
 * that it does not delay a checkout. Its errors go to stderr.
 */
function checkoutLines({ node, script, guarded = [] }: HookCommand): string[] {
  const call = `(${shellWord(node)} ${shellWord(script)} hook post-checkout </dev/null >/dev/null &)`
  if (guarded.length === 0) return ['if [ "$3" = 1 ]; then', `  ${call}`, 'fi']
  return [
    '# The command is in the work tree. It must not run if a branch has brought its files.',
    'is_own() {',
    '  unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PREFIX GIT_COMMON_DIR',
    ...guarded.flatMap((file) => {
      const folder = shellWord(path.dirname(file))
      return [
        `  [ "$(cd ${folder} 2>/dev/null && pwd -P)" = ${folder} ] || return 1`,
        `  tracked=$(git -C ${folder} ls-files -- ':(top,icase,glob)**/node_modules' ':(top,icase,glob)**/node_modules/**') || return 1`,
        '  [ -z "$tracked" ] || return 1',
      ]
    }),
    '}',
    'if [ "$3" = 1 ]; then',
    '  if (is_own); then',
    `    ${call}`,
    '  else',
    "    echo 'offshoot: the git hook has done nothing: node_modules is missing, or is a part of this git branch' >&2",
    '  fi',
    'fi',
  ]
}

/** Puts our hook in place. A hook that is there already is kept beside it. */
export async function installHook(file: string, text: string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true })
  if (await isThere(file)) {
    await removeOldLines(file)
    if ((await isThere(file)) && !(await isOurs(file))) {
      if (await isThere(file + BEFORE)) {
        throw new Failure(
          `there are two hooks beside that of offshoot: [${file}] and [${file}${BEFORE}]\n  Join them, and remove the second one`,
        )
      }
      await rename(file, file + BEFORE)
    }
  }
  const temporary = `${file}.${process.pid}`
  await writeFile(temporary, text)
  await chmod(temporary, 0o755)
  await rename(temporary, file)
}

/** Restores what was there before. Returns whether anything was changed. */
export async function uninstallHook(file: string): Promise<boolean> {
  if (!(await isThere(file))) return false
  if (!(await isOurs(file))) return removeOldLines(file)
  if (await isThere(file + BEFORE)) await rename(file + BEFORE, file)
  else await rm(file)
  return true
}

/** Removes the lines of an earlier version, and the file if nothing else is in it. */
async function removeOldLines(file: string): Promise<boolean> {
  const text = await readHook(file)
  const start = text.indexOf(OLD_START)
  const end = text.indexOf(OLD_END)
  if (start < 0 || end < start) return false
  const kept = text.slice(0, start) + text.slice(end + OLD_END.length).replace(/^\n/, '')
  if (kept.trim() === '#!/bin/sh') await rm(file)
  else await writeFile(file, kept, 'latin1')
  return true
}

/** Reads a hook as one character for each byte, because it may be a binary. A link may lead nowhere. */
function readHook(file: string): Promise<string> {
  return readFile(file, 'latin1').catch(() => '')
}

async function isOurs(file: string): Promise<boolean> {
  return (await readHook(file)).startsWith(`#!/bin/sh\n${MARK}\n`)
}

/** A link that leads nowhere is there, too. */
function isThere(file: string): Promise<boolean> {
  return lstat(file).then(
    () => true,
    () => false,
  )
}
