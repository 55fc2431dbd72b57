import type { Column } from '@offshoot/contract/schema'
import { createKey, createUser, createWorkspace } from './people.js'
import type { CallableService } from './service.js'
import { addTables, expectOk } from './tables.js'

/** A column of every type, with the names of the documentation examples. */
export const TENANT_TABLES: Readonly<Record<string, readonly Column[]>> = {
  teams: [
    { name: 'name', type: 'string' },
    { name: 'labels', type: 'multiple' },
  ],
  users: [
    { name: 'email', type: 'email', unique: true },
    { name: 'name', type: 'string' },
    { name: 'age', type: 'int' },
    { name: 'height', type: 'float' },
    { name: 'active', type: 'bool', notNull: true, defaultValue: 'true' },
    { name: 'bio', type: 'text' },
    { name: 'tags', type: 'multiple' },
    { name: 'team', type: 'link', link: { table: 'teams' } },
    {
      name: 'address',
      type: 'object',
      columns: [
        { name: 'city', type: 'string' },
        { name: 'place', type: 'object', columns: [{ name: 'north', type: 'float' }] },
      ],
    },
    { name: 'born', type: 'datetime' },
    { name: 'embedding', type: 'vector', vector: { dimension: 3 } },
    { name: 'photo', type: 'file' },
    { name: 'papers', type: 'file[]' },
    { name: 'extra', type: 'json' },
  ],
}

/** A user with a workspace that contains resources of every kind. */
export interface Tenant {
  readonly userId: string
  readonly email: string
  readonly key: string
  readonly workspaceId: string
  /** Path form of the address of the workspace. */
  readonly workspace: string
  readonly invite: { readonly inviteId: string; readonly key: string }
  /** Ids of branches and migrations, and links to files. They are secret. */
  readonly branchIds: readonly string[]
  readonly migrationId: string
  readonly links: readonly string[]
}

/**
 * Creates a tenant. Names and ids are the same for all tenants. All other values contain `mark`,
 * which reveals where a value came from.
 */
export async function createTenant(
  service: CallableService,
  options: { userName: string; mark: string },
): Promise<Tenant> {
  const { mark } = options
  const user = await createUser(service, options.userName)
  const { id: workspaceId } = await createWorkspace(service, 'Home', user.key)
  const workspace = `/${workspaceId}.local`
  const call = async (method: string, path: string, body?: unknown) =>
    expectOk(await service.call(method, path, { body, key: user.key })).body
  const put = (path: string, body: unknown) => call('PUT', path, body)
  const home = `/workspaces/${workspaceId}`

  await createKey(service, 'ci', { key: user.key, fields: { scope: { access: 'read' } } })
  await put('/user', { email: user.email, fullname: mark, image: mark })
  const invite = await call('POST', `${home}/invites`, {
    email: `invited.${options.userName}@example.com`,
    role: 'maintainer',
  })
  await put(`${home}/dbs/shop`, {
    region: 'local',
    branchName: 'main',
    ui: { color: mark },
    metadata: { repository: mark, stage: mark, labels: [mark] },
  })
  await put(`${home}/dbs/shop/github`, { owner: mark, repo: mark })

  const branch = (name: string) => `${workspace}/db/shop:${name}`
  const { migrationID: migrationId } = await call('POST', `${branch('main')}/schema/update`, {
    operations: addTables(TENANT_TABLES),
  })
  const records = `${branch('main')}/tables`
  await call('POST', `${records}/teams/bulk`, {
    records: ['core', 'web'].map((id) => ({ id, name: `${id} ${mark}`, labels: [mark] })),
  })
  await call('POST', `${records}/users/bulk`, {
    records: ['ada', 'grace', 'alan', 'edsger'].map((id, position) =>
      userRecord(id, position, mark),
    ),
  })
  await put(`${branch('dev')}`, { from: 'main', metadata: { stage: mark } })
  await call('PATCH', `${branch('dev')}/tables/users/data/ada`, { name: `Ada of dev ${mark}` })
  await call('DELETE', `${branch('dev')}/tables/users/data/alan`)
  await put(`${branch('preview-1')}`, { from: 'dev' })
  await call('PATCH', `${branch('main')}/tables/users/data/grace`, { bio: `later ${mark}` })
  await call('POST', `${workspace}/dbs/shop/gitBranches`, {
    gitBranch: 'feat/login',
    serviceBranch: 'dev',
  })
  await put(`${workspace}/dbs/shop/branchRules`, {
    rules: [{ pattern: 'preview-*', from: 'dev', ttl: 86_400 }],
  })
  const { branches } = await call('GET', `${workspace}/dbs/shop`)
  const links = ['url', 'signedUrl', 'uploadUrl']
  const query = { columns: links.flatMap((link) => [`photo.${link}`, `papers.${link}`]) }
  const found = await call('POST', `${records}/users/query`, query)
  return {
    userId: user.id,
    email: user.email,
    key: user.key,
    workspaceId,
    workspace,
    invite: { inviteId: invite.inviteId, key: invite.key },
    branchIds: branches.map(({ id }: { id: string }) => id),
    migrationId,
    links: [...JSON.stringify(found).matchAll(/"https?:[^"]*?(\/file\/[^"]+)"/g)].map(
      ([, link]) => link ?? '',
    ),
  }
}

export function userRecord(id: string, position: number, mark: string) {
  const file = (name: string) => ({
    name,
    mediaType: 'text/plain',
    base64Content: Buffer.from(`${id} ${name} ${mark}`).toString('base64'),
  })
  return {
    id,
    email: `${id}.${mark}@example.com`,
    name: `${id} ${mark}`,
    age: 30 + position,
    height: 1.5 + position / 10,
    active: position % 2 === 0,
    bio: mark,
    tags: ['person', mark],
    team: position % 2 === 0 ? 'core' : 'web',
    address: { city: mark, place: { north: 51.5 } },
    born: '1912-06-23T00:00:00.000Z',
    embedding: [1, 0.5, position],
    photo: file('photo.txt'),
    papers: [{ id: 'paper', ...file('paper.txt') }],
    extra: { mark, deep: [{ mark }] },
  }
}
