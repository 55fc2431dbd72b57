import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import {
  type Banner,
  endAll,
  type OffshootProcess,
  PROGRAM,
  startOffshoot,
} from '../support/process.js'

/*
 * Runs the examples of the documentation. The `sh` blocks of a page form one script, run as written
 * in a folder with the data of a fresh service. The output of a block must match the `json` or
 * `text` block right after it, except for ids, keys and times. A block without one must print
 * nothing. Output means both streams, as a terminal shows them.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const TUTORIAL = 'docs/start.md'
/** Guides rely on the variables and the function that this page defines at its start. */
const SET_UP = 'docs/reference/http.md'

interface Example {
  readonly script: string
  readonly expected: string
}

const FENCE = /^```(\w+)\n([\s\S]*?)^```$/gm

async function readExamples(page: string): Promise<Example[]> {
  const text = await readFile(path.join(ROOT, page), 'utf8')
  const blocks = [...text.matchAll(FENCE)].map((match) => {
    const [whole, language, body = ''] = match
    return { language, body, start: match.index, end: match.index + whole.length }
  })
  return blocks.flatMap(({ language, body, end }, index): Example[] => {
    if (language !== 'sh') return []
    const next = blocks[index + 1]
    const isShown =
      (next?.language === 'json' || next?.language === 'text') &&
      text.slice(end, next.start).trim() === ''
    return [{ script: body, expected: isShown ? next.body : '' }]
  })
}

/**
 * Lists the pages. Their order does not matter: each page creates what it needs and removes it at
 * the end.
 */
async function findPages(): Promise<string[]> {
  const files = await readdir(path.join(ROOT, 'docs'), { recursive: true })
  const pages = files.filter((file) => file.endsWith('.md')).sort()
  return ['README.md', ...pages.map((file) => path.join('docs', file))]
}

const marker = (index: number) => `--- end of example ${index} ---`

/** Returns the output of each example. The script ends at the first failure. */
async function runExamples(
  scripts: readonly string[],
  options: { folder: string; url: string },
): Promise<string[]> {
  // The examples show notices and errors where a terminal shows them.
  const script = [
    'exec 2>&1\n',
    ...scripts.map((text, index) => `${text}\necho '${marker(index)}'\n`),
  ].join('')
  const shell = spawn('sh', ['-eu', '-s'], {
    cwd: options.folder,
    env: {
      PATH: `${path.join(options.folder, 'bin')}:${process.env.PATH}`,
      HOME: options.folder,
      URL: options.url,
      OFFSHOOT_URL: options.url,
    },
  })
  let stdout = ''
  shell.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  shell.stdin.end(script)
  const [code] = await once(shell, 'close')
  const printed = stdout.split(/^--- end of example \d+ ---\n/m)
  const rest = printed.pop()
  if (code !== 0) {
    const failed = scripts[printed.length]
    throw new Error(`exit code ${code} of\n${failed}\nprinted: ${rest}`)
  }
  return printed
}

const VARYING: ReadonlySet<string> = new Set([
  'createdAt',
  'updatedAt',
  'expires',
  'unique_id',
  'token',
])

const TIME = /^\d{4}-\d\d-\d\dT/

/** Masks values that differ between runs. */
function mask(text: string): string {
  return (
    text
      .replace(/\b(rec|usr|inv|mig|log|cp)_[0-9a-v]{20}/g, '$1_')
      .replace(/\bbb_[0-9a-v]{26}_[a-z0-9]{6}/g, 'bb_')
      .replace(/http:\/\/[\w.:]+\/file\/[\w.-]+/g, 'http://file/')
      .replace(/http:\/\/127\.0\.0\.1:\d+/g, 'http://127.0.0.1')
      .replace(/\b[\d,]+ rows\/s/g, 'rows/s')
      .replace(/\breq_[0-9a-f]{32}/g, 'req_')
      // The version of a record in its history is its time in microseconds.
      .replace(/^\d{16}$/, 'version')
      .replace(/\b(off|ik)_[A-Za-z0-9]{44}/g, '$1_')
      .replace(/\b(home|acme)-[a-z0-9]{6}\b/g, '$1-')
  )
}

function parse(text: string): unknown {
  return JSON.parse(text, (key, value) => {
    if (VARYING.has(key) || (key === 'at' && TIME.test(value))) return 'varies'
    return typeof value === 'string' ? mask(value) : value
  })
}

/** Parses output into JSON values, each on one or several lines, and lines of plain text. */
function readOutput(text: string): unknown[] {
  const values: unknown[] = []
  let pending = ''
  for (const line of text.split('\n').filter((candidate) => candidate.trim() !== '')) {
    pending += line
    try {
      values.push(parse(pending))
    } catch {
      if (/^[{[]/.test(pending)) continue
      values.push(mask(pending.trim()))
    }
    pending = ''
  }
  return pending === '' ? values : [...values, mask(pending)]
}

let folder: string
let service: OffshootProcess
let banner: Banner

beforeAll(async () => {
  folder = await makeDataFolder('readme')
  // The folder has `node_modules`, like a checkout.
  await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
  // npx finds an installed program in the same place, but takes a second, and prints news of npm. The command of a
  // checkout would look for changed sources each time.
  await mkdir(path.join(folder, 'bin'))
  const npx = [
    '#!/bin/sh',
    'program=$1; shift',
    `[ "$program" = offshoot ] && exec '${process.execPath}' '${PROGRAM}' "$@"`,
    'exec "node_modules/.bin/$program" "$@"',
    '',
  ].join('\n')
  await writeFile(path.join(folder, 'bin', 'npx'), npx, { mode: 0o755 })
  service = startOffshoot(path.join(folder, '.offshoot'))
  banner = await service.ready()
})
afterAll(async () => {
  await service?.end('SIGTERM')
  await endAll([path.join(folder, '.offshoot')])
  await rm(folder, { recursive: true, force: true })
})

describe('the documentation', async () => {
  const pages = await findPages()

  it('has a tour and a tutorial', async () => {
    for (const page of ['README.md', TUTORIAL, SET_UP]) {
      expect((await readExamples(page)).length, page).toBeGreaterThanOrEqual(5)
    }
  })

  for (const page of pages) {
    const examples = await readExamples(page)
    if (examples.length === 0) continue

    it(`shows commands that work, and what they print: ${page}`, async () => {
      const isComplete = ['README.md', TUTORIAL, SET_UP].includes(page)
      const [setUp] = await readExamples(SET_UP)
      const all = isComplete || setUp === undefined ? examples : [setUp, ...examples]
      const scripts = all.map((example) => example.script)
      const printed = await runExamples(scripts, { folder, url: banner.address })
      for (const [index, { script, expected }] of all.entries()) {
        expect(readOutput(printed[index] ?? ''), script).toEqual(readOutput(expected))
      }
    })
  }

  it('leaves nothing behind', async () => {
    const url = `${banner.address}/workspaces/${banner.workspaceId}/dbs`
    const response = await fetch(url, { headers: { authorization: `Bearer ${banner.key}` } })
    expect(await response.json()).toEqual({ databases: [] })
  })
})
