import { cp, mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import path from 'node:path'
import pg from 'pg'
import { type EmbeddedPostgres, startEmbedded } from '../../packages/embedded-postgres/src/index.js'
import { runOn } from './run-on.js'

/** A PostgreSQL server on a port of loopback, which can be a primary or a standby of another. */
export interface Member {
  readonly name: string
  readonly dataDir: string
  readonly port: number
  postgres: EmbeddedPostgres
}

export async function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number }
      server.close(() => resolve(port))
    })
  })
}

export async function startMember(
  name: string,
  options: { dataDir: string; port: number; settings?: Record<string, string> },
): Promise<Member> {
  const { dataDir, port, settings = {} } = options
  await mkdir(dataDir, { recursive: true })
  const postgres = await startEmbedded({
    dataDir,
    log: () => undefined,
    settings: {
      listen_addresses: '127.0.0.1',
      port: String(port),
      wal_level: 'replica',
      wal_keep_size: '256MB',
      ...settings,
    },
  })
  return { name, dataDir, port, postgres }
}

/** Runs statements on a member. */
export async function onMember<Row extends pg.QueryResultRow>(
  member: Member,
  ...statements: string[]
): Promise<Row[]> {
  return runOn<Row>({ ...member.postgres.connection, ssl: false }, statements)
}

/** Copies the cluster of a running primary to a data folder, and starts a standby there. */
export async function startStandby(
  name: string,
  { primary, dataDir, port }: { primary: Member; dataDir: string; port: number },
): Promise<Member> {
  const source = path.join(primary.dataDir, 'postgres')
  const target = path.join(dataDir, 'postgres')
  await mkdir(dataDir, { recursive: true })
  const { user, password } = primary.postgres.connection
  const client = new pg.Client({ ...primary.postgres.connection, ssl: false })
  await client.connect()
  try {
    await client.query(`select pg_backup_start('standby', fast => true)`)
    await copyCluster(source, target)
    const { rows } = await client.query(
      'select labelfile, spcmapfile from pg_backup_stop(wait_for_archive => false)',
    )
    await writeFile(path.join(target, 'backup_label'), rows[0].labelfile, { mode: 0o600 })
  } finally {
    await client.end()
  }
  await cp(path.join(primary.dataDir, 'postgres-password'), path.join(dataDir, 'postgres-password'))
  await writeFile(path.join(target, 'standby.signal'), '')
  const info = `host=127.0.0.1 port=${primary.port} user=${user} password=${password} application_name=${name}`
  return startMember(name, {
    dataDir,
    port,
    settings: { primary_conninfo: info, hot_standby: 'on' },
  })
}

/** Files may change and vanish while they are copied; the log of the backup corrects that. */
async function copyCluster(source: string, target: string): Promise<void> {
  await rm(target, { recursive: true, force: true })
  await mkdir(target, { recursive: true, mode: 0o700 })
  for (const entry of await readdir(source, { withFileTypes: true, recursive: true })) {
    const relative = path.relative(source, path.join(entry.parentPath, entry.name))
    if (relative === 'postmaster.pid' || relative === 'postmaster.opts') continue
    const to = path.join(target, relative)
    if (entry.isDirectory()) await mkdir(to, { recursive: true, mode: 0o700 })
    else if (!relative.startsWith('pg_wal/') && !relative.startsWith('pg_replslot/')) {
      await cp(path.join(source, relative), to).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error
      })
    }
  }
}
