import { execFile } from 'node:child_process'
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { currentGitBranch, resolveBranchFromGit } from '../../packages/client/src/git.js'
import { createClient } from '../../packages/client/src/index.js'
import { createTestService, type TestService } from '../support/service.js'

const run = promisify(execFile)

describe('the branch of the git branch that is checked out', () => {
  let service: TestService
  let url: string
  let folder: string
  let databases = 0

  beforeAll(async () => {
    service = await createTestService()
    url = await service.app.listen({ port: 0, host: '127.0.0.1' })
    folder = await realpath(await mkdtemp(path.join(tmpdir(), 'offshoot-git-')))
    const identity = ['-c', 'user.name=Test', '-c', 'user.email=test@example.com']
    await git('init', '-q', '-b', 'main')
    await run('git', ['-C', folder, ...identity, 'commit', '-q', '--allow-empty', '-m', 'start'])
  })
  afterAll(async () => {
    await service.close()
    await rm(folder, { recursive: true })
  })
  beforeEach(() => git('checkout', '-q', 'main'))

  const git = (...args: string[]) => run('git', ['-C', folder, ...args])

  async function createDatabase() {
    const { database, account } = createClient({
      url,
      apiKey: service.key,
      workspace: service.workspaceId,
      database: `repo${databases++}`,
      branch: 'main',
    })
    await account.createDatabase(service.workspaceId, database.name)
    return database
  }

  it('is created on request, and found again', async () => {
    const database = await createDatabase()
    await git('checkout', '-q', '-B', 'feat/login')
    const options = { folder, env: {} }
    const created = await resolveBranchFromGit(database, { ...options, create: true })
    expect(created).toMatchObject({ source: 'mapping', gitBranch: 'feat/login' })
    expect((await database.branches()).map(({ name }) => name)).toContain(created.branch)
    expect(await resolveBranchFromGit(database, options)).toEqual(created)
  })

  it('is never replaced by main without a word', async () => {
    const database = await createDatabase()
    await git('checkout', '-q', '-B', 'feat/other')
    const options = { folder, env: {} }
    await expect(resolveBranchFromGit(database, options)).rejects.toThrow('feat/other')
    expect(
      await resolveBranchFromGit(database, { ...options, fallbackBranch: 'main' }),
    ).toMatchObject({ branch: 'main' })
    await git('checkout', '-q', 'main')
    expect(await resolveBranchFromGit(database, options)).toMatchObject({ branch: 'main' })
  })

  it('gives way to OFFSHOOT_BRANCH', async () => {
    const database = await createDatabase()
    const env = { OFFSHOOT_BRANCH: 'staging' }
    expect(await resolveBranchFromGit(database, { folder, env })).toEqual({
      branch: 'staging',
      source: 'environment',
    })
  })

  it('is read in worktrees and subfolders, and unknown for a detached HEAD', async () => {
    const worktree = path.join(folder, 'tree')
    await git('worktree', 'add', '-q', '-B', 'wt', worktree)
    expect(await currentGitBranch(worktree)).toBe('wt')
    expect(await currentGitBranch(path.join(folder, '.git', 'refs'))).toBe('main')
    await git('checkout', '-q', '--detach')
    expect(await currentGitBranch(folder)).toBeUndefined()
    const database = await createDatabase()
    await expect(resolveBranchFromGit(database, { folder, env: {} })).rejects.toThrow(folder)
  })
})
