import { readFile } from 'node:fs/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { addMember, createUser } from '../support/people.js'
import { expectOk } from '../support/tables.js'
import { hasChromium, testConsole } from './chromium.js'
import { takeShot } from './shots.js'

describe.skipIf(!hasChromium)('history in the console', () => {
  const tested = testConsole({ limits: { automaticCheckpointsMax: 20 }, postgresPort: 6432 })
  let branches: TestBranches
  const address = (page: string) =>
    `/console/w/${tested.service.workspaceId}/db/shop/b/main${page === '' ? '' : `/${page}`}`

  beforeAll(async () => {
    branches = await TestBranches.create(tested.service, 'shop', {
      items: [
        { name: 'name', type: 'string' },
        { name: 'price', type: 'int' },
      ],
      notes: [{ name: 'text', type: 'string' }],
    })
    await branches.edit('main', { alterTable: { table: 'items', history: { keep: '30d' } } })
    await branches.put('main', 'items', 'ink', { name: 'Ink', price: 7 })
    await branches.put('main', 'items', 'pen', { name: 'Pen', price: 2 })
    await branches.put('main', 'notes', 'first', { text: 'Hello' })
    expectOk(await branches.call('main', 'POST', '/checkpoints', { name: 'monday' }))
    await branches.fork('sale')
    await branches.patch('sale', 'items', 'ink', { price: 5 })
    await branches.patch('sale', 'items', 'pen', { price: 1 })
    await branches.merge('sale')
    await branches.patch('main', 'items', 'pen', { price: 3 })
  })

  it('the timeline lists what happened, and keeps, renames and deletes checkpoints', async () => {
    const { page, expectClean } = await tested.open(address('timeline'))
    const list = page.getByRole('list', { name: 'Timeline' })
    const merge = list.getByRole('listitem').filter({ hasText: 'Merged sale' })
    await merge.getByText('1 table, 2 updated').waitFor()
    await merge.getByText(/admin@offshoot\.local, key first/).waitFor()
    await page.getByRole('button', { name: 'Checkpoint', exact: true }).click()
    await page.getByRole('textbox', { name: /^Name/ }).fill('tuesday')
    await page.getByLabel('Note').fill('after the sale')
    await page.getByRole('button', { name: 'Make checkpoint' }).click()
    const made = list.getByRole('listitem').filter({ hasText: 'tuesday' })
    await made.getByText('after the sale').waitFor()
    const act = async (name: string, item: string) => {
      await list.getByRole('button', { name: `Actions of ${name}` }).click()
      await page.getByRole('menuitem', { name: item }).click()
    }
    await act('tuesday', 'Rename…')
    await page.getByRole('textbox', { name: /^Name/ }).fill('wednesday')
    await page.getByRole('button', { name: 'Save' }).click()
    await list.getByText('wednesday').waitFor()
    // What a migration has only added needs no checkpoint.
    await list.getByRole('link', { name: 'Revert: Changed the schema' }).first().waitFor()
    await takeShot(page, 'timeline')
    await expectClean()
    await act('wednesday', 'Delete…')
    await page.getByRole('button', { name: 'Delete checkpoint' }).click()
    await list.getByText('Deleted the checkpoint wednesday').waitFor()
    await page.getByRole('combobox', { name: 'Kind of entry' }).selectOption('merge')
    await list.getByText('Changed the schema').first().waitFor({ state: 'detached' })
    expect(await list.getByRole('listitem').count()).toBe(1)
  })

  it('a schedule makes checkpoints, and is changed and ended', async () => {
    const { page, expectClean } = await tested.open(address('timeline'))
    const dialog = page.getByRole('dialog', { name: 'Checkpoints of main' })
    const scheduled = async () => (await branches.call('main', 'GET', '')).body.checkpoints
    await page.getByRole('button', { name: 'Schedule' }).click()
    await dialog.getByLabel('Make checkpoints regularly').check()
    await dialog.getByLabel('Every').fill('30')
    await dialog.getByLabel('Unit').selectOption('minutes')
    await dialog.getByLabel('Keep the newest').fill('48')
    await takeShot(page, 'schedule')
    await expectClean()
    await dialog.getByRole('button', { name: 'Save' }).click()
    await page.getByText('The schedule is saved').waitFor()
    expect(await scheduled()).toEqual({ every: 1800, keep: 48 })
    await page.getByRole('button', { name: 'Schedule' }).click()
    await expect.poll(() => dialog.getByLabel('Every').inputValue()).toBe('30')
    await dialog.getByLabel('Make checkpoints regularly').uncheck()
    await dialog.getByRole('button', { name: 'Save' }).click()
    await page.getByText('There is no schedule any more').waitFor()
    expect(await scheduled()).toBeUndefined()
  })

  it('the page of a branch has its address for clients of PostgreSQL, without a key', async () => {
    const { page } = await tested.open(address(''))
    const card = page.getByRole('region', { name: 'PostgreSQL address' })
    const expected = `postgresql://${tested.service.workspaceId}:API_KEY@127.0.0.1:6432/shop:main`
    await card.getByText(expected, { exact: true }).waitFor()
    await card.getByRole('button', { name: 'Copy the PostgreSQL address' }).click()
    await page.getByText('Copied').waitFor()
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe(expected)
  })

  it('a change is reverted after a dry run, with conflicts settled as in a merge', async () => {
    const { page, expectClean } = await tested.open(address('timeline'))
    await page.getByRole('link', { name: 'Revert: Merged sale' }).click()
    await page.getByRole('heading', { level: 1, name: 'Revert' }).waitFor()
    const conflict = page.getByRole('article', { name: 'Conflict of items / pen' })
    await conflict.getByRole('button', { name: 'Take the earlier state' }).waitFor()
    await takeShot(page, 'revert')
    await expectClean()
    await conflict.getByRole('button', { name: 'Keep main' }).click()
    await page.getByRole('button', { name: 'Revert on main' }).click()
    await page.getByRole('heading', { name: 'The change of main is reverted' }).waitFor()
    expect(await branches.record('main', 'items', 'ink')).toMatchObject({ price: 7 })
    expect(await branches.record('main', 'items', 'pen')).toMatchObject({ price: 3 })
  })

  it('the grid shows a checkpoint, read-only, and goes back to the present', async () => {
    const { page, expectClean } = await tested.open(address('tables/items'))
    await page.getByRole('gridcell', { name: '3', exact: true }).waitFor()
    await page.getByRole('button', { name: 'As of: now' }).click()
    await page.getByRole('option', { name: /monday/ }).click()
    await page.getByRole('gridcell', { name: '2', exact: true }).waitFor()
    await page.getByText('As of checkpoint monday').waitFor()
    expect(new URL(page.url()).searchParams.get('at')).toMatch(/^cp_/)
    expect(await page.getByRole('button', { name: 'Insert row' }).count()).toBe(0)
    await takeShot(page, 'as-of')
    await expectClean()
    // The address keeps the checkpoint.
    await page.reload()
    await page.getByRole('gridcell', { name: '2', exact: true }).waitFor()
    await page.getByRole('link', { name: 'Back to the present' }).click()
    await page.getByRole('gridcell', { name: '3', exact: true }).waitFor()
    await page.getByRole('button', { name: 'Insert row' }).waitFor()
    // A time stands for the last checkpoint before it.
    await page.getByRole('button', { name: 'As of: now' }).click()
    await page.getByLabel('The last checkpoint before').fill('2999-01-01T00:00')
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.getByText(/^As of checkpoint/).waitFor()
  })

  it('a record shows its versions, and one of them is restored', async () => {
    const { page, expectClean } = await tested.open(address('tables/items'))
    await page.getByRole('gridcell', { name: 'Pen', exact: true }).click()
    await page.getByRole('button', { name: 'Row', exact: true }).click()
    await page.getByRole('menuitem', { name: 'History of the record' }).click()
    const versions = page.getByRole('list', { name: 'Versions' }).getByRole('listitem')
    await versions.filter({ hasText: 'merge' }).waitFor()
    await takeShot(page, 'record-history')
    await expectClean()
    const inserted = versions.filter({ hasText: 'inserted' })
    await inserted.getByText(/by admin@offshoot\.local, key first/).waitFor()
    await inserted.getByRole('button', { name: 'Restore' }).click()
    await page.getByText('pen has the values of that version').waitFor()
    expect(await branches.record('main', 'items', 'pen')).toMatchObject({ price: 2 })
    await page.keyboard.press('Escape')
    await page.getByRole('gridcell', { name: '2', exact: true }).waitFor()
  })

  it('a record of a table without versions shows its states at checkpoints and on branches', async () => {
    const { page, expectClean } = await tested.open(address('tables/notes'))
    await page.getByRole('gridcell', { name: 'Hello', exact: true }).click()
    await page.getByRole('button', { name: 'Row', exact: true }).click()
    await page.getByRole('menuitem', { name: 'History of the record' }).click()
    const states = page.getByRole('list', { name: 'States' }).getByRole('listitem')
    await states.filter({ hasText: 'monday' }).getByText('the same as now').waitFor()
    await expectClean()
    await page.keyboard.press('Escape')
  })

  it('a reset to a checkpoint says what it loses, and a fork starts from one', async () => {
    const { page } = await tested.open(address('timeline'))
    await page.getByRole('button', { name: 'Actions of monday' }).click()
    await page.getByRole('menuitem', { name: 'Fork from here…' }).click()
    await page.getByRole('textbox', { name: /^Name/ }).fill('from-monday')
    await page.getByRole('button', { name: 'Create branch' }).click()
    await page.waitForURL('**/b/from-monday')
    expect(await branches.record('from-monday', 'items', 'pen')).toMatchObject({ price: 2 })
    await branches.remove('main', 'items', 'ink')
    await tested.open(address('timeline'))
    await page.getByRole('button', { name: 'Actions of monday' }).click()
    await page.getByRole('menuitem', { name: 'Reset to here…' }).click()
    const dialog = page.getByRole('dialog', { name: 'Reset main to monday' })
    await dialog.getByText('These changes since the checkpoint are lost:').waitFor()
    await dialog.getByText('makes a checkpoint before').waitFor()
    await takeShot(page, 'reset')
    await dialog.getByRole('button', { name: 'Reset branch' }).click()
    await page.getByText('main is as it was at that time').waitFor()
    expect(await branches.record('main', 'items', 'ink')).toMatchObject({ price: 7 })
    const reset = page.getByRole('listitem').filter({ hasText: 'Reset to a checkpoint of main' })
    await reset.getByRole('link', { name: /^Revert/ }).waitFor()
  })

  it('what happened between two checkpoints is reverted', async () => {
    await branches.fork('lab')
    expectOk(await branches.call('lab', 'POST', '/checkpoints', { name: 'before-import' }))
    await branches.put('lab', 'notes', 'wrong', { text: 'Imported' })
    expectOk(await branches.call('lab', 'POST', '/checkpoints', { name: 'after-import' }))
    const lab = `/console/w/${tested.service.workspaceId}/db/shop/b/lab/timeline`
    const { page } = await tested.open(lab)
    await page.getByRole('button', { name: 'Actions of after-import' }).click()
    await page.getByRole('menuitem', { name: 'Revert what came after before-import…' }).click()
    await page.getByText('what happened between before-import and after-import').waitFor()
    await page.getByRole('button', { name: 'Revert on lab' }).click()
    await page.getByRole('heading', { name: 'The change of lab is reverted' }).waitFor()
    expect(await branches.record('lab', 'notes', 'wrong')).toBeUndefined()
  })

  it('owners read the audit log, filter it and download it; others do not see it', async () => {
    const audit = `/console/w/${tested.service.workspaceId}/audit`
    const { page, expectClean } = await tested.open(audit)
    await page.getByRole('cell', { name: 'Merged sale' }).waitFor()
    await takeShot(page, 'audit')
    await expectClean()
    await page.getByRole('combobox', { name: 'Kind of entry' }).selectOption('merge')
    await page
      .getByRole('cell', { name: 'Made the checkpoint monday' })
      .waitFor({ state: 'detached' })
    await page.getByRole('cell', { name: 'Merged sale' }).waitFor()
    const started = page.waitForEvent('download')
    await page.getByRole('button', { name: 'Download NDJSON' }).click()
    const lines = (await readFile(await (await started).path(), 'utf8')).trim().split('\n')
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ kind: 'merge' }])
    const ada = await createUser(tested.service, 'ada')
    await addMember(tested.service, ada)
    const other = await tested.open(audit, { key: ada.key })
    await other.page.getByText('Only owners can read the audit log').waitFor()
    expect(await other.page.getByRole('link', { name: 'Audit log' }).count()).toBe(0)
  })
})
