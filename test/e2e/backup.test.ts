import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, createWriteStream } from 'node:fs'
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { findRunning } from '@offshoot/embedded-postgres'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import { openS3Store } from '../support/file-store.js'
import {
  type Banner,
  endAll,
  type OffshootProcess,
  PROGRAM,
  postgresProcesses,
  request,
  runOffshoot,
  startOffshoot,
  until,
} from '../support/process.js'

let folder: string
let source: string
let service: OffshootProcess
let banner: Banner
const dataDirs: string[] = []

function newDataDir(name: string): string {
  const dataDir = path.join(folder, name)
  dataDirs.push(dataDir)
  return dataDir
}

beforeAll(async () => {
  folder = await makeDataFolder('backup')
  source = newDataDir('source')
  service = startOffshoot(source, { env: { OFFSHOOT_BACKGROUND_PAUSE_MS: '200' } })
  banner = await service.ready()
  const call = (method: string, url: string, body: unknown) => {
    return request(banner.address, method, url, { key: banner.key, body })
  }
  const shop = `/${banner.workspaceId}.local/db/shop:main`
  await call('PUT', `/workspaces/${banner.workspaceId}/dbs/shop`, { region: 'local' })
  const operations = [
    { addTable: { table: 'people' } },
    { addColumn: { table: 'people', column: { name: 'photo', type: 'file' } } },
  ]
  await call('POST', `${shop}/schema/apply`, { edits: { operations } })
  const photo = { name: 'a.txt', mediaType: 'text/plain', base64Content: 'aGVsbG8=' }
  const { status } = await call('PUT', `${shop}/tables/people/data/one`, { photo })
  expect(status).toBe(201)
})
afterAll(async () => {
  await service?.end('SIGTERM')
  await endAll(dataDirs)
  await rm(folder, { recursive: true, force: true })
})

function run(dataDir: string, ...args: string[]) {
  return runAs({ OFFSHOOT_DATA_DIR: dataDir }, args)
}

async function runAs(env: Record<string, string>, args: string[]) {
  const command = runOffshoot(args, { cwd: folder, env })
  const { code } = await command.ended
  return { code, stdout: command.stdout, stderr: withoutProgress(command.stderr) }
}

/** Removes the progress lines, which are printed every few seconds. */
function withoutProgress(stderr: string): string {
  return stderr.replaceAll(/^offshoot (backup|restore): .* so far\n/gm, '')
}

/** Runs a command with standard input or output redirected to a file. */
async function runWith(
  dataDir: string,
  args: string[],
  files: { input?: string; output?: string },
): Promise<number | null> {
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    env: { PATH: process.env.PATH, OFFSHOOT_DATA_DIR: dataDir },
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  const ended = once(child, 'close')
  const { input, output } = files
  await Promise.all([
    input === undefined ? child.stdin.end() : pipeline(createReadStream(input), child.stdin),
    output === undefined ? undefined : pipeline(child.stdout, createWriteStream(output)),
  ])
  return (await ended)[0]
}

async function expectWhole(
  dataDir: string,
  options: { env?: Record<string, string>; meanwhile?(): Promise<void> } = {},
): Promise<void> {
  const { env = {}, meanwhile } = options
  const restored = startOffshoot(dataDir, { env })
  const { address, workspaceId, text } = await restored.ready()
  expect(workspaceId).toBe(banner.workspaceId)
  expect(text).not.toContain('shown this once')
  const url = `/${workspaceId}.local/db/shop:main/tables/people/data/one?columns=photo.base64Content`
  const { status, body } = await request(address, 'GET', url, { key: banner.key })
  expect(status).toBe(200)
  expect(body.photo.base64Content).toBe('aGVsbG8=')
  await meanwhile?.()
  await restored.end('SIGTERM')
}

/** Returns the names of the databases of a service. */
async function listDatabases({ address, workspaceId }: Banner): Promise<string[]> {
  const { body } = await request(address, 'GET', `/workspaces/${workspaceId}/dbs`, {
    key: banner.key,
  })
  return body.databases.map(({ name }: { name: string }) => name)
}

/** Lists the tables of rows of a running instance, by schema. */
async function listHeaps(dataDir: string): Promise<Map<string, number>> {
  const connection = await findRunning(dataDir)
  if (connection === undefined) throw new Error('the instance must be running')
  const client = new pg.Client(connection)
  await client.connect()
  try {
    const { rows } = await client.query(`
      select n.nspname, count(t.oid)::integer as count
      from pg_namespace n
      left join pg_class t on t.relnamespace = n.oid and t.relname like 'heap_%' and t.relkind = 'r'
        and substring(t.relname from '[0-9]+$')::bigint not in (
          select heap_id from offshoot_work.spares
        )
      where n.nspname like 'offshoot_db_%'
      group by n.nspname`)
    return new Map(rows.map(({ nspname, count }) => [nspname, count]))
  } finally {
    await client.end()
  }
}

describe('offshoot backup and offshoot restore', () => {
  /** The backup without a name. It is restored below, with its files in S3. */
  let unnamed: string

  it('keep a backup without a name in the data folder, for its owner only', async () => {
    const before = await readdir(folder)
    const made = await run(source, 'backup')
    expect(made.code).toBe(0)
    const [, file = ''] = /^offshoot backup: writing to (.*)\n/.exec(made.stderr) ?? []
    expect(path.dirname(file)).toBe(path.join(source, 'backups'))
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect((await stat(path.dirname(file))).mode & 0o777).toBe(0o700)
    expect(await readFile(path.join(source, 'backups', '.gitignore'), 'utf8')).toBe('*\n')
    // The working directory, which may be a repository, is unchanged.
    expect(await readdir(folder)).toEqual(before)
    unnamed = file
  })

  it('move an instance that runs to another folder', async () => {
    const made = await run(source, 'backup', '--output', 'one.tar.gz')
    expect(made).toEqual({
      code: 0,
      stdout: '',
      stderr: expect.stringMatching(/^offshoot backup: done: \d+ tables with \d+ rows, 1 files/),
    })
    expect((await stat(path.join(folder, 'one.tar.gz'))).mode & 0o777).toBe(0o600)
    const target = newDataDir('target')
    const restored = await run(target, 'restore', 'one.tar.gz')
    expect(restored).toMatchObject({ code: 0, stdout: '' })
    expect(restored.stderr).toBe(made.stderr.replace('backup', 'restore'))
    expect(await postgresProcesses(target)).toEqual([])
    await expectWhole(target)
    // A restore into a data folder that is not empty is refused.
    const again = await run(target, 'restore', 'one.tar.gz')
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('is not empty') })
  })

  it('read and write standard streams, also of an instance that is stopped', async () => {
    const target = newDataDir('piped')
    const file = path.join(folder, 'piped.tar.gz')
    expect(await runWith(source, ['backup', '--output', '-'], { output: file })).toBe(0)
    expect(await runWith(target, ['restore', '-'], { input: file })).toBe(0)
    const plain = await run(target, 'backup', '--output', 'plain.tar')
    expect(plain).toMatchObject({ code: 0 })
    expect(await postgresProcesses(target)).toEqual([])
    const text = await readFile(path.join(folder, 'plain.tar'), 'latin1')
    expect(text.startsWith('backup.json')).toBe(true)
    expect(text).not.toContain(banner.key)
  })

  it('keep files in S3 where the settings of the service say so', async () => {
    const store = await openS3Store()
    const target = newDataDir('s3')
    const env = { OFFSHOOT_DATA_DIR: target, ...store.settings }
    expect(await runAs(env, ['restore', unnamed])).toMatchObject({ code: 0 })
    await expectWhole(target, {
      env: store.settings,
      async meanwhile() {
        const made = await runAs(env, ['backup', '--output', 'from-s3.tar'])
        expect(made).toMatchObject({ code: 0, stderr: expect.stringContaining(', 1 files') })
      },
    })
    const text = await readFile(path.join(folder, 'from-s3.tar'), 'latin1')
    expect(text).toContain('hello')
    expect(await readdir(path.join(target, 'files'))).toEqual(['incoming'])
    await store.close()
  })

  it('leave nothing of an archive that is cut short, and the place can be used again', async () => {
    const whole = await readFile(path.join(folder, 'one.tar.gz'))
    const file = path.join(folder, 'cut.tar.gz')
    await writeFile(file, whole.subarray(0, -100))
    const target = newDataDir('cut')
    const refused = await run(target, 'restore', 'cut.tar.gz')
    expect(refused.code).toBe(1)
    expect(refused.stderr).toMatch(
      /^offshoot restore: the archive cannot be used: it is .*truncated\n$/,
    )
    await writeFile(file, whole)
    expect(await run(target, 'restore', 'cut.tar.gz')).toMatchObject({ code: 0 })
  })

  it('say what is wrong, and do nothing', async () => {
    const nowhere = newDataDir('nowhere')
    const cases: [string, string[], number, string][] = [
      [nowhere, ['backup', '--output', 'never.tar'], 1, 'there is no instance in'],
      [source, ['backup', '--output', 'one.tar.gz'], 1, 'already exists'],
      [
        source,
        ['backup', '--output', 'no/such/folder/a.tar'],
        1,
        '[no/such/folder/a.tar] cannot be written: no such file or folder',
      ],
      [source, ['backup', '--outptu', 'a.tar'], 2, "unknown option '--outptu'"],
      [source, ['restore', 'one.tar.gz'], 1, 'is in use by another offshoot'],
      [
        nowhere,
        ['restore', 'missing.tar'],
        1,
        '[missing.tar] cannot be read: no such file or folder',
      ],
      [nowhere, ['restore', '.'], 1, '[.] cannot be read: it is a folder, not a file'],
      [nowhere, ['restore'], 2, 'expected one FILE'],
    ]
    for (const [dataDir, args, code, message] of cases) {
      const ended = await run(dataDir, ...args)
      expect(ended, args.join(' ')).toMatchObject({ code, stdout: '' })
      expect(ended.stderr, args.join(' ')).toContain(message)
      expect(ended.stderr).not.toMatch(/\n\s+at /)
    }
    await expect(stat(nowhere)).rejects.toThrow('ENOENT')
    expect((await readdir(folder)).filter((name) => /never|\.part$/.test(name))).toEqual([])
    expect(await run(source, 'backup', '--help')).toMatchObject({ code: 0, stderr: '' })
    expect(await run(source, 'restore', '--help')).toMatchObject({ code: 0, stderr: '' })
  })
})

describe('offshoot backup and offshoot restore, of a database', () => {
  const photoOf = async (address: string, database: string) => {
    const path = `/${banner.workspaceId}.local/db/${database}:main/tables/people/data/one`
    const url = `${path}?columns=photo.base64Content`
    const { body } = await request(address, 'GET', url, { key: banner.key })
    return body.photo?.base64Content
  }

  it('copy it in an instance that runs, and move it to one that is stopped', async () => {
    const made = await run(source, 'backup', '--database', 'shop')
    expect(made.code).toBe(0)
    const [, file = ''] = /^offshoot backup: writing to (.*)\n/.exec(made.stderr) ?? []
    expect(path.basename(file)).toMatch(/^shop-\d{8}T\d{6}Z\.tar\.gz$/)
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    const done = /^offshoot backup: (done: \d+ tables with \d+ rows, 1 files.*)\n$/m.exec(
      made.stderr,
    )
    const copied = await run(source, 'restore', '--database', 'shop', '--as', 'copy', file)
    expect(copied).toEqual({ code: 0, stdout: '', stderr: `offshoot restore: ${done?.[1]}\n` })
    expect(await listDatabases(banner)).toEqual(['copy', 'shop'])
    expect(await photoOf(banner.address, 'copy')).toBe('aGVsbG8=')

    // A backup of the instance has the copy too; there the original can be replaced.
    const target = newDataDir('with-copy')
    await run(source, 'backup', '--output', 'with-copy.tar')
    expect(await run(target, 'restore', 'with-copy.tar')).toMatchObject({ code: 0 })
    expect(await run(target, 'restore', '--database', 'shop', '--as', 'late', file)).toMatchObject({
      code: 0,
    })
    expect(await postgresProcesses(target)).toEqual([])
    const restored = startOffshoot(target)
    const { address, workspaceId } = await restored.ready()
    expect(await listDatabases({ ...banner, address, workspaceId })).toEqual([
      'copy',
      'late',
      'shop',
    ])
    expect(await photoOf(address, 'late')).toBe('aGVsbG8=')
    await restored.end('SIGTERM')
    await request(banner.address, 'DELETE', `/workspaces/${banner.workspaceId}/dbs/copy`, {
      key: banner.key,
    })
  })

  it('leave nothing behind when they are killed', async () => {
    await until(async () => (await listHeaps(source)).size === 1)
    expect(await run(source, 'backup', '--db', 'shop', '-o', 'kill.tar')).toMatchObject({
      code: 0,
    })
    const archive = await readFile(path.join(folder, 'kill.tar'))
    const child = spawn(
      process.execPath,
      [PROGRAM, 'restore', '--database', 'shop', '--as', 'killed', '-'],
      {
        env: { PATH: process.env.PATH, OFFSHOOT_DATA_DIR: source },
        stdio: ['pipe', 'ignore', 'ignore'],
      },
    )
    const ended = once(child, 'close')
    child.stdin.on('error', () => undefined)
    // Everything but the end, which the command waits for.
    child.stdin.write(archive.subarray(0, archive.lastIndexOf('manifest.json')))
    await until(async () => {
      const heaps = await listHeaps(source)
      return heaps.size === 2 && [...heaps.values()].every((count) => count > 0)
    })
    expect(await listDatabases(banner)).toEqual(['shop'])
    child.kill('SIGKILL')
    await ended
    await until(async () => (await listHeaps(source)).size === 1)
    expect(await listDatabases(banner)).toEqual(['shop'])
    expect(await photoOf(banner.address, 'shop')).toBe('aGVsbG8=')
    const again = await run(source, 'restore', '--database', 'shop', '--as', 'killed', 'kill.tar')
    expect(again).toMatchObject({ code: 0 })
    expect(await photoOf(banner.address, 'killed')).toBe('aGVsbG8=')
  })

  it('say what is wrong, and do nothing', async () => {
    await run(source, 'backup', '--output', 'all.tar')
    await run(source, 'backup', '--database', 'shop', '--output', 'shop.tar')
    const cases: [string[], number, string][] = [
      [['backup', '--database', 'none', '-o', 'never.tar'], 1, 'there is no database [none]'],
      [['backup', '--database', '../a'], 1, '[../a] is not a valid name of a database'],
      [['backup', '--workspace', 'a', '-o', 'never.tar'], 2, "'--workspace' needs '--database'"],
      [['restore', '--as', 'a', 'shop.tar'], 2, "'--as' needs '--database'"],
      [['restore', '--database', '', 'shop.tar'], 2, "'--database' needs a name"],
      [['restore', '--database', 'shop', 'shop.tar'], 1, 'has a database [shop] already'],
      [['restore', '--database', 'shop', '--as', 'a', 'all.tar'], 1, 'has a whole instance'],
      [['restore', '--database', 'other', 'shop.tar'], 1, 'has the database [shop], and not'],
    ]
    for (const [args, code, message] of cases) {
      const ended = await run(source, ...args)
      expect(ended, args.join(' ')).toMatchObject({ code, stdout: '' })
      expect(ended.stderr, args.join(' ')).toContain(message)
      expect(ended.stderr).not.toMatch(/\n\s+at /)
    }
    expect((await readdir(folder)).filter((name) => /never|\.part$/.test(name))).toEqual([])
    const empty = newDataDir('no-instance')
    const refused = await run(empty, 'restore', '--database', 'shop', 'shop.tar')
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('no instance in') })
    await expect(stat(empty)).rejects.toThrow('ENOENT')
  })
})
