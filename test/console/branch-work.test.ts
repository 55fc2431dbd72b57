import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { createKey } from '../support/people.js'
import { hasChromium, testConsole, type WatchedPage } from './chromium.js'
import { takeShot } from './shots.js'

const DIST = fileURLToPath(new URL('../../packages/console/dist', import.meta.url))
const MAIN_GZIP_MAX = 250_000

/** Values that would do harm if they were read as anything but text. */
const HOSTILE = {
  script: '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>',
  rightToLeft: '\u202eعربى עברית',
  emoji: '👩‍👩‍👧‍👦🏳️‍🌈',
  long: 'x'.repeat(100_000),
}

describe('the built console', () => {
  it('loads less than 250 kB of compressed code at first', () => {
    const page = readFileSync(path.join(DIST, 'index.html'), 'utf8')
    const loaded = [...page.matchAll(/(?:src|href)="\/console\/assets\/([^"]+\.(?:js|css))"/g)]
    const files = new Set(readdirSync(path.join(DIST, 'assets')))
    const bytes = loaded.map(([, name]) => {
      expect(files).toContain(`${name}.gz`)
      return readFileSync(path.join(DIST, 'assets', `${name}.gz`)).length
    })
    expect(bytes.length).toBeGreaterThan(1)
    expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThan(MAIN_GZIP_MAX)
  })
})

describe.skipIf(!hasChromium)('a day’s work in the console', () => {
  const tested = testConsole()
  let shared: WatchedPage
  let page: Page
  let root: string

  beforeAll(async () => {
    root = `/console/w/${tested.service.workspaceId}/db/sample`
    await go('/console/')
    await page.getByRole('button', { name: 'Make a sample database with branches' }).click()
    await page.waitForURL(`**${root}/branches`)
  })

  const go = async (address: string) => {
    shared = await tested.open(address)
    page = shared.page
  }
  const data = (branch: string, table: string, id: string) =>
    tested.service.call(
      'GET',
      `${tested.service.workspace}/db/sample:${branch}/tables/${table}/data/${id}`,
    )
  const change = (branch: string, table: string, id: string, body: object) =>
    tested.service.call(
      'PATCH',
      `${tested.service.workspace}/db/sample:${branch}/tables/${table}/data/${id}`,
      { body },
    )

  it('shows branches as a graph, with sources, merges, expiry and protection', async () => {
    await go(`${root}/branches`)
    const list = page.getByRole('list', { name: 'Branches' })
    await list.getByRole('link', { name: 'feature-loyalty' }).waitFor()
    expect(await list.getByRole('listitem').count()).toBe(5)
    const row = (name: string) =>
      list.getByRole('listitem').filter({ has: page.getByRole('link', { name, exact: true }) })
    await row('main').getByText('protected').waitFor()
    await row('main').getByText('feature-prices').waitFor()
    await row('preview-42')
      .getByText(/expires in/)
      .waitFor()
    await row('dev').getByText('4 rows owned').waitFor()
    await shared.expectClean()
  })

  it('forks, protects and deletes a branch', async () => {
    await go(`${root}/branches`)
    await page.getByRole('button', { name: 'New branch' }).click()
    await page.getByLabel('Name').fill('trial')
    await page.getByRole('button', { name: 'Create branch' }).click()
    await page.getByRole('link', { name: 'trial', exact: true }).waitFor()
    const act = async (item: string) => {
      await page.getByRole('button', { name: 'Actions of trial' }).click()
      await page.getByRole('menuitem', { name: item }).click()
    }
    await act('Protect')
    await page.getByRole('dialog').getByRole('button', { name: 'Protect', exact: true }).click()
    await page.getByText('trial is protected').waitFor()
    await act('Remove protection')
    await page.getByRole('dialog').getByRole('button', { name: 'Remove protection' }).click()
    await page.getByText('trial is no longer protected').waitFor()
    await act('Delete…')
    const confirm = page.getByRole('button', { name: 'Delete branch' })
    expect(await confirm.isDisabled()).toBe(true)
    await page.getByLabel('Type trial to confirm').fill('trial')
    await confirm.click()
    await page.getByText('Branch trial is deleted').waitFor()
    await page.getByRole('link', { name: 'trial', exact: true }).waitFor({ state: 'detached' })
  })

  it('shows what a branch changed, cell by cell, with hostile values as text', async () => {
    for (const [name, value] of Object.entries(HOSTILE)) {
      const path = `${tested.service.workspace}/db/sample:feature-loyalty/tables/products/data/h-${name}`
      const answer = await tested.service.call('PUT', path, {
        body: { name: name, description: value },
      })
      expect(answer.status).toBe(201)
    }
    await go(`${root}/b/feature-loyalty/diff`)
    await page.getByText('Add table coupons').waitFor()
    await page.getByText('Add column customers.points: int').waitFor()
    await page.getByText('WELCOME10').waitFor()
    await page.getByText(HOSTILE.script).waitFor()
    await page.getByText(HOSTILE.emoji).waitFor()
    await page.getByRole('button', { name: 'show all 100,000 characters' }).waitFor()
    expect(await page.evaluate(() => 'hacked' in globalThis)).toBe(false)
    await shared.expectClean()
    await go(`${root}/b/dev/diff`)
    const cells = page.getByRole('row').filter({ hasText: 'Arlington' })
    await cells.getByText('New York').waitFor()
  })

  it('merges after conflicts are settled by cell, by record and by table', async () => {
    await go(`${root}/b/dev/merge`)
    const merge = page.getByRole('button', { name: 'Merge into main' })
    await page.getByText('0 of 4 settled').waitFor()
    expect(await merge.isDisabled()).toBe(true)
    const conflict = (name: string) => page.getByRole('article', { name: `Conflict of ${name}` })
    await conflict('products / p1').getByRole('button', { name: 'price: take theirs' }).click()
    await conflict('products / p4').getByRole('button', { name: 'other value for price' }).click()
    const typed = conflict('products / p4').getByRole('textbox', {
      name: 'other value for price',
    })
    await typed.fill('cheap')
    await conflict('products / p4').getByRole('button', { name: 'Use' }).click()
    await conflict('products / p4').getByText('must be a number').waitFor()
    await typed.fill('66.5')
    await conflict('products / p4').getByRole('button', { name: 'Use' }).click()
    await conflict('orders / o3').getByRole('button', { name: 'Take dev' }).click()
    await page.getByText('3 of 4 settled').waitFor()
    await shared.expectClean()
    const takeTable = (side: string) =>
      page
        .getByRole('region', { name: 'Conflicts of customers' })
        .getByRole('button', { name: side })
        .first()
        .click()
    await takeTable('Take dev')
    await page.getByText('4 of 4 settled').waitFor()
    // Somebody else changes records meanwhile: nothing is overwritten, by one click or by two.
    expect((await change('main', 'products', 'p1', { price: 5.5 })).status).toBe(200)
    expect((await change('main', 'customers', 'c2', { city: 'Boston' })).status).toBe(200)
    await merge.click()
    await page.getByRole('alert').filter({ hasText: 'Nothing was merged' }).waitFor()
    expect(shared.faults.splice(0)).toHaveLength(1)
    await page.getByText('2 of 4 settled').waitFor()
    await conflict('products / p1').getByText('5.5').first().waitFor()
    await conflict('customers / c2').getByText('Boston').first().waitFor()
    expect(await merge.isDisabled()).toBe(true)
    expect((await data('main', 'products', 'p1')).body.price).toBe(5.5)
    expect((await data('main', 'customers', 'c2')).body.city).toBe('Boston')
    await takeShot(page, 'merge-refused')
    await shared.expectClean()
    await conflict('products / p1').getByRole('button', { name: 'price: take theirs' }).click()
    await takeTable('Keep main')
    await merge.click()
    await page.getByText('dev is merged into main').first().waitFor()
    expect((await data('main', 'products', 'p1')).body.price).toBe(4.9)
    expect((await data('main', 'products', 'p4')).body.price).toBe(66.5)
    expect((await data('main', 'customers', 'c2')).body.city).toBe('Boston')
    expect((await data('main', 'orders', 'o3')).status).toBe(404)
  })

  it('opens exactly the conflicts again that have changed since a side was taken for the table', async () => {
    const fork = `${tested.service.workspace}/db/sample:rival`
    expect((await tested.service.call('PUT', fork, { body: { from: 'main' } })).status).toBe(201)
    for (const [branch, price] of [
      ['main', 21],
      ['rival', 22],
    ] as const) {
      for (const id of ['p1', 'p2', 'p4']) await change(branch, 'products', id, { price })
    }
    await go(`${root}/b/rival/merge`)
    const size = page.viewportSize() ?? { width: 1280, height: 800 }
    await page.setViewportSize({ width: 1000, height: 500 })
    const merge = page.getByRole('button', { name: 'Merge into main' })
    const conflict = (name: string) => page.getByRole('article', { name: `Conflict of ${name}` })
    const takeTable = page
      .getByRole('region', { name: 'Conflicts of products' })
      .getByRole('button', { name: 'Take rival' })
      .first()
    await takeTable.click()
    await page.getByText('3 of 3 settled').waitFor()
    // The notice about an earlier merge disappears by itself.
    await page.getByText('dev is merged into main').waitFor({ state: 'detached' })
    expect((await change('main', 'products', 'p2', { price: 77 })).status).toBe(200)
    await merge.click()
    const alert = page.getByRole('alert').filter({ hasText: 'products / p2' })
    await alert.waitFor()
    expect(shared.faults.splice(0)).toHaveLength(1)
    // The alert and the conflict are where the user is looking, and nothing covers the alert.
    const isSeen = await alert.evaluate((element) => {
      const { x, y, width, height } = element.getBoundingClientRect()
      const { ownerDocument: page } = element
      const top = page.elementFromPoint(x + width / 2, y + height / 2)
      return y >= 0 && y + height <= page.documentElement.clientHeight && element.contains(top)
    })
    expect(isSeen).toBe(true)
    await conflict('products / p2').getByText('decide again').waitFor()
    await conflict('products / p2').getByText('77').first().waitFor()
    for (const id of ['p1', 'p4']) {
      await conflict(`products / ${id}`).getByText('settled', { exact: true }).waitFor()
    }
    await page.getByText('2 of 3 settled').waitFor()
    expect(await merge.isDisabled()).toBe(true)
    expect(await takeTable.getAttribute('aria-pressed')).toBe('false')
    await takeShot(page, 'merge-reopened')
    await shared.expectClean()
    await page.setViewportSize(size)
    await conflict('products / p2').getByRole('button', { name: 'Keep main' }).click()
    await merge.click()
    await page.getByText('rival is merged into main').first().waitFor()
    expect((await data('main', 'products', 'p2')).body.price).toBe(77)
    expect((await data('main', 'products', 'p1')).body.price).toBe(22)
    expect((await data('main', 'products', 'p4')).body.price).toBe(22)
  })

  it('shows conflicts that come up only when others are decided', async () => {
    const at = (branch: string) => `${tested.service.workspace}/db/sample:${branch}`
    // The schema of `main` is protected.
    for (const [branch, from] of [
      ['trunk', 'main'],
      ['renamed', 'trunk'],
    ] as const) {
      expect((await tested.service.call('PUT', at(branch), { body: { from } })).status).toBe(201)
    }
    for (const [branch, newName, price] of [
      ['trunk', 'cost', 31],
      ['renamed', 'amount', 32],
    ] as const) {
      await change(branch, 'products', 'p1', { price })
      const operations = [{ renameColumn: { table: 'products', oldName: 'price', newName } }]
      const body = { edits: { operations } }
      const edited = await tested.service.call('POST', `${at(branch)}/schema/apply`, { body })
      expect(edited.status).toBe(200)
    }
    await go(`${root}/b/renamed/merge`)
    const merge = page.getByRole('button', { name: 'Merge into trunk' })
    const conflict = (name: string) => page.getByRole('article', { name: `Conflict of ${name}` })
    await conflict('products.cost').getByRole('button', { name: 'Keep trunk' }).click()
    await page.getByText('1 of 1 settled').waitFor()
    await merge.click()
    await page.getByRole('alert').filter({ hasText: 'products / p1' }).waitFor()
    expect(shared.faults.splice(0)).toHaveLength(1)
    await page.getByText('1 of 2 settled').waitFor()
    await conflict('products / p1').getByRole('button', { name: 'Take renamed' }).click()
    await merge.click()
    await page.getByText('renamed is merged into trunk').first().waitFor()
    expect((await data('trunk', 'products', 'p1')).body.cost).toBe(32)
  })

  it('maps git branches, adds rules, and shows a new key once', async () => {
    await go(`${root}/git`)
    await page.getByRole('button', { name: 'Map a git branch' }).click()
    await page.getByRole('textbox', { name: 'Git branch' }).fill('feat/login')
    await page.getByRole('combobox', { name: 'Branch', exact: true }).fill('dev')
    await page.getByRole('button', { name: 'Map', exact: true }).click()
    await page.getByRole('cell', { name: 'feat/login', exact: true }).waitFor()
    await page.getByRole('button', { name: 'Add a rule' }).click()
    await page.getByLabel('Name or pattern').fill('preview-*')
    await page.getByLabel('Expires after days without use').fill('7')
    await page.getByRole('button', { name: 'Add rule', exact: true }).click()
    await page.getByText('expires after 7 days').waitFor()
    await shared.expectClean()
    await go('/console/keys')
    await page.getByRole('button', { name: 'New key' }).click()
    await page.getByLabel('Name', { exact: true }).fill('ci')
    await page.getByLabel('Access').selectOption('read')
    const scope = { workspaces: [tested.service.workspaceId] }
    await page.getByRole('checkbox', { name: tested.service.workspaceId }).check()
    await page.getByRole('checkbox', { name: /^Read the audit log/ }).check()
    await page.getByLabel('Requests per second').fill('50')
    await page.getByLabel('Requests at once').fill('5')
    await shared.expectClean()
    await page.getByRole('button', { name: 'Create key' }).click()
    const secret = await page
      .getByRole('dialog')
      .getByText(/^off_\w+$/)
      .textContent()
    expect((await tested.service.call('GET', '/user', { key: secret })).status).toBe(200)
    await shared.expectClean()
    await page.getByRole('button', { name: 'I have stored it' }).click()
    await page.getByRole('cell', { name: /read only.*audit log/ }).waitFor()
    const { body } = await tested.service.call('GET', '/user/keys')
    expect(body.keys.find(({ name }: { name: string }) => name === 'ci').scope).toEqual({
      ...scope,
      access: 'read',
      audit: true,
      requestsPerSecond: 50,
      requestsAtOnce: 5,
    })
    expect(await page.getByText(secret ?? '').count()).toBe(0)
  })

  it('jumps anywhere from the command palette, and lists the shortcuts', async () => {
    await go(`${root}/branches`)
    await page.getByRole('link', { name: 'dev', exact: true }).waitFor()
    await page.keyboard.press('Control+k')
    await page.getByRole('combobox', { name: 'Go to' }).fill('customers')
    await page.keyboard.press('Enter')
    await page.waitForURL(`**${root}/b/main/tables/customers`)
    await page.getByRole('heading', { level: 1 }).click()
    await go(`${root}/branches`)
    await page.getByRole('heading', { level: 1, name: 'Branches' }).waitFor()
    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor()
    await shared.expectClean()
    await page.keyboard.press('Escape')
  })

  it('says that the service is away, and goes on when it is back', async () => {
    await go(`${root}/branches`)
    await page.getByRole('link', { name: 'dev', exact: true }).waitFor()
    // The code of the other pages is loaded after the first one.
    await page.waitForLoadState('networkidle')
    await shared.context.setOffline(true)
    try {
      await page.getByRole('link', { name: 'Git and rules' }).click()
      await page.getByText('The service does not answer').waitFor()
    } finally {
      await shared.context.setOffline(false)
    }
    await page.getByText('The service does not answer').waitFor({ state: 'detached' })
    await page.getByRole('cell', { name: 'feat/login', exact: true }).waitFor()
    shared.faults.splice(0)
  })

  it('offers a key with a narrow scope only what it may do', async () => {
    const key = await createKey(tested.service, 'narrow', {
      fields: { scope: { databases: ['sample'], branches: ['main', 'dev'], access: 'read' } },
    })
    const narrow = await tested.open(`${root}/branches`, {
      key,
      viewport: { width: 390, height: 800 },
      colorScheme: 'dark',
    })
    await narrow.page.getByRole('link', { name: 'dev', exact: true }).waitFor()
    expect(
      await narrow.page.getByRole('list', { name: 'Branches' }).getByRole('listitem').count(),
    ).toBe(2)
    expect(await narrow.page.getByRole('button', { name: 'New branch' }).count()).toBe(0)
    await narrow.page.getByRole('button', { name: 'Actions of dev' }).click()
    await narrow.page.getByRole('menuitem', { name: 'Show difference' }).waitFor()
    expect(await narrow.page.getByRole('menuitem', { name: 'Fork…' }).count()).toBe(0)
    await narrow.page.keyboard.press('Escape')
    await narrow.expectClean()
    await narrow.page.goto('/console/keys')
    await narrow.page.getByText('limited by the scope').waitFor()
    expect(await narrow.page.getByRole('button', { name: 'New key' }).count()).toBe(0)
  })

  it('plots live metrics of the process', async () => {
    await go('/console/metrics')
    await page.getByRole('img', { name: 'Requests' }).waitFor()
    await page.getByText(/requests since the start/).waitFor()
    await shared.expectClean()
  })
})
