import { beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { hasChromium, PATIENCE_MS, testConsole } from '../console/chromium.js'
import { createDatabase } from '../support/people.js'
import { branchCall, createTables, expectOk } from '../support/tables.js'

const SCRIPT = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
/** Right-to-left text with an override that would turn the rest of a line around, and joined emoji. */
const STRANGE = '\u202eعربى עברית 👩‍👩‍👧‍👦🏳️‍🌈'
const LONG = 'n'.repeat(255)

/** Names elements that are wider than the window, if the page or its content can be scrolled sideways. */
const STICKS_OUT = `
  [document.documentElement, document.querySelector('main')].every((one) => one.scrollWidth <= innerWidth)
    ? [] : [...document.querySelectorAll('main *, header *')]
    .filter((one) => one.getBoundingClientRect().right > innerWidth)
    .map((one) => location.pathname.split('/').pop().slice(0, 9) + ': ' + one.tagName + ' ' + one.className)
    .slice(0, 5)
`

describe.skipIf(!hasChromium)('the console at its limits', () => {
  const tested = testConsole({ postgresPort: 6432 })
  const base = (database: string) => `/console/w/${tested.service.workspaceId}/db/${database}`

  describe('with values that are hostile, strange or long', () => {
    beforeAll(async () => {
      const call = await createTables(tested.service, 'odd', {
        [LONG]: [{ name: 'text', type: 'text' }],
        notes: [
          { name: 'title', type: 'string' },
          { name: 'text', type: 'text' },
          { name: LONG, type: 'string' },
          { name: 'list', type: 'multiple' },
          { name: 'json', type: 'json' },
          { name: 'other', type: 'link', link: { table: LONG } },
        ],
      })
      expectOk(await call('PUT', `/tables/${LONG}/data/${LONG}`, { body: { text: STRANGE } }))
      const text = `${SCRIPT}${STRANGE}${'wide '.repeat(209_000)}`
      expectOk(await call('PUT', '/tables/notes/data/large', { body: { title: 'large', text } }))
      const odd = {
        title: SCRIPT,
        text: STRANGE,
        [LONG]: SCRIPT,
        list: [SCRIPT, STRANGE],
        json: { [SCRIPT]: STRANGE },
        other: LONG,
      }
      expectOk(await call('PUT', '/tables/notes/data/odd', { body: odd }))
      const fork = branchCall(tested.service, 'odd', { branch: LONG })
      expectOk(await fork('PUT', '', { body: { from: 'main' } }))
      expectOk(await fork('PATCH', '/tables/notes/data/odd', { body: { text: SCRIPT } }))
      expectOk(await fork('PATCH', '/tables/notes/data/large', { body: { text: 'short' } }))
      expectOk(await call('PATCH', '/tables/notes/data/odd', { body: { text: STRANGE + SCRIPT } }))
      const checkpoint = { name: LONG, note: STRANGE + SCRIPT }
      expectOk(await fork('POST', '/checkpoints', { body: checkpoint }))
      const proposal = { from: LONG, title: SCRIPT, body: STRANGE }
      const proposals = `${tested.service.workspace}/dbs/odd/proposals`
      expectOk(await tested.service.call('POST', proposals, { body: proposal }))
    })

    it('shows them as text on every page, which never scroll sideways on a narrow screen', async () => {
      const { page, visit, expectClean } = await tested.open('/console/', {
        viewport: { width: 360, height: 740 },
      })
      const workspace = `/console/w/${tested.service.workspaceId}`
      const branch = `${base('odd')}/b/${LONG}`
      const pages: [address: string, text: string][] = [
        ['/console/', 'odd'],
        ['/console/?all', 'Workspaces'],
        ['/console/keys', 'API keys'],
        ['/console/metrics', 'requests since the start'],
        [`${workspace}/members`, 'E-mail'],
        [`${workspace}/settings`, 'Storage'],
        [`${base('odd')}/branches`, LONG],
        [`${base('odd')}/git`, 'Map a git branch'],
        [`${base('odd')}/settings`, 'Colour'],
        [branch, 'notes'],
        [`${branch}/tables/notes`, 'large'],
        [`${branch}/tables/${LONG}`, STRANGE],
        [`${branch}/schema`, 'Table'],
        [`${branch}/sql`, 'Results appear here'],
        [`${workspace}/audit`, 'Forked from main'],
        [`${base('odd')}/proposals`, SCRIPT],
        [`${base('odd')}/proposals/1`, SCRIPT],
        [`${branch}/timeline`, SCRIPT],
        [`${branch}?at=${LONG}`, 'The past is read-only'],
        [`${branch}/tables/notes?at=${LONG}`, 'large'],
        [`${branch}/diff`, SCRIPT],
        [`${branch}/merge`, SCRIPT],
        [`${branch}/files`, 'No column holds files'],
      ]
      for (const [address, text] of pages) {
        await visit(address)
        // The page before it shows the same texts.
        if (address.endsWith('/merge')) {
          await page.getByRole('heading', { level: 1, name: 'Merge and pull' }).waitFor()
        }
        await page.getByRole('main').getByText(text).first().waitFor({ state: 'attached' })
        await expect
          .poll(async () => ((await page.evaluate(STICKS_OUT)) as string[]).join('\n'), {
            timeout: PATIENCE_MS,
          })
          .toBe('')
        if (address.endsWith('/merge')) await expectClean()
      }
      // On a narrow screen, a button opens the navigation.
      await page.getByRole('button', { name: 'Navigation' }).click()
      await page.getByRole('navigation').getByRole('link', { name: 'SQL' }).click()
      await page.getByRole('heading', { level: 1, name: 'SQL' }).waitFor()
      await visit(`${branch}/tables/notes`)
      for (const column of [1, 2, 3, 4, 5]) {
        await page.locator(`[data-cell="1:${column}"]`).dblclick()
        await page.keyboard.press('Escape')
      }
      await page.getByRole('button', { name: 'Insert row' }).click()
      await page.getByText('1 row changed, not saved').waitFor()
      expect(await page.evaluate("'hacked' in window")).toBe(false)
    })

    it('takes them in the text fields of its dialogs', async () => {
      const { page, faults } = await tested.open(`${base('odd')}/branches`)
      await page.getByRole('button', { name: 'New branch' }).click()
      await page.getByLabel('Name').fill(SCRIPT)
      await page.getByRole('button', { name: 'Create branch' }).click()
      await page.getByRole('dialog').getByRole('alert').waitFor()
      await page.keyboard.press('Escape')
      await page.getByLabel('Search branches').fill(SCRIPT)
      await page.getByText(`No branch has “${SCRIPT}” in its name.`).waitFor()
      await page.getByLabel('Search branches').fill('')
      await tested.open('/console/keys')
      await page.getByRole('button', { name: 'New key' }).click()
      await page.getByLabel('Name', { exact: true }).fill(SCRIPT)
      await page.getByRole('button', { name: 'Create key' }).click()
      await page.getByRole('button', { name: 'I have stored it' }).click()
      await page.getByRole('cell', { name: SCRIPT, exact: true }).waitFor()
      await tested.open(`${base('odd')}/b/main/tables/notes`)
      await page.getByLabel('Full-text search').fill(SCRIPT)
      await page.keyboard.press('Enter')
      await page.getByRole('gridcell', { name: 'odd', exact: true }).waitFor()
      await tested.open(`/console/w/${tested.service.workspaceId}/settings`)
      const before = await page.getByLabel('Name').inputValue()
      for (const name of [`${SCRIPT} ${STRANGE}`, before]) {
        await page.getByLabel('Name').fill(name)
        await page.getByRole('button', { name: 'Save' }).click()
        await page.getByRole('navigation', { name: 'Place' }).getByText(name).waitFor()
      }
      expect(await page.evaluate("'hacked' in window")).toBe(false)
      // The service has refused the name of the branch.
      expect(faults.splice(0)).toEqual([expect.stringContaining('400')])
    })

    it('takes them in every other form, editor and search', async () => {
      const { page, visit, faults } = await tested.open('/console/keys')
      const workspace = `/console/w/${tested.service.workspaceId}`
      const main = `${base('odd')}/b/main`
      const dialog = page.getByRole('dialog')
      const form = dialog.locator('form')
      const refusal = form.getByRole('alert').or(form.locator('input:invalid'))
      const forms: [address: string, button: string][] = [
        ['/console/?all', 'New workspace'],
        [workspace, 'New database'],
        [`${workspace}/members`, 'Invite'],
        [`${base('odd')}/git`, 'Map a git branch'],
        [`${base('odd')}/git`, 'Add a rule'],
        [`${base('odd')}/settings`, 'Delete database'],
        [`${main}/schema`, 'New table'],
        [`${main}/schema`, 'Column'],
        ['/console/keys', 'New key'],
      ]
      for (const [address, button] of forms) {
        await visit(address)
        await page.getByRole('button', { name: button, exact: true }).first().click()
        if (button === 'Invite') await dialog.getByRole('checkbox').check()
        for (const field of await form.locator('input:not([type]), input[type=email]').all()) {
          // A column with a default value cannot be computed.
          if (await field.isEnabled()) await field.fill(SCRIPT)
        }
        const submit = form.locator('[type=submit]')
        if (await submit.isEnabled()) {
          await submit.click()
          const isOver = async () => (await form.count()) === 0 || (await refusal.count()) > 0
          await expect.poll(isOver, { timeout: PATIENCE_MS, message: button }).toBe(true)
        }
        await page.keyboard.press('Escape')
        await dialog.waitFor({ state: 'detached' })
      }
      await visit('/console/?all')
      await page.getByRole('main').getByText(SCRIPT).first().waitFor()

      await visit(`/console/join/${encodeURIComponent(SCRIPT)}`)
      await page.getByLabel('Key of the invite').fill(SCRIPT)
      await page.getByRole('button', { name: 'Accept the invite' }).click()
      await page.getByRole('alert').waitFor()

      await visit(`${main}/sql`)
      const editor = page.getByRole('textbox', { name: 'SQL statements' })
      await editor.fill(`select '${SCRIPT}' as "text"`)
      await page.getByRole('button', { name: 'Run' }).click()
      await page.getByRole('gridcell', { name: SCRIPT }).waitFor()
      await page.getByRole('button', { name: 'History' }).click()
      await dialog.getByRole('button', { name: SCRIPT }).first().waitFor()
      await page.keyboard.press('Escape')

      await visit(`${main}/tables/notes`)
      await page.getByRole('button', { name: 'Filter', exact: true }).click()
      await page.getByLabel('Column', { exact: true }).selectOption('title')
      await page.getByLabel('Value').fill(SCRIPT)
      await page.getByRole('button', { name: 'Apply' }).click()
      await page.getByText('1 row found').waitFor()
      await page.locator('.filter-chip', { hasText: SCRIPT }).waitFor()
      await page.getByRole('button', { name: 'Filter', exact: true }).click()
      await page.getByRole('button', { name: 'As text' }).click()
      await page.getByLabel('Filter as JSON').fill(SCRIPT)
      await page.getByRole('button', { name: 'Apply' }).click()
      await page.getByRole('alert').waitFor()
      await page.keyboard.press('Escape')
      // The editors of a list and of a link.
      await page.locator('[data-cell="0:4"]').dblclick()
      await page.getByLabel('Add to list').fill(SCRIPT)
      await page.keyboard.press('Enter')
      await page.getByRole('button', { name: 'Done' }).click()
      await page.locator('[data-cell="0:5"]').click()
      await page.locator('[data-cell="0:6"]').dblclick()
      await page.getByRole('combobox', { name: /^Search/ }).fill(SCRIPT)
      await page.getByText('Nothing found').waitFor()
      await page.keyboard.press('Escape')
      await page.getByRole('button', { name: 'Discard' }).click()
      await page.getByRole('button', { name: 'Import' }).click()
      const content = `title,"${SCRIPT.replaceAll('"', '""')}"\n"${SCRIPT.replaceAll('"', '""')}",x`
      const file = { name: `${SCRIPT}.csv`, mimeType: 'text/csv', buffer: Buffer.from(content) }
      await page.getByLabel('File').setInputFiles(file)
      await page.getByText('All of the first 1 rows fit').waitFor()
      await page.keyboard.press('Escape')

      await visit(`${base('odd')}/b/${LONG}/merge`)
      await page.getByRole('button', { name: 'other value for text' }).click()
      await page.getByRole('textbox', { name: 'other value for text' }).fill(`${SCRIPT} typed`)
      await page.getByRole('button', { name: 'Use' }).click()
      await page.getByText(`${SCRIPT} typed`).waitFor()
      await page.keyboard.press('Control+k')
      // It finds the workspace that was created above.
      await page.getByRole('combobox', { name: 'Go to' }).fill(SCRIPT)
      await page.getByRole('option', { name: SCRIPT }).first().waitFor()
      await page.keyboard.press('Escape')
      expect(await page.evaluate("'hacked' in window")).toBe(false)
      // The service refuses some of these names and keys.
      expect(faults.splice(0).filter((fault) => !/status of 4\d\d/.test(fault))).toEqual([])
    })
  })

  it('settles conflicts by table, by record and by cell in one merge', async () => {
    const column = [
      { name: 'one', type: 'string' as const },
      { name: 'two', type: 'int' as const },
    ]
    const main = await createTables(tested.service, 'both', { all: column, some: column })
    const ids = ['a', 'b', 'c']
    const write = async (call: typeof main, method: string, one: string, two: number) => {
      for (const table of ['all', 'some']) {
        for (const id of ids) {
          expectOk(await call(method, `/tables/${table}/data/${id}`, { body: { one, two } }))
        }
      }
    }
    await write(main, 'PUT', 'before', 0)
    const fork = branchCall(tested.service, 'both', { branch: 'next' })
    expectOk(await fork('PUT', '', { body: { from: 'main' } }))
    await write(main, 'PATCH', 'ours', 1)
    await write(fork, 'PATCH', 'theirs', 2)
    const { page } = await tested.open(`${base('both')}/b/next/merge`)
    await page.getByText('0 of 6 settled').waitFor()
    const table = (name: string) => page.getByRole('region', { name: `Conflicts of ${name}` })
    const card = (id: string) => page.getByRole('article', { name: `Conflict of some / ${id}` })
    await table('all').getByRole('button', { name: 'Take next' }).first().click()
    await card('a').getByRole('button', { name: 'Keep main' }).click()
    await page.getByText('4 of 6 settled').waitFor()
    await card('b').getByRole('button', { name: 'one: take theirs' }).click()
    await card('b').getByRole('button', { name: 'two: take ours' }).click()
    await card('c').getByRole('button', { name: 'one: take ours' }).click()
    await card('c').getByRole('button', { name: 'other value for two' }).click()
    await card('c').getByRole('textbox', { name: 'other value for two' }).fill('3')
    await card('c').getByRole('button', { name: 'Use' }).click()
    await page.getByText('6 of 6 settled').waitFor()
    await page.getByRole('button', { name: 'Merge into main' }).click()
    await page.getByText('next is merged into main').first().waitFor()
    const rows = async (name: string) => {
      const body = { columns: ['one', 'two'], sort: { id: 'asc' } }
      const answer = expectOk(await main('POST', `/tables/${name}/query`, { body }))
      return answer.body.records.map((row: { one: string; two: number }) => [row.one, row.two])
    }
    expect(await rows('all')).toEqual(ids.map(() => ['theirs', 2]))
    expect(await rows('some')).toEqual([
      ['ours', 1],
      ['theirs', 1],
      ['ours', 3],
    ])
  })

  it('finds, folds and opens one of 10,000 branches', async () => {
    await createDatabase(tested.service, 'crowd')
    const fork = branchCall(tested.service, 'crowd', { branch: 'group-0' })
    expectOk(await fork('PUT', '', { body: { from: 'main' } }))
    // Copies of one fork: 99 beside it, and 99 forks of each of these.
    await tested.service.database.query(sql`
      insert into offshoot.branches
      select copy.*
      from offshoot.branches seed, generate_series(1, 99) n, jsonb_populate_record(
        seed, jsonb_build_object('id', 'crowd_' || n, 'name', 'group-' || n)
      ) copy
      where seed.name = 'group-0'
    `)
    await tested.service.database.query(sql`
      insert into offshoot.branches
      select copy.*
      from offshoot.branches parent, generate_series(1, 99) n, jsonb_populate_record(
        parent, jsonb_build_object(
          'id', parent.id || '_' || n, 'name', parent.name || '-' || n, 'parent_id', parent.id,
          'started_from', jsonb_build_object(
            'branchName', parent.name, 'dbBranchID', parent.id, 'migrationID', parent.last_migration_id
          )
        )
      ) copy
      where parent.name like 'group-%'
    `)
    const { page, expectClean } = await tested.open(`${base('crowd')}/branches`)
    await page.getByText('10,001 branches of crowd').waitFor()
    const list = page.getByRole('list', { name: 'Branches' })
    await list.getByRole('link', { name: 'group-0', exact: true }).waitFor()
    expect(await list.getByRole('listitem').count()).toBeLessThan(60)
    await expectClean()
    await page.getByRole('button', { name: 'Collapse' }).click()
    await list.getByRole('link', { name: 'group-10', exact: true }).waitFor()
    await page.getByRole('button', { name: 'Show 99 branches below group-10' }).click()
    await list.getByRole('link', { name: 'group-10-1', exact: true }).waitFor()
    await page.getByLabel('Search branches').fill('GROUP 57-88')
    await list.getByRole('link', { name: 'group-57-88', exact: true }).waitFor()
    expect(await list.getByRole('listitem').count()).toBe(1)
    await page.getByLabel('Search branches').fill('')
    // From the first to the last with the keyboard.
    await list.getByRole('link', { name: 'main', exact: true }).focus()
    await page.keyboard.press('End')
    await list
      .getByRole('link', { name: /^group-99/ })
      .first()
      .waitFor()
    await page.keyboard.press('Control+k')
    await page.getByRole('combobox', { name: 'Go to' }).fill('group-99-99')
    await page
      .getByRole('option', { name: /group-99-99/ })
      .first()
      .waitFor()
    await page.keyboard.press('Enter')
    await page.waitForURL('**/b/group-99-99**')
    await page.getByRole('button', { name: 'Branch: group-99-99' }).click()
    await page.getByRole('combobox').fill('group-12-34')
    await page.getByRole('option', { name: 'group-12-34' }).click()
    await page.waitForURL('**/b/group-12-34**')
  })
})
