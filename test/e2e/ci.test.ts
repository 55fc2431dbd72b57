import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { type ColumnDefinition, createClient } from '../../packages/client/src/index.js'
import { inLongForm } from '../support/long-form.js'
import { type Banner, endAll, PROGRAM, startOffshoot } from '../support/process.js'

/*
 * `offshoot ci` and the GitHub Action over it: with recorded events, a real service, and a server that
 * plays the part of GitHub and GitLab.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

interface Comment {
  readonly id: number
  body: string
  readonly user: { readonly id: number }
  readonly author: { readonly id: number }
}

/** The user of the token, and somebody else. */
const OWN = { user: { id: 41898282 }, author: { id: 41898282 } }
const OTHER = { user: { id: 7 }, author: { id: 7 } }

/** Keeps comments as GitHub and GitLab do, in pages. */
class Platform {
  readonly comments: Comment[] = []
  readonly requests: string[] = []
  readonly tokens = new Set<string>()
  status = 200
  state = 'opened'
  #server: Server | undefined

  async start(): Promise<string> {
    this.#server = createServer(async (request, response) => {
      const chunks: Buffer[] = []
      for await (const chunk of request) chunks.push(chunk as Buffer)
      const url = new URL(request.url ?? '', 'http://localhost')
      const { authorization, 'private-token': token } = request.headers
      this.tokens.add(String(authorization ?? token))
      this.requests.push(`${request.method} ${url.pathname}`)
      const text = Buffer.concat(chunks).toString()
      const answer = this.#answer(url, text === '' ? undefined : JSON.parse(text).body)
      response.writeHead(this.status, { 'content-type': 'application/json' })
      response.end(JSON.stringify(answer))
    })
    await new Promise<void>((resolve) => this.#server?.listen(0, '127.0.0.1', resolve))
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  #answer(url: URL, body: string | undefined): unknown {
    if (url.pathname === '/graphql') return { data: { viewer: { databaseId: OWN.user.id } } }
    if (url.pathname === '/user') return { id: OWN.author.id }
    if (/merge_requests\/\d+$/.test(url.pathname)) return { state: this.state }
    if (body === undefined) {
      const size = Number(url.searchParams.get('per_page'))
      const start = (Number(url.searchParams.get('page')) - 1) * size
      return this.comments.slice(start, start + size)
    }
    const id = Number(/(?:comments|notes)\/(\d+)$/.exec(url.pathname)?.[1])
    const known = this.comments.find((comment) => comment.id === id)
    if (known !== undefined) known.body = body
    else this.comments.push({ id: this.comments.length + 1, body, ...OWN })
    return {}
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections()
    await new Promise((resolve) => this.#server?.close(resolve))
  }
}

describe('a branch for each pull request', () => {
  let folder: string
  let dataDir: string
  let banner: Banner
  let apiKey: string
  let platform: Platform
  let api: string
  let databases = 0

  beforeAll(async () => {
    folder = await realpath(await mkdtemp(path.join(tmpdir(), 'offshoot-ci-')))
    dataDir = path.join(folder, 'data')
    banner = await startOffshoot(dataDir).ready()
    apiKey = banner.key ?? (await readFile(banner.keyFile ?? '', 'utf8')).trim()
  })
  afterAll(async () => {
    await endAll([dataDir])
    await rm(folder, { recursive: true, force: true })
  })
  beforeEach(async () => {
    platform = new Platform()
    api = await platform.start()
  })
  afterEach(() => platform.stop())

  async function createProject() {
    const database = `shop${databases++}`
    const cwd = path.join(folder, database)
    await mkdir(cwd)
    const client = createClient({
      ...{ url: banner.address, apiKey, database, branch: 'main', workspace: banner.workspaceId },
    })
    await client.account.createDatabase(banner.workspaceId, database)
    await client
      .branch()
      .applySchema([
        { addTable: { table: 'products' } },
        { addColumn: { table: 'products', column: { name: 'name', type: 'string' } } },
      ])
    await client.table('products').create({ id: 'tea', name: 'Tea' })
    const output = path.join(cwd, 'output')
    const environment = path.join(cwd, 'environment')
    const base = {
      PATH: process.env.PATH ?? '',
      HOME: cwd,
      OFFSHOOT_URL: banner.address,
      OFFSHOOT_API_KEY: apiKey,
      OFFSHOOT_DATABASE: database,
    }
    const github = (event: string) => ({
      ...base,
      GITHUB_ACTIONS: 'true',
      GITHUB_EVENT_NAME: event === 'push' ? 'push' : 'pull_request',
      GITHUB_EVENT_PATH: path.join(ROOT, 'test', 'fixtures', 'github', `${event}.json`),
      GITHUB_API_URL: api,
      GITHUB_TOKEN: 'ghs_secret',
      GITHUB_OUTPUT: output,
      GITHUB_ENV: environment,
    })
    const gitlab = {
      ...base,
      GITLAB_CI: 'true',
      GITLAB_TOKEN: 'glpat-secret',
      CI_API_V4_URL: api,
      CI_MERGE_REQUEST_IID: '7',
      CI_MERGE_REQUEST_PROJECT_ID: '42',
      CI_MERGE_REQUEST_SOURCE_PROJECT_ID: '42',
      CI_MERGE_REQUEST_SOURCE_BRANCH_NAME: 'feat/prices',
      CI_MERGE_REQUEST_TARGET_BRANCH_NAME: 'main',
    }
    const run = (env: Record<string, string>, ...args: string[]) =>
      start(process.execPath, [PROGRAM, 'ci', ...args], { cwd, env })
    const names = async () => (await client.database.branches()).map(({ name }) => name).sort()
    const read = (file: string) => readFile(file, 'utf8').catch(() => '')
    return { client, cwd, base, github, gitlab, run, names, output, environment, read, database }
  }

  it('is created, described in one comment, merged and deleted', async () => {
    const shop = await createProject()
    const { client, github, run } = shop
    const opened = github('opened')
    expect(await run(opened, 'ensure')).toMatchObject({ code: 0, stdout: 'feat-prices\n' })
    expect(await shop.read(shop.output)).toBe('branch=feat-prices\nskipped=false\n')
    expect(await shop.read(shop.environment)).toContain('OFFSHOOT_BRANCH=feat-prices\n')
    expect(await shop.read(shop.environment)).not.toContain(apiKey)

    const branch = client.branch('feat-prices')
    await branch.applySchema([
      { addColumn: { table: 'products', column: { name: 'price', type: 'int' } } },
    ])
    await branch.table('products').update('tea', { name: 'Green tea ```\n# not a heading' })
    platform.comments.push(
      ...Array.from({ length: 150 }, (_, n) => ({ id: 1000 + n, body: `comment ${n}`, ...OWN })),
    )
    expect((await run(opened, 'comment')).stderr).toContain('created')
    const written = platform.comments.at(-1)
    expect(written?.body).toContain('`feat-prices`')
    expect(written?.body).toContain('+ column products.price (int)')
    expect(written?.body).toContain('| `products` | 0 | 1 | 0 |')
    expect(written?.body).toContain('````diff\n~ products/tea\n    name: Tea → Green tea ```')
    expect(written?.body).toContain('without conflicts')
    expect(platform.tokens).toEqual(new Set(['Bearer ghs_secret']))

    expect((await run(opened, 'comment')).stderr).toContain('unchanged')
    await client.table('products').update('tea', { name: 'Black tea' })
    expect((await run(opened, 'comment')).stderr).toContain('updated')
    expect(platform.comments).toHaveLength(151)
    expect(written?.body).toContain('**1 conflict** with `main`')
    expect(written?.body).toContain('ours Black tea, theirs Green tea')

    const merged = github('closed-merged')
    const conflict = await run(merged, 'merge')
    expect(conflict.code).toBe(3)
    expect(conflict.stderr).toContain('ours Black tea')
    expect((await run(merged, 'merge', '--theirs')).code).toBe(0)
    expect(await client.table('products').read('tea')).toMatchObject({
      name: 'Green tea ```\n# not a heading',
    })
    expect((await run(merged, 'delete')).code).toBe(0)
    expect(await shop.names()).toEqual(['main'])
    // A job that is repeated finds nothing to do.
    expect((await run(merged, 'merge')).code).toBe(0)
    expect((await run(merged, 'delete')).code).toBe(0)
  })

  inLongForm(
    'is described in a comment of its own, not in one of somebody else that begins like it',
    async () => {
      const { github, gitlab, run, database } = await createProject()
      const forged = `<!-- offshoot: ${database} -->\nEverything is fine.`
      for (const env of [github('opened'), gitlab]) {
        platform.comments.splice(0, Infinity, { id: 99, body: forged, ...OTHER })
        await run(env, 'ensure')
        expect((await run(env, 'comment')).stderr).toContain('created')
        expect((await run(env, 'comment')).stderr).toContain('unchanged')
        expect(platform.comments.map(({ body }) => body.split('\n')[0])).toEqual([
          `<!-- offshoot: ${database} -->`,
          `<!-- offshoot: ${database} -->`,
        ])
        expect(platform.comments[0]?.body).toBe(forged)
      }
    },
  )

  inLongForm(
    'is deleted but not merged if the pull request is closed without a merge',
    async () => {
      const { client, github, run, names } = await createProject()
      await run(github('opened'), 'ensure')
      await client.branch('feat-prices').table('products').delete('tea')
      const closed = github('closed-unmerged')
      expect((await run(closed, 'merge')).stderr).toContain('was not merged')
      expect((await run(closed, 'delete')).code).toBe(0)
      expect(await names()).toEqual(['main'])
      expect(await client.table('products').read('tea')).toMatchObject({ name: 'Tea' })
    },
  )

  inLongForm('can be merged without its rows', async () => {
    const { client, github, run } = await createProject()
    await run(github('opened'), 'ensure')
    const branch = client.branch('feat-prices')
    await branch.applySchema([
      { addColumn: { table: 'products', column: { name: 'price', type: 'int' } } },
      { addTable: { table: 'orders' } },
    ])
    await branch.table('products').create({ id: 'test', price: 1 })
    await branch.table('orders').create({ id: 'test' })
    expect((await run(github('closed-merged'), 'merge', '--schema-only')).code).toBe(0)
    const { tables } = await client.branch().schema()
    expect(tables.map(({ name, columns }) => [name, columns.map((one) => one.name)])).toEqual([
      ['products', ['name', 'price']],
      ['orders', []],
    ])
    expect(await client.table('products').count()).toBe(1)
    expect(await client.table('orders').count()).toBe(0)
  })

  it('gets what was merged into its source before its schema file is applied', async () => {
    const { client, cwd, base, github, run } = await createProject()
    const opened = github('opened')
    const price: ColumnDefinition = { name: 'price', type: 'int' }
    expect((await run(opened, 'ensure', '--json')).stdout).toContain('"pulled": false')
    const branch = client.branch('feat-prices')
    // Another pull request has added the column, and the schema file of this one contains it, too.
    await client.branch().applySchema([{ addColumn: { table: 'products', column: price } }])
    await client.table('products').update('tea', { price: 3 })
    expect(await run(opened, 'ensure', '--no-pull')).toMatchObject({ code: 0 })
    expect((await branch.schema()).tables[0]?.columns).toHaveLength(1)
    const pulled = await run(opened, 'ensure')
    expect(pulled).toMatchObject({ code: 0, stdout: 'feat-prices\n' })
    expect(pulled.stderr).toContain('Pulled main into feat-prices.')
    const { tables } = await client.branch().schema()
    const file = { tables: tables.map(({ name, columns }) => ({ name, columns })) }
    await writeFile(path.join(cwd, 'offshoot.schema.json'), JSON.stringify(file))
    const args = [PROGRAM, 'schema', 'apply', '--yes', '--branch', 'feat-prices']
    const applied = await start(process.execPath, args, { cwd, env: base })
    expect(applied.stderr).toContain('The schema of the branch is that of the file.')
    expect(await branch.table('products').read('tea')).toMatchObject({ price: 3 })
    const again = await run(opened, 'ensure', '--json')
    expect(JSON.parse(again.stdout)).toEqual({
      branch: 'feat-prices',
      created: false,
      pulled: false,
    })
  })

  it('is told of conflicts with its source, and is then left as it is', async () => {
    const shop = await createProject()
    const { client, github, run } = shop
    const opened = github('opened')
    await run(opened, 'ensure')
    const branch = client.branch('feat-prices')
    await client.table('products').update('tea', { name: 'Black tea' })
    await branch.table('products').update('tea', { name: 'Green tea' })
    const refused = await run(opened, 'ensure')
    expect(refused).toMatchObject({ code: 3, stdout: 'feat-prices\n' })
    expect(refused.stderr).toContain('ours Green tea, theirs Black tea')
    expect(refused.stderr).toContain('offshoot pull feat-prices --interactive')
    const json = await run(opened, 'ensure', '--json')
    expect(JSON.parse(json.stdout)).toMatchObject({
      branch: 'feat-prices',
      pulled: false,
      conflictCount: 1,
    })
    // Later steps still know the branch, for example to write a comment.
    expect(await shop.read(shop.environment)).toContain('OFFSHOOT_BRANCH=feat-prices\n')
    expect(await branch.table('products').read('tea')).toMatchObject({ name: 'Green tea' })
    expect(await run(opened, 'ensure', '--ours', '--theirs')).toMatchObject({ code: 2 })
    expect((await run(opened, 'ensure', '--ours')).code).toBe(0)
    expect(await branch.table('products').read('tea')).toMatchObject({ name: 'Green tea' })
    await client.branch().applySchema([{ removeColumn: { table: 'products', column: 'name' } }], {
      allowDataLoss: true,
    })
    const changed = await run(opened, 'ensure', '--theirs')
    expect(changed.code).toBe(3)
    expect(changed.stderr).toContain('--allow-data-loss')
    expect((await run(opened, 'ensure', '--theirs', '--allow-data-loss')).code).toBe(0)
    expect((await branch.schema()).tables[0]?.columns).toEqual([])
  })

  it('is refused to pull requests from other repositories, which have no secrets', async () => {
    const { github, gitlab, run, names, output, read } = await createProject()
    for (const event of ['opened-from-fork', 'opened-from-deleted-fork']) {
      const { OFFSHOOT_API_KEY: _key, ...env } = github(event)
      for (const command of ['ensure', 'comment', 'delete']) {
        const outcome = await run(env, command)
        expect(outcome.code).toBe(0)
        expect(outcome.stderr).toContain('Such jobs get no secrets')
      }
    }
    const foreign = { ...gitlab, CI_MERGE_REQUEST_SOURCE_PROJECT_ID: '43' }
    expect((await run(foreign, 'ensure')).stderr).toContain('Skipped')
    expect(await read(output)).toContain('skipped=true')
    expect(await names()).toEqual(['main'])
    expect(platform.requests).toEqual([])
  })

  it('is never the default branch, nor one that was not made for the pull request', async () => {
    const { client, github, base, run, names } = await createProject()
    for (const command of ['ensure', 'comment', 'delete']) {
      const outcome = await run(github('opened-from-main'), command)
      expect(outcome.code).toBe(1)
      expect(outcome.stderr).toContain('the default branch of the database')
    }
    const missing = await run(github('opened'), 'comment')
    expect(missing.code).toBe(2)
    expect(missing.stderr).toContain('has no branch')
    await client.branch().fork('staging')
    const kept = await run(base, 'delete', '--git-branch', 'staging')
    expect(kept).toMatchObject({ code: 0 })
    expect(kept.stderr).toContain('It is kept')
    expect(await names()).toEqual(['main', 'staging'])
    // A pull request for a branch of git with its own data starts from there.
    await client.database.mapGitBranch({ gitBranch: 'main', serviceBranch: 'staging' })
    expect((await run(github('opened'), 'ensure')).code).toBe(0)
    const { startedFrom } = await client.branch('feat-prices').get()
    expect(startedFrom?.branchName).toBe('staging')
  })

  inLongForm('works with GitLab', async () => {
    const { client, cwd, gitlab, run, names, database, read } = await createProject()
    expect((await run(gitlab, 'ensure', '--dotenv', 'offshoot.env')).code).toBe(0)
    expect(await read(path.join(cwd, 'offshoot.env'))).toBe(
      `OFFSHOOT_URL=${banner.address}\nOFFSHOOT_DATABASE=${database}\nOFFSHOOT_BRANCH=feat-prices\n`,
    )
    await client.branch('feat-prices').table('products').create({ id: 'pot' })
    expect((await run(gitlab, 'comment')).code).toBe(0)
    expect((await run(gitlab, 'comment')).code).toBe(0)
    expect(platform.comments).toHaveLength(1)
    expect(platform.requests.slice(0, 2)).toEqual([
      'GET /user',
      'GET /projects/42/merge_requests/7/notes',
    ])
    expect(platform.tokens).toEqual(new Set(['glpat-secret']))
    expect((await run(gitlab, 'merge')).stderr).toContain('was not merged')
    platform.state = 'merged'
    expect((await run(gitlab, 'merge')).code).toBe(0)
    expect(await client.table('products').count()).toBe(2)
    expect((await run(gitlab, 'delete')).code).toBe(0)
    expect(await names()).toEqual(['main'])
  })

  inLongForm('works without a platform, and shows no records if told so', async () => {
    const { client, cwd, base, run, read } = await createProject()
    const nowhere = await run(base, 'ensure')
    expect(nowhere.code).toBe(2)
    expect(nowhere.stderr).toContain('--git-branch')
    const branch = ['--git-branch', 'feat/prices']
    expect((await run(base, 'ensure', ...branch, '--json')).stdout).toContain('"created": true')
    await client.branch('feat-prices').table('products').update('tea', { name: 'Secret' })
    const shown = await run(base, 'comment', ...branch)
    expect(shown.stdout).toContain('name: Tea → Secret')
    await run(base, 'comment', ...branch, '--no-records', '--output', 'comment.md')
    const text = await read(path.join(cwd, 'comment.md'))
    expect(text).toContain('| `products` | 0 | 1 | 0 |')
    expect(text).not.toContain('Secret')
  })

  it('says what is missing: another event, a permission, a platform that does not answer', async () => {
    const { github, gitlab, run } = await createProject()
    const push = await run(github('push'), 'ensure')
    expect(push.code).toBe(2)
    expect(push.stderr).toContain('the event [push] is not about a pull request')
    const { CI_MERGE_REQUEST_IID: _iid, ...pipeline } = gitlab
    expect((await run(pipeline, 'ensure')).stderr).toContain('not about a merge request')
    await run(github('opened'), 'ensure')
    platform.status = 403
    const refused = await run(github('opened'), 'comment')
    expect(refused.code).toBe(1)
    expect(refused.stderr).toContain('pull-requests: write')
    expect(refused.stderr).not.toContain('ghs_secret')
    const silent = { ...github('opened'), GITHUB_API_URL: 'http://127.0.0.1:1' }
    expect((await run(silent, 'comment')).stderr).toContain('no answer from GitHub')
  })

  it('is what the GitHub Action makes, which passes values as variables only', async () => {
    const { cwd, github, names, output, read } = await createProject()
    // What the pull request proposes must not run.
    const trap = `#!/bin/sh\ntouch '${folder}/trapped'\n`
    const bin = path.join(cwd, 'node_modules', '.bin')
    await mkdir(bin, { recursive: true })
    for (const file of [path.join(cwd, 'trap'), path.join(bin, 'offshoot')]) {
      await writeFile(file, trap)
      await chmod(file, 0o755)
    }
    await writeFile(path.join(cwd, '.npmrc'), `script-shell=${cwd}/trap\n`)
    await writeFile(path.join(cwd, '.offshoot.json'), '{"workspace": "theirs", "database": "x"}')
    const action = parse(await readFile(path.join(ROOT, 'action.yml'), 'utf8'))
    const [step] = action.runs.steps
    expect(step.run).not.toContain('${{')
    for (const name of Object.keys(action.inputs)) {
      expect(JSON.stringify(step.env)).toContain(`\${{ inputs.${name} }}`)
    }
    const { OFFSHOOT_URL: url, OFFSHOOT_DATABASE: database, ...env } = github('opened')
    const inputs: Record<string, string> = {
      url,
      database,
      'api-key': apiKey,
      'github-token': 'ghs_secret',
      // Without a registry: the package of this repository.
      version: `file:${path.join(ROOT, 'packages', 'cli')}`,
    }
    const use = (command: string, args: string) => {
      const given = Object.entries(step.env as Record<string, string>).map(([name, text]) => {
        const input = /inputs\.([\w-]+)/.exec(text)?.[1] ?? ''
        const values: Record<string, string> = { ...inputs, command, args }
        return [name, values[input] ?? action.inputs[input].default]
      })
      return start('bash', ['-e', '-o', 'pipefail', '-c', step.run], {
        cwd,
        env: { ...env, ...Object.fromEntries(given) },
      })
    }
    expect(await use('ensure', '')).toMatchObject({ code: 0 })
    expect(await use('comment', '--no-records')).toMatchObject({ code: 0 })
    expect(platform.comments).toHaveLength(1)
    expect(await read(output)).toContain('branch=feat-prices')
    expect(await use('delete', '')).toMatchObject({ code: 0 })
    expect(await names()).toEqual(['main'])
    expect(existsSync(path.join(folder, 'trapped'))).toBe(false)
  })
})

function start(
  program: string,
  args: readonly string[],
  options: { cwd: string; env: Record<string, string> },
) {
  return new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve) => {
    const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] })
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text
    })
    child.once('close', (code) => resolve({ code, stdout, stderr }))
  })
}
