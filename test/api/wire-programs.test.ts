import { execFile } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { LONG } from '../support/random.js'
import { createTestService, type TestService } from '../support/service.js'
import { createTables } from '../support/tables.js'
import { openWire, type WireService } from '../support/wire-clients.js'

/*
 * Programs that use real clients of PostgreSQL and their tools for migrations. Their packages are installed in a temporary
 * folder, so they run with `npm run test:long` only. A runtime or a registry that is missing is reported.
 */

const run = promisify(execFile)
const SOURCES = fileURLToPath(new URL('../support/clients/', import.meta.url))
const INSTALL_MS_MAX = 600_000

/** Installs packages in a folder. Returns the command that runs a source there. */
type Install = (options: {
  folder: string
  packages: readonly string[]
}) => Promise<readonly [program: string, ...args: string[]]>

const python: Install = async ({ folder, packages }) => {
  await run('python3', ['-m', 'venv', folder])
  await run(path.join(folder, 'bin', 'pip'), ['install', '-q', ...packages])
  return [path.join(folder, 'bin', 'python')]
}
const node: Install = async ({ folder, packages }) => {
  const options = ['--no-audit', '--no-fund', '--ignore-scripts']
  await run('npm', ['install', ...options, '--prefix', folder, ...packages])
  return [process.execPath]
}
const go: Install = async ({ folder, packages }) => {
  await run('go', ['mod', 'init', 'shop'], { cwd: folder })
  await run('go', ['get', ...packages], { cwd: folder })
  return ['go', 'run']
}
const java: Install = async ({ folder, packages }) => {
  const [name = ''] = packages
  await run('mvn', ['-q', 'dependency:copy', `-Dartifact=${name}`, `-DoutputDirectory=${folder}`])
  return ['java', '-cp', path.join(folder, '*')]
}

const ruby: Install = async ({ packages }) => {
  // Gems of clients are built on the machine, so the packages are those of Debian.
  await run('apt-get', ['install', '--yes', '--no-install-recommends', ...packages])
  return ['ruby']
}

interface Program {
  readonly name: string
  readonly source: string
  readonly install: Install
  readonly packages: readonly string[]
}

/** The versions are those that the guide names. */
const PROGRAMS: readonly Program[] = [
  {
    name: 'Django',
    source: 'django_shop.py',
    install: python,
    packages: ['django==5.2.19', 'psycopg[binary]==3.3.9'],
  },
  {
    name: 'Alembic and SQLAlchemy',
    source: 'alembic_shop.py',
    install: python,
    packages: ['alembic==1.20.1', 'sqlalchemy==2.1.8', 'psycopg[binary]==3.3.9'],
  },
  {
    name: 'Knex',
    source: 'knex-shop.mjs',
    install: node,
    packages: ['knex@3.3.0', 'pg@8.23.1'],
  },
  {
    name: 'TypeORM',
    source: 'typeorm-shop.mjs',
    install: node,
    packages: ['typeorm@1.1.1', 'pg@8.23.1', 'reflect-metadata@0.2.2'],
  },
  {
    name: 'Drizzle',
    source: 'drizzle-shop.mjs',
    install: node,
    packages: ['drizzle-orm@0.45.4', 'drizzle-kit@0.31.11', 'pg@8.23.1'],
  },
  {
    name: 'Prisma',
    source: 'prisma-shop.mjs',
    install: node,
    packages: ['prisma@6.19.0', '@prisma/client@6.19.0', '@prisma/adapter-pg@6.19.0', 'pg@8.23.1'],
  },
  {
    name: 'pgx',
    source: 'pgx_shop.go',
    install: go,
    packages: ['github.com/jackc/pgx/v5@v5.12.0'],
  },
  {
    name: 'GORM',
    source: 'gorm_shop.go',
    install: go,
    packages: ['gorm.io/gorm@v1.31.2', 'gorm.io/driver/postgres@v1.6.3'],
  },
  {
    name: 'JDBC',
    source: 'JdbcShop.java',
    install: java,
    packages: ['org.postgresql:postgresql:42.7.4'],
  },
  {
    name: 'Active Record',
    source: 'active_record_shop.rb',
    install: ruby,
    packages: ['ruby', 'ruby-activerecord', 'ruby-pg'],
  },
]

describe.skipIf(!LONG)('a program of PostgreSQL', () => {
  let service: TestService
  let wire: WireService
  let folder: string

  beforeAll(async () => {
    service = await createTestService()
    wire = await openWire(service)
    folder = await mkdtemp(path.join(tmpdir(), 'offshoot-clients-'))
  })
  afterAll(async () => {
    await wire.close()
    await service.close()
    await rm(folder, { recursive: true, force: true })
  })

  it.for(PROGRAMS)(
    '$name migrates a shop and uses it',
    { timeout: INSTALL_MS_MAX },
    async ({ name, source, install, packages }, context) => {
      const home = path.join(folder, source)
      await mkdir(home)
      await copyFile(path.join(SOURCES, source), path.join(home, source))
      const [program, ...args] = await install({ folder: home, packages }).catch((error: Error) =>
        context.skip(`${name} cannot be installed: ${error.message.split('\n')[0]}`),
      )
      const database = source.replace(/\W/g, '-').toLowerCase()
      await createTables(service, database, {})
      const place = `${database}:main`
      const { stdout } = await run(program, [...args, source], {
        cwd: home,
        env: {
          ...process.env,
          PGHOST: '127.0.0.1',
          PGPORT: String(wire.port),
          PGUSER: service.workspaceId,
          PGPASSWORD: service.key,
          PGDATABASE: place,
          DATABASE_URL: wire.url(place),
        },
      })
      expect(stdout).toContain('done')
    },
  )
})
