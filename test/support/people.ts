import type { Answer, CallableService } from './service.js'

export interface TestUser {
  readonly id: string
  readonly email: string
  readonly key: string
}

/** Creates another user as the administrator. */
export async function createUser(service: CallableService, name: string): Promise<TestUser> {
  const email = `${name}@example.com`
  const answer = await service.call('POST', '/users', { body: { email, fullname: name } })
  return expectStatus(answer, 201).body
}

/** Creates another API key, of the first user or of the user of the given key. */
export async function createKey(
  service: CallableService,
  name: string,
  options: { fields?: object; key?: string } = {},
): Promise<string> {
  const { fields, key } = options
  const answer = await service.call('POST', `/user/keys/${encodeURIComponent(name)}`, {
    body: fields,
    ...(key === undefined ? {} : { key }),
  })
  return expectStatus(answer, 201).body.key
}

export async function createWorkspace(service: CallableService, name: string, key = service.key) {
  const answer = await service.call('POST', '/workspaces', { body: { name }, key })
  return expectStatus(answer, 201).body as { id: string; name: string; slug: string }
}

export async function createDatabase(
  service: CallableService,
  name: string,
  options: { workspaceId?: string; region?: string; branchName?: string; key?: string } = {},
): Promise<void> {
  const { workspaceId = service.workspaceId, region = 'local', branchName, key } = options
  const answer = await service.call('PUT', `/workspaces/${workspaceId}/dbs/${name}`, {
    body: { region, ...(branchName === undefined ? {} : { branchName }) },
    ...(key === undefined ? {} : { key }),
  })
  expectStatus(answer, 201)
}

/** Adds a user to a workspace of the first user, as a maintainer. */
export async function addMember(
  service: CallableService,
  user: TestUser,
  workspaceId = service.workspaceId,
): Promise<void> {
  const invites = `/workspaces/${workspaceId}/invites`
  const body = { email: user.email, role: 'maintainer' }
  const invite = expectStatus(await service.call('POST', invites, { body }), 201)
  const accept = `${invites}/${invite.body.key}/accept`
  expectStatus(await service.call('POST', accept, { key: user.key }), 204)
}

function expectStatus(answer: Answer, status: number): Answer {
  if (answer.status === status) return answer
  throw new Error(`expected ${status}, got ${answer.status}: ${JSON.stringify(answer.body)}`)
}
