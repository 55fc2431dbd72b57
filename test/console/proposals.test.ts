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

  it('are made on the page of a branch and edited, and approvals become stale', async () => {
    await branches.fork('winter')
    await branches.patch('winter', 'items', 'ink', { price: 9 })
    const database = `/console/w/${tested.service.workspaceId}/db/shop`
    const { page, visit, expectClean } = await tested.open(`${database}/b/winter`)
    await page.getByRole('link', { name: 'Propose a merge' }).click()
    const dialog = page.getByRole('dialog', { name: 'Propose a merge' })
    expect(await dialog.getByLabel('Branch', { exact: true }).inputValue()).toBe('winter')
    await dialog.getByLabel('Title').fill('Winter')
    await dialog.getByRole('button', { name: 'Propose' }).click()
    await page.getByRole('heading', { name: '#2 Winter' }).waitFor()
    await page.getByRole('button', { name: 'Edit' }).click()
    await page.getByLabel('Title').fill('Winter prices')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('heading', { name: '#2 Winter prices' }).waitFor()
    const approvals = `${tested.service.workspace}/dbs/shop/proposals/2/approvals`
    expectOk(await tested.service.call('POST', approvals, { key: ada.key }))
    await branches.patch('winter', 'items', 'ink', { price: 8 })
    await page.reload()
    await page.getByText('winter has changed since the last review').waitFor()
    await page.getByText('stale', { exact: true }).waitFor()
    await page.getByText('0 of 1 approvals').waitFor()
    await takeShot(page, 'proposal-stale')
    await expectClean()
    await visit(`${database}/branches`)
    await page.getByRole('button', { name: 'Actions of main' }).click()
    await page.getByRole('menuitem', { name: 'Required approvals…' }).click()
    await page.getByLabel('Approvals that a change needs').fill('2')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('2 approvals', { exact: true }).waitFor()
  })
})
