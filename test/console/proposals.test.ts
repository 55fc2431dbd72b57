import { beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { addMember, createUser, type TestUser } from '../support/people.js'
import { expectOk } from '../support/tables.js'
import { hasChromium, PATIENCE_MS, testConsole } from './chromium.js'
import { takeShot } from './shots.js'

describe.skipIf(!hasChromium)('proposals in the console', () => {
  const tested = testConsole()
  let branches: TestBranches
  let ada: TestUser

  beforeAll(async () => {
    const { service } = tested
    ada = await createUser(service, 'ada')
    await addMember(service, ada)
    branches = await TestBranches.create(service, 'shop', {
      items: [
        { name: 'name', type: 'string' },
        { name: 'price', type: 'int' },
      ],
    })
    await branches.put('main', 'items', 'pen', { name: 'Pen', price: 2 })
    await branches.put('main', 'items', 'ink', { name: 'Ink', price: 7 })
    await branches.fork('sale')
    await branches.patch('sale', 'items', 'ink', { price: 5 })
    await branches.remove('sale', 'items', 'pen')
    expectOk(await branches.call('main', 'PATCH', '', { protected: true, requiredApprovals: 1 }))
    const body = { from: 'sale', title: 'Cheaper ink', body: 'For the summer.' }
    const path = `${service.workspace}/dbs/shop/proposals`
    expectOk(await service.call('POST', path, { key: ada.key, body }))
  })

  it('are listed, commented on in the difference, approved and merged', async () => {
    const base = `/console/w/${tested.service.workspaceId}/db/shop/proposals`
    const { page, expectClean } = await tested.open(base)
    await page.getByRole('link', { name: '#1 Cheaper ink' }).waitFor()
    await takeShot(page, 'proposals')
    await page.getByRole('link', { name: '#1 Cheaper ink' }).click()
    await page.getByRole('heading', { name: '#1 Cheaper ink' }).waitFor()
    await page.getByRole('button', { name: 'Comment on items ink price' }).click()
    await page.getByLabel('Text').fill('In euros?')
    await page.getByRole('button', { name: 'Comment', exact: true }).last().click()
    await expect.poll(() => page.getByText('In euros?').count(), { timeout: PATIENCE_MS }).toBe(2)
    await page.getByRole('button', { name: 'Approve' }).click()
    await page.getByText('1 of 1 approvals').waitFor()
    await takeShot(page, 'proposal')
    await expectClean()
    await page.getByRole('button', { name: 'Merge', exact: true }).click()
    await page.getByText('merged', { exact: true }).first().waitFor()
    expect(await branches.record('main', 'items', 'ink')).toMatchObject({ price: 5 })
  })
})
