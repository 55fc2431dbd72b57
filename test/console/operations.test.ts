import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { holdBranch } from '../support/held-branch.js'
import { createServiceBeside, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import { hasChromium, testConsole } from './chromium.js'
import { takeShot } from './shots.js'

/*
 * Every answer is late, and a lock on the rows of the merged branch keeps a merge from ending.
 */
describe.skipIf(!hasChromium)('long work in the console', () => {
  const tested = testConsole({ limits: { answerWithinMs: 0, mergeLockedRowsMax: 0 } })
  /** Another process, whose answers are not late. */
  let patient: TestService
  let branches: TestBranches

  beforeAll(async () => {
    patient = await createServiceBeside(tested.service, { limits: { mergeLockedRowsMax: 0 } })
    branches = await TestBranches.create(patient, 'shop', {
      items: [{ name: 'price', type: 'int' }],
    })
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.fork('dev')
    await branches.put('dev', 'items', 'b', { price: 2 })
  })
  afterAll(() => patient.close())

  it('a merge shows its progress, also after a reload, and is cancelled or ends', async () => {
    const address = `/console/w/${tested.service.workspaceId}/db/shop/b/dev/merge`
    const { page, expectClean } = await tested.open(address)
    const merge = page.getByRole('button', { name: 'Merge into main' })
    const progress = page.getByRole('region', { name: 'Progress of the merge' })
    await merge.waitFor()
    let release = await holdBranch(branches, 'dev')
    await merge.click()
    await progress.getByText('Reading the branches').waitFor()
    await takeShot(page, 'operation')
    await expectClean()
    await page.reload()
    await progress.getByRole('button', { name: 'Cancel' }).click()
    await page.waitForURL((url) => !url.searchParams.has('operation'))
    await release()
    await page.getByRole('alert').getByText('was cancelled').waitFor()
    expect(await branches.record('main', 'items', 'b')).toBeUndefined()
    await merge.waitFor()
    release = await holdBranch(branches, 'dev')
    await merge.click()
    await progress.waitFor()
    await release()
    await page.getByRole('heading', { name: 'dev is merged into main' }).waitFor()
    expect(await branches.record('main', 'items', 'b')).toMatchObject({ price: 2 })
  })

  it('the timeline shows what runs on the branch, and cancels it', async () => {
    const { workspace, key } = tested.service
    const release = await holdBranch(branches, 'dev')
    const merge = await tested.service.call('POST', `${workspace}/db/shop:dev/merge`, { key })
    expect(merge.status).toBe(202)
    const address = `/console/w/${tested.service.workspaceId}/db/shop/b/dev/timeline`
    const { page } = await tested.open(address)
    const progress = page.getByRole('region', { name: 'Progress of the merge' })
    await progress.getByRole('button', { name: 'Cancel' }).click()
    await progress.waitFor({ state: 'detached' })
    await release()
  })

  it('an edit of the schema shows its progress, also after a reload', async () => {
    const address = `/console/w/${tested.service.workspaceId}/db/shop/b/main/schema`
    const { page, expectClean } = await tested.open(address)
    await page.getByRole('button', { name: 'Actions of items' }).click()
    await page.getByRole('menuitem', { name: 'Add constraint…' }).click()
    await page.getByRole('textbox', { name: /^Name/ }).fill('positive')
    await page.getByRole('combobox', { name: 'Rule' }).selectOption('check')
    await page.getByRole('textbox', { name: /^Condition/ }).fill('price > 0')
    await page.getByRole('button', { name: 'Add to the edits' }).click()
    await page.getByRole('button', { name: 'Review and apply' }).click()
    const release = await holdBranch(branches, 'main')
    await page.getByRole('button', { name: 'Apply', exact: true }).click()
    const progress = page.getByRole('region', { name: 'Progress of the migration' })
    await progress.waitFor()
    await page.waitForURL((url) => url.searchParams.has('operation'))
    await page.reload()
    await progress.waitFor()
    await expectClean()
    await release()
    await page.getByText('The schema was changed').waitFor()
    await page.getByText('price > 0').waitFor()
    await page.waitForURL((url) => !url.searchParams.has('operation'))
  })

  it('a merge of a proposal is followed by a page that is loaded again', async () => {
    const { service } = tested
    await branches.fork('sale')
    await branches.put('sale', 'items', 'c', { price: 3 })
    const path = `${service.workspace}/dbs/shop/proposals`
    expectOk(await service.call('POST', path, { body: { from: 'sale', title: 'Sale' } }))
    const { status, body } = await service.call('POST', `${path}/1/merge`)
    expect(status).toBe(202)
    const { page, expectClean } = await tested.open(
      `/console/w/${service.workspaceId}/db/shop/proposals/1?operation=${body.operation.id}`,
    )
    await page.getByText('Merged', { exact: true }).waitFor()
    await page.waitForURL((url) => !url.searchParams.has('operation'))
    await page.getByText('merged', { exact: true }).first().waitFor()
    await expectClean()
    expect(await branches.record('main', 'items', 'c')).toMatchObject({ price: 3 })
  })

  it('a change of all rows shows its progress, also after a reload', async () => {
    const filter = encodeURIComponent(JSON.stringify({ price: 1 }))
    const { page } = await tested.open(
      `/console/w/${tested.service.workspaceId}/db/shop/b/main/tables/items?filter=${filter}`,
    )
    await page.getByRole('button', { name: 'All found' }).click()
    await page.getByRole('menuitem', { name: 'Change a column of all…' }).click()
    await page.getByRole('textbox', { name: /^New value/ }).fill('9')
    const change = page.getByRole('button', { name: 'Change 1 row' })
    await change.waitFor()
    const release = await holdBranch(branches, 'main', 'writers')
    await change.click()
    const progress = page.getByRole('region', { name: 'Progress of the update' })
    await progress.waitFor()
    await page.reload()
    await progress.waitFor()
    await release()
    await page.getByText('1 row is changed').waitFor()
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ price: 9 })
  })
})
