import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import {
  addMember,
  createDatabase,
  createKey,
  createUser,
  createWorkspace,
  type TestUser,
} from '../support/people.js'
import { createTestService, REGIONS, type TestService } from '../support/service.js'

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const workspaceUrl = (id: string) => `/workspaces/${id}`

describe('POST workspaces', () => {
  const post = (body: unknown) => service.call('POST', '/workspaces', { body })

  it('creates a workspace whose only member and owner is the caller', async () => {
    const { status, body } = await post({ name: 'Acme Corp' })
    expect(status).toBe(201)
    expect(body).toEqual({
      id: expect.stringMatching(/^acme-corp-[a-z0-9]{6}$/),
      name: 'Acme Corp',
      slug: 'acme-corp',
      memberCount: 1,
      plan: 'free',
    })
    const { body: me } = await service.call('GET', '/user')
    const members = await service.call('GET', `${workspaceUrl(body.id)}/members`)
    expect(members.body).toEqual({
      members: [{ userId: me.id, fullname: me.fullname, email: me.email, role: 'owner' }],
      invites: [],
    })
  })

  it.each([
    ['Ünïcode Näme', 'unicode-name'],
    ['  --weird__ name!! ', 'weird-name'],
    ['機能', 'workspace'],
    ['x', 'workspace'],
    [`${'long '.repeat(100)}`, 'long-long-long-long-long-long-long-long-long-long'],
  ])('makes a slug of the name %j', async (name, slug) => {
    const { status, body } = await post({ name })
    expect(status).toBe(201)
    expect(body).toMatchObject({ name, slug })
    expect(body.id).toMatch(/^[a-z0-9][a-z0-9-]+-[a-z0-9]{6}$/)
    expect((await service.call('GET', workspaceUrl(body.id))).status).toBe(200)
  })

  it('takes a given slug as it is, and its lower case for the id, which is part of a host', async () => {
    const { body } = await post({ name: 'Given', slug: 'Given_Slug~1' })
    expect(body.slug).toBe('Given_Slug~1')
    expect(body.id).toMatch(/^given_slug~1-[a-z0-9]{6}$/)
  })

  it('lets workspaces share a name', async () => {
    const [one, two] = [
      await createWorkspace(service, 'Twin'),
      await createWorkspace(service, 'Twin'),
    ]
    expect(one.id).not.toBe(two.id)
  })

  it.each([
    ['no body', undefined, 'body: must be of type object'],
    ['no name', {}, '[name]: is required'],
    ['an empty name', { name: '' }, '[name]'],
    ['a name of 2049 characters', { name: 'x'.repeat(2049) }, '[name]'],
    ['a NUL', { name: 'a\0' }, '[name]: must not contain a NUL'],
    ['a slug with a dot', { name: 'x', slug: 'a.b' }, '[slug]'],
    ['a slug of one character', { name: 'x', slug: 'a' }, '[slug]'],
    ['a slug of 51 characters', { name: 'x', slug: 'a'.repeat(51) }, '[slug]'],
    ['a slug that starts with a hyphen', { name: 'x', slug: '-ab' }, '[slug]'],
    ['an id', { name: 'x', id: 'mine-aaaaaa' }, '[id]: is not known'],
  ])('refuses %s with 400', async (_name, body, message) => {
    const answer = await post(body)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
  })

  it('stops at the limit, and not one earlier', async () => {
    const limited = await createTestService({ limits: { workspacesPerUserMax: 2 } })
    const body = { name: 'Next' }
    expect((await limited.call('POST', '/workspaces', { body })).status).toBe(201)
    const answer = await limited.call('POST', '/workspaces', { body })
    expect(answer).toMatchObject({ status: 422, body: { code: 'limit_reached' } })
    expect(answer.body.message).toContain('at most 2 workspaces')
    await limited.close()
  })
})

describe('GET workspaces', () => {
  it('lists the workspaces of the caller with the role in each', async () => {
    const user = await createUser(service, 'lister')
    await addMember(service, user)
    const own = await createWorkspace(service, 'Own', user.key)
    const { status, body } = await service.call('GET', '/workspaces', { key: user.key })
    expect(status).toBe(200)
    expect(body.workspaces).toEqual([
      {
        id: service.workspaceId,
        unique_id: service.workspaceId.slice(-6),
        name: 'Home',
        slug: 'home',
        role: 'maintainer',
        plan: 'free',
      },
      {
        id: own.id,
        unique_id: own.id.slice(-6),
        name: 'Own',
        slug: 'own',
        role: 'owner',
        plan: 'free',
      },
    ])
  })
})

describe('GET, PUT and DELETE workspace', () => {
  it('reads a workspace', async () => {
    const workspace = await createWorkspace(service, 'Read')
    const { status, body } = await service.call('GET', workspaceUrl(workspace.id))
    expect(status).toBe(200)
    expect(body).toEqual({ ...workspace, memberCount: 1, plan: 'free' })
  })

  it('renames a workspace and keeps the id, because addresses contain it', async () => {
    const { id } = await createWorkspace(service, 'Before')
    const url = workspaceUrl(id)
    const answer = await service.call('PUT', url, { body: { name: 'After' } })
    expect(answer).toMatchObject({ status: 200, body: { id, name: 'After', slug: 'before' } })
    const both = await service.call('PUT', url, { body: { name: 'After', slug: 'after' } })
    expect(both.body).toMatchObject({ id, name: 'After', slug: 'after' })
    expect((await service.call('GET', url)).body).toEqual(both.body)
  })

  it.each([[undefined], [{}], [{ slug: 'only' }], [{ name: '' }], [{ name: 'x', plan: 'pro' }]])(
    'refuses the change %j with 400',
    async (body) => {
      const url = workspaceUrl(service.workspaceId)
      expect((await service.call('PUT', url, { body })).status).toBe(400)
      expect((await service.call('GET', url)).body.name).toBe('Home')
    },
  )

  it('deletes a workspace with everything in it', async () => {
    const { id } = await createWorkspace(service, 'Doomed')
    await createDatabase(service, 'shop', { workspaceId: id })
    await service.call('PUT', `/${id}.local/db/shop:dev`)
    expect(await service.call('DELETE', workspaceUrl(id))).toMatchObject({ status: 204, body: '' })
    expect((await service.call('DELETE', workspaceUrl(id))).status).toBe(404)
    expect((await service.call('GET', workspaceUrl(id))).status).toBe(404)
    expect((await service.call('GET', `/${id}.local/db/shop:main`)).status).toBe(404)
    const list = await service.call('GET', '/workspaces')
    expect(JSON.stringify(list.body)).not.toContain(id)
    const rows = await service.database.query(sql`
      select from offshoot.databases where workspace_id = ${id}`)
    expect(rows).toHaveLength(0)
  })

  it.each(['GET', 'PUT', 'DELETE'])('answers %s of an unknown one with 404', async (method) => {
    const body = method === 'PUT' ? { name: 'x' } : undefined
    const answer = await service.call(method, workspaceUrl('nowhere-aaaaaa'), { body })
    expect(answer.status).toBe(404)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      message: 'workspace [nowhere-aaaaaa] not found',
      code: 'workspace_not_found',
    })
  })
})

describe('settings and regions', () => {
  const url = (part: string) => `${workspaceUrl(service.workspaceId)}/${part}`

  it('has settings that clients may read and try to change', async () => {
    const settings = { dedicatedClusters: false }
    const get = await service.call('GET', url('settings'))
    expect(get).toMatchObject({ status: 200 })
    expect(get.body).toEqual(settings)
    for (const body of [{ postgresEnabled: true }, { dedicatedClusters: true }, {}]) {
      const answer = await service.call('PATCH', url('settings'), { body })
      expect(answer.status).toBe(200)
      expect(answer.body).toEqual(settings)
    }
    const unknown = await service.call('PATCH', url('settings'), { body: { plan: 'pro' } })
    expect(unknown).toMatchObject({ status: 400 })
  })

  it('lists the regions of the configuration', async () => {
    const answer = await service.call('GET', url('regions'))
    expect(answer.status).toBe(200)
    expect(answer.body).toEqual({ regions: REGIONS })
  })

  it.each(['settings', 'regions', 'members', 'dbs'])(
    'answers the %s of an unknown workspace with 404',
    async (part) => {
      const answer = await service.call('GET', `${workspaceUrl('nowhere-aaaaaa')}/${part}`)
      expect(answer).toMatchObject({ status: 404, body: { code: 'workspace_not_found' } })
    },
  )
})

describe('members', () => {
  let owner: TestUser
  let maintainer: TestUser
  let id: string
  let url: string

  const role = async (userId: string) => {
    const { body } = await service.call('GET', `${url}/members`, { key: owner.key })
    return body.members.find((member: { userId: string }) => member.userId === userId)?.role
  }
  const join = async (user: TestUser, as: 'owner' | 'maintainer') => {
    const body = { email: user.email, role: as }
    const invite = await service.call('POST', `${url}/invites`, { body, key: owner.key })
    await service.call('POST', `${url}/invites/${invite.body.key}/accept`, { key: user.key })
  }
  let count = 0
  const newMember = async (as: 'owner' | 'maintainer') => {
    const user = await createUser(service, `member-${count++}`)
    await join(user, as)
    return user
  }

  beforeAll(async () => {
    owner = await createUser(service, 'the-owner')
    id = (await createWorkspace(service, 'Team', owner.key)).id
    url = workspaceUrl(id)
    maintainer = await newMember('maintainer')
  })

  const put = (userId: string, body: unknown, key: string) =>
    service.call('PUT', `${url}/members/${userId}`, { body, key })
  const remove = (userId: string, key: string) =>
    service.call('DELETE', `${url}/members/${userId}`, { key })

  it('are counted', async () => {
    const { body } = await service.call('GET', url, { key: owner.key })
    expect(body.memberCount).toBe(2)
  })

  it('get another role from an owner', async () => {
    const member = await newMember('maintainer')
    expect(await put(member.id, { role: 'owner' }, owner.key)).toMatchObject({
      status: 204,
      body: '',
    })
    expect(await role(member.id)).toBe('owner')
    expect((await put(member.id, { role: 'maintainer' }, owner.key)).status).toBe(204)
    expect(await role(member.id)).toBe('maintainer')
    expect((await put(member.id, { role: 'maintainer' }, owner.key)).status).toBe(204)
  })

  it('do everything as maintainers except granting and taking the role of an owner', async () => {
    const other = await newMember('maintainer')
    const forbidden = [
      put(other.id, { role: 'owner' }, maintainer.key),
      put(maintainer.id, { role: 'owner' }, maintainer.key),
      put(owner.id, { role: 'maintainer' }, maintainer.key),
      remove(owner.id, maintainer.key),
      service.call('DELETE', url, { key: maintainer.key }),
      service.call('POST', `${url}/invites`, {
        body: { email: 'o@example.com', role: 'owner' },
        key: maintainer.key,
      }),
    ]
    for (const answer of await Promise.all(forbidden)) {
      expect(answer).toMatchObject({ status: 403, body: { code: 'forbidden' } })
      expect(answer.body.message).toMatch(/^only an owner can /)
    }
    expect(await role(owner.id)).toBe('owner')
    expect((await remove(other.id, maintainer.key)).status).toBe(204)
    const rename = { body: { name: 'Team' }, key: maintainer.key }
    expect((await service.call('PUT', url, rename)).status).toBe(200)
    await createDatabase(service, 'by-maintainer', { workspaceId: id, key: maintainer.key })
  })

  it('lose access at once when they are removed', async () => {
    const member = await newMember('maintainer')
    const second = await createTestService({ url: service.url })
    expect((await second.call('GET', url, { key: member.key })).status).toBe(200)
    expect((await remove(member.id, owner.key)).status).toBe(204)
    expect((await service.call('GET', url, { key: member.key })).status).toBe(404)
    expect((await second.call('GET', url, { key: member.key })).status).toBe(404)
    expect((await remove(member.id, owner.key)).status).toBe(404)
    await second.close()
  })

  it('can leave by themselves', async () => {
    const member = await newMember('maintainer')
    expect((await remove(member.id, member.key)).status).toBe(204)
    expect(await role(member.id)).toBeUndefined()
  })

  it('keep at least one owner', async () => {
    const demote = await put(owner.id, { role: 'maintainer' }, owner.key)
    expect(demote.status).toBe(409)
    expect(demote.body).toMatchObject({
      code: 'only_owner',
      message: `member [${owner.id}]: is the only owner of the workspace`,
    })
    expect(await remove(owner.id, owner.key)).toMatchObject({
      status: 409,
      body: { code: 'only_owner' },
    })
    const second = await newMember('owner')
    expect((await put(owner.id, { role: 'maintainer' }, owner.key)).status).toBe(204)
    expect((await put(owner.id, { role: 'owner' }, second.key)).status).toBe(204)
    expect((await remove(second.id, owner.key)).status).toBe(204)
  })

  it('keep at least one owner when two owners step down at the same time', async () => {
    const second = await newMember('owner')
    const answers = await Promise.all([
      put(owner.id, { role: 'maintainer' }, owner.key),
      put(second.id, { role: 'maintainer' }, second.key),
    ])
    const statuses = answers.map((answer) => answer.status)
    expect(statuses).toContain(204)
    const { body } = await service.call('GET', `${url}/members`, { key: owner.key })
    const owners = body.members.filter((member: { role: string }) => member.role === 'owner')
    expect(owners).toHaveLength(1)
    const [left] = owners
    const leftKey = left.userId === owner.id ? owner.key : second.key
    await put(owner.id, { role: 'owner' }, leftKey)
    await remove(second.id, owner.key)
  })

  it('keep at least one owner when the users of both are deleted at the same time', async () => {
    const one = await createUser(service, 'deleted-1')
    const two = await createUser(service, 'deleted-2')
    const shared = await createWorkspace(service, 'Shared', one.key)
    const sharedUrl = workspaceUrl(shared.id)
    const body = { email: two.email, role: 'owner' }
    const invite = await service.call('POST', `${sharedUrl}/invites`, { body, key: one.key })
    await service.call('POST', `${sharedUrl}/invites/${invite.body.key}/accept`, { key: two.key })
    const answers = await Promise.all(
      [one, two].map((user) => service.call('DELETE', '/user', { key: user.key })),
    )
    expect(answers.map((answer) => answer.status).sort()).toEqual([204, 409])
  })

  it('that are unknown are answered with 404', async () => {
    for (const answer of [
      await put('usr_unknown', { role: 'owner' }, owner.key),
      await remove('usr_unknown', owner.key),
    ]) {
      expect(answer).toMatchObject({
        status: 404,
        body: { message: 'member [usr_unknown] not found', code: 'member_not_found' },
      })
    }
  })

  it.each([[undefined], [{}], [{ role: 'admin' }], [{ role: 'owner', email: 'x' }]])(
    'refuse the role %j with 400',
    async (body) => {
      expect((await put(maintainer.id, body, owner.key)).status).toBe(400)
      expect(await role(maintainer.id)).toBe('maintainer')
    },
  )

  it('are not changed by keys that are limited to a part of the workspace', async () => {
    const fields = { scope: { workspaces: [id], databases: ['shop'] } }
    const key = await createKey(service, 'part', { fields, key: owner.key })
    const answer = await put(maintainer.id, { role: 'owner' }, key)
    expect(answer).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    const whole = await createKey(service, 'whole', {
      fields: { scope: { workspaces: [id] } },
      key: owner.key,
    })
    expect((await put(maintainer.id, { role: 'maintainer' }, whole)).status).toBe(204)
  })
})

describe('invites', () => {
  const url = () => `${workspaceUrl(service.workspaceId)}/invites`
  const invite = (body: object, key = service.key) => service.call('POST', url(), { body, key })
  const accept = (inviteKey: string, key: string) =>
    service.call('POST', `${url()}/${inviteKey}/accept`, { key })
  const pending = async () =>
    (await service.call('GET', `${workspaceUrl(service.workspaceId)}/members`)).body.invites

  it('are created with a key that is shown this once, and listed without it', async () => {
    const { status, body } = await invite({ email: 'i1@example.com', role: 'maintainer' })
    expect(status).toBe(201)
    expect(body).toEqual({
      inviteId: expect.stringMatching(/^inv_[0-9a-v]{20}$/),
      email: 'i1@example.com',
      expires: expect.any(String),
      role: 'maintainer',
      key: expect.stringMatching(/^ik_[A-Za-z0-9]{40,}$/),
    })
    const days = (Date.parse(body.expires) - Date.now()) / 86_400_000
    expect(days).toBeGreaterThan(29.9)
    expect(days).toBeLessThan(30.1)
    const { key, ...listed } = body
    expect(await pending()).toContainEqual(listed)
    expect(JSON.stringify(await pending())).not.toContain(key)
    const rows = await service.database.query(sql`select i::text from offshoot.invites i`)
    expect(JSON.stringify(rows)).not.toContain(key)
  })

  it('let in whoever holds the key, once', async () => {
    const user = await createUser(service, 'invited')
    const other = await createUser(service, 'too-late')
    const { body } = await invite({ email: user.email, role: 'owner' })
    expect((await accept(body.key, user.key)).status).toBe(204)
    const home = workspaceUrl(service.workspaceId)
    expect((await service.call('GET', home, { key: user.key })).status).toBe(200)
    const { workspaces } = (await service.call('GET', '/workspaces', { key: user.key })).body
    expect(workspaces[0].role).toBe('owner')
    expect(JSON.stringify(await pending())).not.toContain(body.inviteId)
    const again = await accept(body.key, other.key)
    expect(again).toMatchObject({ status: 404, body: { code: 'invite_not_found' } })
    expect((await service.call('GET', home, { key: other.key })).status).toBe(404)
  })

  it('let in exactly one of two who accept at the same time', async () => {
    const users = [await createUser(service, 'fast'), await createUser(service, 'faster')]
    const { body } = await invite({ email: 'race@example.com', role: 'maintainer' })
    const answers = await Promise.all(users.map((user) => accept(body.key, user.key)))
    expect(answers.map((answer) => answer.status).sort()).toEqual([204, 404])
  })

  it('do not lower the role of someone who is a member already', async () => {
    const { body } = await invite({ email: 'self@example.com', role: 'maintainer' })
    expect((await accept(body.key, service.key)).status).toBe(204)
    const { workspaces } = (await service.call('GET', '/workspaces')).body
    expect(workspaces[0]).toMatchObject({ id: service.workspaceId, role: 'owner' })
  })

  it('are refused with 409 when the same e-mail is invited or a member already', async () => {
    await invite({ email: 'dup@example.com', role: 'maintainer' })
    const again = await invite({ email: 'DUP@example.com', role: 'owner' })
    expect(again).toMatchObject({
      status: 409,
      body: { message: 'email [DUP@example.com]: is already invited', code: 'conflict' },
    })
    const member = await invite({ email: 'Admin@offshoot.local', role: 'maintainer' })
    expect(member).toMatchObject({
      status: 409,
      body: { message: 'email [Admin@offshoot.local]: is already a member' },
    })
  })

  it('get another role until they are accepted', async () => {
    const user = await createUser(service, 'promoted')
    const { body } = await invite({ email: user.email, role: 'maintainer' })
    const one = `${url()}/${body.inviteId}`
    const changed = await service.call('PATCH', one, { body: { role: 'owner' } })
    const { key, ...rest } = body
    expect(changed.status).toBe(200)
    expect(changed.body).toEqual({ ...rest, role: 'owner' })
    expect((await accept(key, user.key)).status).toBe(204)
    for (const answer of [
      await service.call('PATCH', one, { body: { role: 'maintainer' } }),
      await service.call('DELETE', one),
      await service.call('POST', `${one}/resend`),
    ]) {
      expect(answer).toMatchObject({
        status: 422,
        body: { message: `invite [${body.inviteId}]: was already accepted` },
      })
    }
  })

  it('can be cancelled, and then neither be accepted nor cancelled again', async () => {
    const user = await createUser(service, 'cancelled')
    const { body } = await invite({ email: user.email, role: 'maintainer' })
    expect((await service.call('DELETE', `${url()}/${body.inviteId}`)).status).toBe(204)
    expect((await accept(body.key, user.key)).status).toBe(404)
    expect((await service.call('DELETE', `${url()}/${body.inviteId}`)).status).toBe(404)
    expect((await invite({ email: user.email, role: 'maintainer' })).status).toBe(201)
  })

  it('can be renewed for the full time, also after they have expired', async () => {
    const user = await createUser(service, 'renewed')
    const { body } = await invite({ email: user.email, role: 'maintainer' })
    await expire(body.inviteId)
    expect(JSON.stringify(await pending())).not.toContain(body.inviteId)
    expect((await accept(body.key, user.key)).status).toBe(404)
    expect((await service.call('POST', `${url()}/${body.inviteId}/resend`)).status).toBe(204)
    expect(JSON.stringify(await pending())).toContain(body.inviteId)
    expect((await accept(body.key, user.key)).status).toBe(204)
  })

  it('that have expired are not in the way of a new one', async () => {
    const { body } = await invite({ email: 'late@example.com', role: 'maintainer' })
    await expire(body.inviteId)
    expect((await invite({ email: 'late@example.com', role: 'maintainer' })).status).toBe(201)
  })

  it('hold for their workspace alone', async () => {
    const user = await createUser(service, 'crossing')
    const other = await createWorkspace(service, 'Other')
    const { body } = await invite({ email: user.email, role: 'owner' })
    const crossed = `${workspaceUrl(other.id)}/invites/${body.key}/accept`
    expect((await service.call('POST', crossed, { key: user.key })).status).toBe(404)
    const cancelled = `${workspaceUrl(other.id)}/invites/${body.inviteId}`
    expect((await service.call('DELETE', cancelled)).status).toBe(404)
    expect((await accept(body.key, user.key)).status).toBe(204)
  })

  it('are not accepted by their id, which members can see', async () => {
    const user = await createUser(service, 'by-id')
    const { body } = await invite({ email: user.email, role: 'maintainer' })
    expect((await accept(body.inviteId, user.key)).status).toBe(404)
  })

  it('of owners are not made by maintainers, directly or by changing one', async () => {
    const user = await createUser(service, 'climber')
    await addMember(service, user)
    const { body } = await invite({ email: 'c@example.com', role: 'maintainer' }, user.key)
    const answer = await service.call('PATCH', `${url()}/${body.inviteId}`, {
      body: { role: 'owner' },
      key: user.key,
    })
    expect(answer).toMatchObject({ status: 403, body: { code: 'forbidden' } })
    const { key: _key, ...listed } = body
    expect(await pending()).toContainEqual(listed)
  })

  it.each([
    [undefined],
    [{ email: 'a@example.com' }],
    [{ role: 'owner' }],
    [{ email: 'a@example.com', role: 'admin' }],
    [{ email: 'nobody', role: 'owner' }],
    [{ email: 'a@example.com', role: 'owner', key: 'ik_mine' }],
  ])('refuse %j with 400', async (body) => {
    expect((await service.call('POST', url(), { body })).status).toBe(400)
  })

  it.each([
    ['PATCH', ''],
    ['DELETE', ''],
    ['POST', '/resend'],
    ['POST', '/accept'],
  ])('that are unknown are answered with 404: %s %s', async (method, suffix) => {
    const body = method === 'PATCH' ? { role: 'owner' } : undefined
    const answer = await service.call(method, `${url()}/inv_unknown${suffix}`, { body })
    expect(answer).toMatchObject({ status: 404, body: { code: 'invite_not_found' } })
  })
})

async function expire(inviteId: string): Promise<void> {
  await service.database.query(sql`
    update offshoot.invites
    set expires_at = now() - interval '1 second'
    where id = ${inviteId}`)
}
