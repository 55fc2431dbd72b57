import { Failure } from '../shared/failure.js'

interface Comment {
  readonly id: number
  readonly body: string
  /** The id of the user who wrote the comment. */
  readonly authorId: number | undefined
}

/** The comments of a pull request. */
export interface CommentHost {
  /** Returns the id of the user of the token. */
  userId(): Promise<number>
  /** Yields all comments, oldest first. */
  list(): AsyncIterable<Comment>
  create(body: string): Promise<void>
  update(id: number, body: string): Promise<void>
}

/** Comments per request: the maximum of GitHub and GitLab. */
const PAGE_SIZE = 100
const TIMEOUT_MS = 30_000

/**
 * Writes the comment that begins with `marker`: changes it if it exists, and creates it if not. Anybody can write a
 * comment that begins like this one, and change it afterwards, so only that of the own user counts.
 */
export async function writeComment(
  host: CommentHost,
  { marker, body }: { marker: string; body: string },
): Promise<'created' | 'updated' | 'unchanged'> {
  const userId = await host.userId()
  for await (const comment of host.list()) {
    if (comment.authorId !== userId || !comment.body.startsWith(marker)) continue
    // Platforms may store other line ends than those that were sent.
    if (comment.body.replaceAll('\r\n', '\n').trimEnd() === body.trimEnd()) return 'unchanged'
    await host.update(comment.id, body)
    return 'updated'
  }
  await host.create(body)
  return 'created'
}

export function githubComments(options: {
  readonly api: string
  readonly repository: string
  readonly number: number
  readonly token: string
}): CommentHost {
  const { api, repository, number, token } = options
  const base = `${api}/repos/${repository}/issues`
  const call = caller({
    name: 'GitHub',
    headers: { authorization: `Bearer ${token}`, accept: 'application/vnd.github+json' },
    advice: 'the job needs `permissions: { pull-requests: write }`',
  })
  return {
    async userId() {
      // `GET /user` refuses the token of a job.
      const graphql = `${api.replace(/\/v3$/, '')}/graphql`
      const answer = await call('POST', graphql, { query: '{ viewer { databaseId } }' })
      return requireId((answer as GithubViewer).data?.viewer?.databaseId, 'GitHub')
    },
    list: () => pages(call, `${base}/${number}/comments`),
    create: async (body) => {
      await call('POST', `${base}/${number}/comments`, { body })
    },
    update: async (id, body) => {
      await call('PATCH', `${base}/comments/${id}`, { body })
    },
  }
}

export function gitlabComments(options: {
  readonly api: string
  readonly project: string
  readonly iid: string
  readonly token: string
}): CommentHost & { isMerged(): Promise<boolean> } {
  const { api, project, iid, token } = options
  const request = `${api}/projects/${encodeURIComponent(project)}/merge_requests/${encodeURIComponent(iid)}`
  const call = caller({
    name: 'GitLab',
    headers: { 'private-token': token },
    advice: 'GITLAB_TOKEN must be a token with the scope `api`; the token of the job is not enough',
  })
  return {
    async userId() {
      return requireId(((await call('GET', `${api}/user`)) as { id?: number }).id, 'GitLab')
    },
    list: () => pages(call, `${request}/notes?sort=asc&order_by=created_at`),
    create: async (body) => {
      await call('POST', `${request}/notes`, { body })
    },
    update: async (id, body) => {
      await call('PUT', `${request}/notes/${id}`, { body })
    },
    isMerged: async () => {
      const { state } = (await call('GET', request)) as { state?: string }
      return state === 'merged'
    },
  }
}

interface GithubViewer {
  readonly data?: { readonly viewer?: { readonly databaseId?: number } }
}

/** A comment as GitHub (`user`) or GitLab (`author`) describes it. The user may have been deleted. */
interface FoundComment {
  readonly id: number
  readonly body?: string | null
  readonly user?: { readonly id: number } | null
  readonly author?: { readonly id: number } | null
}

function requireId(id: number | undefined, name: string): number {
  if (typeof id === 'number') return id
  throw new Failure(`${name} does not say whose token it is, so the comment cannot be found again`)
}

type Call = (method: string, url: string, body?: object) => Promise<unknown>

async function* pages(call: Call, url: string): AsyncGenerator<Comment> {
  const separator = url.includes('?') ? '&' : '?'
  for (let page = 1; ; page++) {
    const address = `${url}${separator}per_page=${PAGE_SIZE}&page=${page}`
    const comments = (await call('GET', address)) as FoundComment[]
    for (const { id, body, user, author } of comments) {
      yield { id, body: body ?? '', authorId: (user ?? author)?.id }
    }
    if (comments.length < PAGE_SIZE) return
  }
}

function caller(options: {
  readonly name: string
  readonly headers: Readonly<Record<string, string>>
  readonly advice: string
}): Call {
  const { name, headers, advice } = options
  return async (method, url, body) => {
    const response = await fetch(url, {
      method,
      headers: {
        'user-agent': 'offshoot',
        ...headers,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    }).catch((error: Error) => {
      throw new Failure(
        `no answer from ${name}: ${(error.cause as Error)?.message ?? error.message}`,
      )
    })
    if (response.ok) return response.json()
    const isRefused = [401, 403, 404].includes(response.status)
    throw new Failure(
      `${name} refused the request (${method} ${new URL(url).pathname}: ${response.status})${isRefused ? `\n  ${advice}` : ''}`,
    )
  }
}
