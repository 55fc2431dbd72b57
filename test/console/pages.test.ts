import { beforeAll, describe, expect, it } from 'vitest'
import { createDatabase, createKey } from '../support/people.js'
import { hasChromium, PATIENCE_MS, testConsole } from './chromium.js'

const HOSTILE = '<img src=x onerror="window.hacked=1"> \u202eعربى 👩‍👩‍👧'

describe.skipIf(!hasChromium)('the console', () => {
  const tested = testConsole()
  beforeAll(() => createDatabase(tested.service, 'shop'))

  it('signs in with a key, keeps the address, and signs out', async () => {
    const { page, faults, expectClean } = await tested.open('/console/keys', { key: null })
    await page.getByLabel('API key').fill('off_wrong')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('alert').getByText('Invalid API key').waitFor()
    // A text that no header can have.
    await page.getByLabel('API key').fill(HOSTILE)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await expect.poll(() => faults.length, { timeout: PATIENCE_MS }).toBe(2)
    await page.getByRole('alert').getByText('letters, digits and underscores').waitFor()
    expect(await page.evaluate("'hacked' in window")).toBe(false)
    expect(faults.splice(0)).toEqual(Array(2).fill(expect.stringContaining('401')))
    await expectClean()
    await page.getByLabel('API key').fill(tested.service.key)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading', { name: 'API keys' }).waitFor()
    expect(new URL(page.url()).pathname).toBe('/console/keys')
    await page.getByRole('button', { name: 'Account' }).click()
    await page.getByRole('menuitem', { name: 'Sign out' }).click()
    await page.getByRole('button', { name: 'Sign in' }).waitFor()
  })

  it('has an address for every page, and axe finds nothing on any of them', async () => {
    const { page, context, visit, expectClean } = await tested.open('/console/')
    const workspace = `/console/w/${tested.service.workspaceId}`
    const pages: Record<string, string> = {
      '/console/': 'Databases',
      '/console/?all': 'Workspaces',
      '/console/keys': 'API keys',
      '/console/metrics': 'Health and metrics',
      [`/console/join/${tested.service.workspaceId}`]: 'Join a workspace',
      [workspace]: 'Databases',
      [`${workspace}/members`]: 'Members',
      [`${workspace}/audit`]: 'Audit log',
      [`${workspace}/settings`]: 'Workspace settings',
      [`${workspace}/db/shop/branches`]: 'Branches',
      [`${workspace}/db/shop/proposals`]: 'Proposals',
      [`${workspace}/db/shop/git`]: 'Git and rules',
      [`${workspace}/db/shop/settings`]: 'Database settings',
      [`${workspace}/db/shop/b/main`]: 'Tables',
      [`${workspace}/db/shop/b/main/schema`]: 'Schema',
      [`${workspace}/db/shop/b/main/sql`]: 'SQL',
      [`${workspace}/db/shop/b/main/timeline`]: 'Timeline',
      [`${workspace}/db/shop/b/main/diff`]: 'Difference',
      [`${workspace}/db/shop/b/main/merge`]: 'Merge and pull',
      [`${workspace}/db/shop/b/main/files`]: 'Files',
      [`${workspace}/db/nothing/branches`]: 'No such database',
      '/console/nothing': 'Not found',
    }
    for (const [address, title] of Object.entries(pages)) {
      // The service answers each of them with the page, which reads the address.
      const answer = await context.request.get(address, { headers: { accept: 'text/html' } })
      expect(answer.status()).toBe(200)
      await visit(address)
      await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
      await expectClean()
    }
  })

  it('ends a session at once when its key is deleted', async () => {
    const key = await createKey(tested.service, 'short')
    const { page } = await tested.open('/console/keys', { key })
    await page.getByRole('heading', { name: 'API keys' }).waitFor()
    await tested.service.call('DELETE', '/user/keys/short')
    await page.goto('/console/keys')
    await page.getByRole('button', { name: 'Sign in' }).waitFor()
  })
})
