import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { createKey } from '../support/people.js'
import { type BranchCall, createTables, expectOk } from '../support/tables.js'
import { hasChromium, type OpenOptions, PATIENCE_MS, testConsole } from './chromium.js'
import { takeShot } from './shots.js'

const HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='

describe.skipIf(!hasChromium)('the data grid', () => {
  const tested = testConsole()
  let call: BranchCall
  const address = (table: string, search = '') =>
    `/console/w/${tested.service.workspaceId}/db/shop/b/main/tables/${table}${search}`
  const read = async (table: string, id: string) =>
    (await call('GET', `/tables/${table}/data/${id}`)).body
  const open = async (table: string, options?: OpenOptions) => {
    const opened = await tested.open(address(table), options)
    await opened.page.getByRole('heading', { level: 1, name: table, exact: true }).waitFor()
    return opened
  }

  beforeAll(async () => {
    call = await createTables(tested.service, 'shop', {
      sets: [
        { name: 'label', type: 'string' },
        { name: 'number', type: 'int' },
      ],
      makers: [
        { name: 'name', type: 'string' },
        { name: 'town', type: 'string' },
      ],
      products: [
        { name: 'name', type: 'string', notNull: true },
        { name: 'price', type: 'float' },
        { name: 'stock', type: 'int' },
        { name: 'active', type: 'bool' },
        { name: 'maker', type: 'link', link: { table: 'makers' } },
        { name: 'tags', type: 'multiple' },
        { name: 'added', type: 'datetime' },
        { name: 'contact', type: 'email' },
        { name: 'notes', type: 'text' },
        { name: 'details', type: 'json' },
        {
          name: 'size',
          type: 'object',
          columns: [
            { name: 'width', type: 'int' },
            { name: 'height', type: 'int' },
          ],
        },
        { name: 'taste', type: 'vector', vector: { dimension: 4 } },
        { name: 'photo', type: 'file' },
        { name: 'papers', type: 'file[]' },
      ],
      many: [
        { name: 'label', type: 'string' },
        { name: 'number', type: 'int' },
      ],
      people: [{ name: 'name', type: 'string' }],
      texts: [{ name: 'label', type: 'string' }],
      hostile: [
        { name: 'string', type: 'string' },
        { name: 'text', type: 'text' },
        { name: 'multiple', type: 'multiple' },
        { name: 'json', type: 'json' },
        { name: 'x'.repeat(255), type: 'string' },
      ],
    })
    const numbered = [1, 2, 3, 4].map((number) => ({ label: 'low', number }))
    expectOk(await call('POST', '/tables/sets/bulk', { body: { records: numbered } }))
    const insert = async (table: string, records: unknown[]) =>
      expectOk(await call('POST', `/tables/${table}/bulk`, { body: { records } }))
    await insert('makers', [
      { id: 'oak', name: 'Oak & Sons', town: 'Zürich' },
      { id: 'elm', name: 'Elm Ltd', town: 'Lyon' },
    ])
    await insert(
      'products',
      ['Chair', 'Table', 'Lamp', 'Shelf', 'Bench', 'Stool', 'Desk', 'Sofa'].map((name, n) => ({
        id: name.toLowerCase(),
        name,
        price: 19.5 * (n + 1),
        stock: n * 7,
        active: n % 3 !== 0,
        maker: n % 2 === 0 ? 'oak' : 'elm',
        tags: n % 2 === 0 ? ['wood', 'indoor'] : ['metal'],
        added: `2026-0${n + 1}-11T08:30:00Z`,
        contact: `sales${n}@example.com`,
        notes: `The ${name.toLowerCase()} is sold in boxes of ${n + 1}.`,
        details: { colour: n % 2 === 0 ? 'oak' : 'grey', parts: n + 2 },
        size: { width: 40 + n, height: 90 + n },
        taste: [0.1 * n, 0.5, -0.25, 1],
        ...(n === 0 ? { photo: { name: 'chair.png', base64Content: PIXEL } } : {}),
      })),
    )
    await insert('people', [{ id: 'ada', name: 'Ada' }])
    await insert(
      'many',
      Array.from({ length: 5000 }, (_, n) => ({
        id: `row${String(n).padStart(5, '0')}`,
        label: `label ${n}`,
        number: n,
      })),
    )
  })

  it('asks for the first rows while its own code is loading, and only once', async () => {
    const { page, context } = await tested.open('/console/nothing', {})
    let load = () => {}
    const held = new Promise<void>((resolve) => {
      load = resolve
    })
    await context.route('**/console/assets/start-*.js', async (route) => {
      await held
      await route.continue()
    })
    const asked: string[] = []
    page.on('request', (request) => {
      if (request.url().endsWith('/many/query')) asked.push(request.postData() ?? '')
    })
    const firstRows = page.waitForRequest((request) => request.url().endsWith('/many/query'))
    await page.goto(address('many'), { waitUntil: 'commit' })
    await firstRows
    load()
    await page.getByRole('gridcell', { name: 'label', exact: false }).first().waitFor()
    await expect.poll(() => asked.length, { timeout: PATIENCE_MS }).toBe(2)
    // The first rows, and those that follow them.
    expect(new Set(asked).size).toBe(2)
  })

  it('shows all types, and edits are saved as one transaction', async () => {
    const { page, expectClean } = await open('products')
    const grid = page.getByRole('grid', { name: 'Rows of products' })
    await cell(page, 'Chair').waitFor()
    await takeShot(page, 'grid')
    await expectClean()
    // Typing replaces the value; Enter saves it to the list of changes and moves down.
    await cell(page, 'Chair').click()
    await page.keyboard.type('Armchair')
    await page.keyboard.press('Enter')
    await page.keyboard.type('Big desk')
    await page.keyboard.press('Tab')
    await page.keyboard.type('x')
    await page.getByRole('alert').getByText('expected a number').waitFor()
    await page.keyboard.press('Backspace')
    await page.keyboard.type('99.5')
    await page.keyboard.press('Enter')
    expect((await read('products', 'chair')).name).toBe('Chair')
    await page.getByText('2 rows changed, not saved').waitFor()
    await grid.press('Control+z')
    await grid.press('Control+z')
    await page.getByText('1 row changed, not saved').waitFor()
    await page.getByRole('button', { name: 'Redo' }).click()
    await page.getByText('2 rows changed, not saved').waitFor()
    await page.getByRole('button', { name: 'Redo' }).click()
    await takeShot(page, 'grid-changes')
    await expectClean()
    await grid.press('Control+s')
    await page.getByText('Saved 2 rows').waitFor()
    expect((await read('products', 'chair')).name).toBe('Armchair')
    expect(await read('products', 'desk')).toMatchObject({ name: 'Big desk', price: 99.5 })
  })

  it('has an editor for each type', async () => {
    const { page, expectClean, faults } = await open('products')
    const grid = page.getByRole('grid', { name: 'Rows of products' })
    await cell(page, 'Lamp').click()
    const names = [
      ...['id', 'name', 'price', 'stock', 'active', 'maker', 'tags', 'added', 'contact'],
      ...['notes', 'details', 'size', 'taste', 'photo', 'papers'],
    ]
    /** Goes to a column from the nearer end of the row. */
    const go = async (column: string) => {
      const fromStart = names.indexOf(column)
      const fromEnd = names.length - 1 - fromStart
      await grid.press(fromStart < fromEnd ? 'Home' : 'End')
      const key = fromStart < fromEnd ? 'ArrowRight' : 'ArrowLeft'
      for (let steps = Math.min(fromStart, fromEnd); steps > 0; steps--) await grid.press(key)
    }
    await go('active')
    await page.keyboard.press('Enter')
    await page.getByRole('combobox', { name: 'active' }).selectOption('false')
    await page.keyboard.press('Enter')
    await cell(page, 'Lamp').click()
    await go('maker')
    await page.keyboard.type('elm')
    await page.getByRole('option', { name: /Elm Ltd/ }).waitFor()
    await page.getByText('Lyon').waitFor()
    await takeShot(page, 'grid-link')
    await expectClean()
    await page.keyboard.press('Enter')
    await cell(page, 'Lamp').click()
    await go('tags')
    await page.keyboard.press('Enter')
    await page.getByLabel('Add to tags').fill('bright, warm')
    await page.keyboard.press('Enter')
    await page.getByRole('button', { name: 'Done' }).click()
    await go('added')
    await page.keyboard.press('Enter')
    await page.getByLabel('Time, as text with its zone').fill('2026-05-01T10:00:00+02:00')
    await expectClean()
    await page.getByRole('button', { name: 'Done' }).click()
    await go('notes')
    await page.keyboard.press('Enter')
    await page.getByRole('textbox', { name: 'notes' }).fill('first line\nsecond line')
    await page.getByRole('button', { name: 'Done' }).click()
    await go('details')
    await page.keyboard.press('Enter')
    await page.getByRole('textbox', { name: 'details' }).fill('{"a": [1, 2')
    await page.getByText('is not valid JSON').waitFor()
    await page.getByRole('textbox', { name: 'details' }).fill('{"a": [1, 2]}')
    await page.getByRole('button', { name: 'Done' }).click()
    await go('size')
    await page.keyboard.press('Enter')
    await page.getByRole('textbox', { name: 'size' }).fill('{"width": 3}')
    await page.getByRole('button', { name: 'Done' }).click()
    await go('taste')
    await page.keyboard.press('Enter')
    await page.getByRole('textbox', { name: 'taste' }).fill('1, 2, 3')
    await page.getByText('expected 4 numbers, got 3').waitFor()
    await page.getByRole('textbox', { name: 'taste' }).fill('1, 2, 3, 4')
    await page.getByRole('button', { name: 'Done' }).click()
    await save(page)
    await grid.press('Home')
    expect(await read('products', 'lamp')).toMatchObject({
      active: false,
      maker: { id: 'elm' },
      tags: ['wood', 'indoor', 'bright, warm'],
      added: '2026-05-01T08:00:00.000Z',
      notes: 'first line\nsecond line',
      details: { a: [1, 2] },
      size: { width: 3 },
      taste: [1, 2, 3, 4],
    })
    // Files are stored at once.
    await cell(page, 'Lamp').click()
    await go('photo')
    await page.keyboard.press('Enter')
    const content = Buffer.from(PIXEL, 'base64')
    await page
      .getByLabel('Upload a file')
      .setInputFiles({ name: 'lamp 1.png', mimeType: 'image/png', buffer: content })
    await page.getByAltText('Preview of lamp_1.png').waitFor()
    await expectClean()
    await page.keyboard.press('Escape')
    await go('papers')
    await page.keyboard.press('Enter')
    await page.getByLabel('Add files').setInputFiles([
      { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('a') },
      { name: 'b.txt', mimeType: 'text/plain', buffer: Buffer.from('b') },
    ])
    await page.getByRole('button', { name: 'Delete b.txt' }).waitFor()
    await page.getByRole('button', { name: 'Delete a.txt' }).click()
    await page.getByRole('button', { name: 'Delete a.txt' }).waitFor({ state: 'detached' })
    const lamp = await read('products', 'lamp')
    expect(lamp.photo).toMatchObject({ name: 'lamp_1.png', size: content.length })
    expect(lamp.papers).toMatchObject([{ name: 'b.txt' }])
    expect(faults).toEqual([])
  })

  it('inserts, duplicates, pastes and deletes rows', async () => {
    const { page } = await open('makers')
    const grid = page.getByRole('grid', { name: 'Rows of makers' })
    await cell(page, 'Elm Ltd').click()
    await grid.press('Control+d')
    await page.getByText('1 row changed, not saved').waitFor()
    // A range of cells from a spreadsheet, with a cell of two lines.
    await copyText(page, 'ash\tAsh AG\tBern\nyew\t"Yew\nCo"\tOslo')
    await page.getByRole('button', { name: 'Insert row' }).click()
    await page.getByText('2 rows changed, not saved').waitFor()
    await grid.press('Control+Home')
    await grid.press('Control+v')
    await cell(page, 'Ash AG').waitFor()
    await save(page)
    expect(await read('makers', 'ash')).toMatchObject({ name: 'Ash AG', town: 'Bern' })
    expect(await read('makers', 'yew')).toMatchObject({ name: 'Yew\nCo', town: 'Oslo' })
    // A range is copied as a spreadsheet pastes it.
    await cell(page, 'Ash AG').click()
    await grid.press('Shift+ArrowRight')
    await grid.press('Control+c')
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe('Ash AG\tBern')
    await grid.press('Shift+Delete')
    await page.getByText('1 row changed, not saved').waitFor()
    await save(page)
    expect((await call('GET', '/tables/makers/data/ash')).status).toBe(404)
  })

  it('shows faults at the row, and nothing is saved', async () => {
    const { page, faults } = await open('products')
    await cell(page, 'Sofa').waitFor()
    await page.getByRole('button', { name: 'Insert row' }).click()
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('alert').getByText('column [name]: a value is required').waitFor()
    expect(faults.splice(0)).toHaveLength(1)
    await page.getByRole('button', { name: 'Discard' }).click()
    await page.getByRole('alert').waitFor({ state: 'detached' })
  })

  it("shows someone else's change instead of overwriting it", async () => {
    const one = await open('people')
    const two = await open('people', {})
    for (const [{ page }, name] of [
      [one, 'Ada L.'],
      [two, 'Countess'],
    ] as const) {
      await cell(page, 'Ada').click()
      await page.keyboard.type(name)
      await page.keyboard.press('Enter')
    }
    await save(one.page)
    await two.page.getByRole('button', { name: 'Save' }).click()
    const dialog = two.page.getByRole('dialog', { name: 'Someone else has changed this row' })
    await dialog.getByRole('cell', { name: 'Ada L.' }).waitFor()
    await takeShot(two.page, 'grid-conflict')
    expect(two.faults.splice(0)).toHaveLength(1)
    await two.expectClean()
    expect((await read('people', 'ada')).name).toBe('Ada L.')
    await dialog.getByRole('button', { name: 'Keep mine' }).click()
    await save(two.page)
    expect((await read('people', 'ada')).name).toBe('Countess')
    // A deletion is refused in the same way.
    await cell(one.page, 'Ada L.').click()
    await one.page.getByRole('grid').press('Shift+Delete')
    await one.page.getByRole('button', { name: 'Save' }).click()
    await one.page.getByRole('button', { name: 'Take theirs' }).click()
    expect(one.faults.splice(0)).toHaveLength(1)
    await cell(one.page, 'Countess').waitFor()
    expect((await read('people', 'ada')).name).toBe('Countess')
  })

  it('lets several changes of others be settled one after the other', async () => {
    const { page, faults } = await open('people')
    const ids = ['p1', 'p2', 'p3']
    for (const id of ids) {
      expectOk(await call('PUT', `/tables/people/data/${id}`, { body: { name: id } }))
    }
    await page.getByRole('button', { name: 'Read the rows again' }).click()
    for (const id of ids) {
      await page.locator('.grid-row', { hasText: id }).locator('[data-cell$=":1"]').click()
      await page.keyboard.type('mine')
      await page.keyboard.press('Enter')
      expectOk(await call('PATCH', `/tables/people/data/${id}`, { body: { name: 'theirs' } }))
    }
    await page.getByRole('button', { name: 'Save' }).click()
    const dialog = page.getByRole('dialog')
    const row = (id: string) => dialog.locator('section', { hasText: id })
    await row('p1').getByRole('button', { name: 'Keep mine' }).click()
    await row('p1').waitFor({ state: 'detached' })
    await row('p2').getByRole('button', { name: 'Take theirs' }).click()
    await row('p2').waitFor({ state: 'detached' })
    await row('p3').getByRole('button', { name: 'Keep mine' }).click()
    await dialog.waitFor({ state: 'detached' })
    expect(faults.splice(0)).toHaveLength(1)
    await save(page)
    const names = await Promise.all(ids.map(async (id) => (await read('people', id)).name))
    expect(names).toEqual(['mine', 'theirs', 'mine'])
  })

  it('filters, sorts and searches, and the address shows the same to others', async () => {
    const { page, expectClean } = await open('many')
    await cell(page, 'label 7').waitFor()
    await page.getByRole('button', { name: 'Filter', exact: true }).click()
    await page.getByLabel('Column', { exact: true }).selectOption('number')
    await page.getByLabel('Comparison').selectOption('$ge')
    await page.getByLabel('Value').fill('4990')
    await takeShot(page, 'grid-filter')
    await expectClean()
    await page.getByRole('button', { name: 'Apply' }).click()
    await page.getByText('10 rows found').waitFor()
    await page.getByRole('button', { name: 'number int', exact: true }).click()
    await page.getByRole('button', { name: 'number ↑ int' }).click()
    await page.getByRole('button', { name: 'number ↓ int' }).waitFor()
    const url = new URL(page.url())
    expect(JSON.parse(url.searchParams.get('filter') ?? '')).toEqual({ number: { $ge: 4990 } })
    expect(JSON.parse(url.searchParams.get('sort') ?? '')).toEqual([{ number: 'desc' }])
    await page.reload()
    await cell(page, 'label 4999').waitFor()
    expect(await page.locator('[data-cell="0:1"]').textContent()).toBe('label 4999')
    // The filter as text.
    await page.getByRole('button', { name: 'Filter', exact: true }).click()
    await page.getByRole('button', { name: 'As text' }).click()
    await page.getByLabel('Filter as JSON').fill('{"$any": [{"number": 3}, {"label": "label 4"}]}')
    await page.getByRole('button', { name: 'Apply' }).click()
    await page.getByText('2 rows found').waitFor()
    await page.getByRole('button', { name: 'Remove the filter' }).click()
    await page.getByLabel('Full-text search').fill('label 4321')
    await page.keyboard.press('Enter')
    await page.locator('[data-cell="0:1"]', { hasText: 'label 4321' }).waitFor()
    await page.getByLabel('Full-text search').fill('label')
    await page.keyboard.press('Enter')
    const grid = page.getByRole('grid', { name: 'Rows of many' })
    // A page is on the screen, and the next one is read ahead.
    await page.getByText('More than 400 rows found').waitFor()
    // The service finds no more than 1000 rows, and the page says so.
    const note = page.getByText('A search finds at most 1,000 rows')
    for (; (await note.count()) === 0; ) await grid.press('Control+End')
    await page.getByText('The best 1,000 matches').waitFor()
    await page.goBack()
    await page.locator('[data-cell="0:1"]', { hasText: 'label 4321' }).waitFor()
  })

  it('filters and stores ids that are numbers as numbers', async () => {
    expectOk(await call('PUT', '/tables/numbered', { body: { id: { type: 'int' } } }))
    expectOk(
      await call('POST', '/tables/numbered/columns', { body: { name: 'label', type: 'string' } }),
    )
    const records = [9, 10, 11].map((id) => ({ id, label: `number ${id}` }))
    expectOk(await call('POST', '/tables/numbered/bulk', { body: { records } }))
    const { page } = await open('numbered')
    await page.getByRole('button', { name: 'id int', exact: true }).waitFor()
    await page.getByRole('button', { name: 'Filter', exact: true }).click()
    await page.getByLabel('Column', { exact: true }).selectOption('id')
    await page.getByLabel('Comparison').selectOption('$gt')
    await page.getByLabel('Value').fill('9')
    await page.getByRole('button', { name: 'Apply' }).click()
    await page.getByText('2 rows found').waitFor()
    await page.getByRole('button', { name: 'Insert row' }).click()
    const draft = page.locator('.grid-row.new [data-cell$=":0"]')
    await draft.click()
    await page.keyboard.type('70')
    await page.keyboard.press('Enter')
    await save(page)
    expect(await read('numbered', '70')).toMatchObject({ id: '70' })
  })

  it('keeps a bounded number of rows in memory while it is scrolled', async () => {
    const { page, faults } = await open('many')
    const grid = page.getByRole('grid', { name: 'Rows of many' })
    await cell(page, 'label 7').waitFor()
    // All are counted only on demand.
    await page.getByRole('button', { name: 'Count all' }).click()
    await page.getByText('5,000 rows when they were counted').waitFor()
    for (let last = 0; last < 4990; ) {
      await grid.press('Control+End')
      const shown = page.locator('.grid-body .grid-row:not(.loading) [data-cell$=":0"]').last()
      last = Number((await shown.textContent())?.slice(3))
    }
    await page.getByText('5,000 rows', { exact: true }).waitFor()
    expect(await page.locator('.grid-row').count()).toBeLessThan(100)
    await grid.press('Control+Home')
    await cell(page, 'label 0').waitFor()
    expect(faults).toEqual([])
  })

  it('exports what is filtered, and imports a file with a preview of faults', async () => {
    const { page, visit, expectClean } = await open('many')
    await visit(address('many', `?filter=${encodeURIComponent('{"number":{"$lt":3}}')}`))
    await page.getByText('3 rows found').waitFor()
    const exported = async (format: string) => {
      await page.getByRole('button', { name: 'Export' }).click()
      const dialog = page.getByRole('dialog')
      await dialog.getByLabel('Format').selectOption(format)
      await expectClean()
      const download = page.waitForEvent('download')
      await dialog.getByRole('button', { name: 'Export' }).click()
      const file = await (await download).createReadStream()
      await dialog.waitFor({ state: 'detached' })
      return Buffer.concat(await file.toArray()).toString()
    }
    expect(await exported('csv')).toBe(
      'id,label,number\r\nrow00000,label 0,0\r\nrow00001,label 1,1\r\nrow00002,label 2,2\r\n',
    )
    // A search is exported as it is shown: only what it finds, within the filter, the best matches first.
    const near = encodeURIComponent('{"number":{"$ge":4700}}')
    await visit(address('many', `?search=label&filter=${near}`))
    await page.getByText('300 rows found', { exact: true }).waitFor()
    const shown = await page.locator('.grid-body [data-cell$=":0"]').allTextContents()
    const lines = (await exported('ndjson')).trim().split('\n')
    const found = lines.map((line) => JSON.parse(line) as { id: string; number: number })
    expect(found.slice(0, shown.length).map(({ id }) => id)).toEqual(shown)
    expect(found.map(({ number }) => number).toSorted((left, right) => left - right)).toEqual(
      Array.from({ length: 300 }, (_, n) => 4700 + n),
    )
    await visit(address('many'))
    await page.getByRole('button', { name: 'Import' }).click()
    const rows = ['label,number,price', 'a,1,1.5', 'b,two,2.5', '"c, d",3,3', 'e,4,x']
    await page.getByLabel('File').setInputFiles({
      name: 'more.csv',
      mimeType: 'text/csv',
      buffer: Buffer.from(rows.join('\n')),
    })
    await page.getByText('1 of the first 4 rows do not fit').waitFor()
    await page.getByLabel('Target of price').selectOption('new float')
    await page.getByText('2 of the first 4 rows do not fit').waitFor()
    await takeShot(page, 'import')
    await expectClean()
    await page.getByRole('dialog').getByRole('button', { name: 'Import' }).click()
    await page.getByText('2 rows imported, 2 left out.').waitFor()
    await page.getByRole('cell', { name: 'price: expected a number' }).waitFor()
    const imported = await call('POST', '/tables/many/query', {
      body: { filter: { label: 'c, d' } },
    })
    expect(imported.body.records).toMatchObject([{ label: 'c, d', number: 3, price: 3 }])
  })

  it('imports a large file without damage to its text, and shows how far it is', async () => {
    const { page, expectClean } = await open('texts')
    // A character of two bytes is on the boundary of the parts in which the file is read.
    const rows = Array.from({ length: 2500 }, (_, n) => `${n}${'é'.repeat(230)}`)
    const [content] = ['label', 'label ']
      .map((heading) => Buffer.from(`${heading}\n${rows.join('\n')}\n`))
      .filter((bytes) => ((bytes[1024 * 1024] ?? 0) & 0b1100_0000) === 0b1000_0000)
    let answer = () => {}
    const held = new Promise<void>((resolve) => {
      answer = resolve
    })
    // The last request waits, so that the import is not over.
    await page.route('**/bulk?**', async (route) => {
      if (route.request().postData()?.includes(`"2499é`)) await held
      await route.continue()
    })
    await page.getByRole('button', { name: 'Import', exact: true }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('File').setInputFiles({
      name: 'large.csv',
      mimeType: 'text/csv',
      buffer: content ?? Buffer.alloc(0),
    })
    await dialog.getByRole('button', { name: 'Import' }).click()
    await dialog.getByText('2,000 rows imported so far').waitFor()
    await dialog.getByText(/^(79|80) %$/).waitFor()
    const share = await dialog.getByRole('progressbar').getAttribute('value')
    expect(Number(share)).toBeCloseTo(0.8, 1)
    await expectClean()
    answer()
    await dialog.getByText('2,500 rows imported.').waitFor()
    expect(await dialog.getByRole('progressbar').count()).toBe(0)
    await page.unroute('**/bulk?**')
    await page.keyboard.press('Escape')
    const count = async (filter: object) => {
      const body = { filter, summaries: { all: { count: '*' } } }
      return expectOk(await call('POST', '/tables/texts/summarize', { body })).body.summaries
    }
    expect(await count({ label: { $endsWith: 'é'.repeat(230) } })).toEqual([{ all: 2500 }])
  })

  it('imports a file as a new table, and then changes its rows by a unique column', async () => {
    const { page, expectClean, visit } = await tested.open(
      `/console/w/${tested.service.workspaceId}/db/shop/b/main`,
    )
    await page.getByRole('button', { name: 'Import a CSV file' }).click()
    const dialog = page.getByRole('dialog')
    const choose = async (lines: readonly string[]) =>
      dialog.getByLabel('File').setInputFiles({
        name: 'city list.csv',
        mimeType: 'text/csv',
        buffer: Buffer.from(lines.join('\n')),
      })
    await choose(['code,people', 'osl,700000', 'brn,130000'])
    expect(await dialog.getByRole('textbox', { name: /^Name of the table/ }).inputValue()).toBe(
      'city_list',
    )
    await dialog.getByRole('textbox', { name: /^Name of the table/ }).fill('cities')
    await takeShot(page, 'import-table')
    await expectClean()
    await dialog.getByRole('button', { name: 'Import' }).click()
    await dialog.getByText('2 rows imported.').waitFor()
    await dialog.getByRole('button', { name: 'Open cities' }).click()
    await page.getByRole('gridcell', { name: '700000' }).waitFor()
    const unique = { alterColumn: { table: 'cities', column: 'code', unique: true } }
    expectOk(await call('POST', '/schema/update', { body: { operations: [unique] } }))
    await visit(`/console/w/${tested.service.workspaceId}/db/shop/b/main`)
    await page.reload()
    await page
      .getByRole('link', { name: /^cities/ })
      .first()
      .click()
    await page.getByRole('button', { name: 'Import', exact: true }).click()
    await choose(['code,people', 'osl,717710', 'vdz,5774', 'x,many'])
    await dialog.getByRole('combobox', { name: /^Rows that exist/ }).selectOption('code')
    await takeShot(page, 'import-upsert')
    await expectClean()
    await dialog.getByRole('button', { name: 'Import' }).click()
    await dialog.getByText('1 rows imported, 1 changed, 1 left out.').waitFor()
    const { records } = (await call('POST', '/tables/cities/query', { body: { sort: 'code' } }))
      .body
    expect(records).toMatchObject([
      { code: 'brn', people: 130000 },
      { code: 'osl', people: 717710 },
      { code: 'vdz', people: 5774 },
    ])
  })

  it('changes and deletes all rows that match the filter, after a dry run has counted them', async () => {
    const { page, expectClean } = await open('sets')
    const count = async (filter: object) => {
      const { body } = await call('POST', '/tables/sets/query', { body: { filter } })
      return body.records.length
    }
    await page.getByRole('button', { name: 'Filter', exact: true }).click()
    await page.getByRole('combobox', { name: 'Column' }).selectOption('number')
    await page.getByRole('combobox', { name: 'Comparison' }).selectOption('$ge')
    await page.getByRole('textbox', { name: 'Value' }).fill('3')
    await page.getByRole('button', { name: 'Apply' }).click()
    await page.getByRole('button', { name: 'All found' }).click()
    await page.getByRole('menuitem', { name: 'Change a column of all…' }).click()
    const dialog = page.getByRole('dialog', { name: 'Change rows of sets' })
    await dialog.getByText('Found 2 rows.').waitFor()
    await dialog.getByRole('combobox', { name: 'Column' }).selectOption('number')
    await dialog.getByRole('textbox', { name: /^New value/ }).fill('many')
    await dialog.getByText('expected a whole number').waitFor()
    expect(await dialog.getByRole('button', { name: 'Change 2 rows' }).isDisabled()).toBe(true)
    await dialog.getByRole('combobox', { name: 'Column' }).selectOption('label')
    await dialog.getByRole('textbox', { name: /^New value/ }).fill('high')
    await takeShot(page, 'set-change')
    await expectClean()
    await dialog.getByRole('button', { name: 'Change 2 rows' }).click()
    await page.getByText('2 rows are changed').waitFor()
    expect(await count({ label: 'high' })).toBe(2)
    await page.getByRole('button', { name: 'All found' }).click()
    await page.getByRole('menuitem', { name: 'Delete all…' }).click()
    await page.getByText('A dry run found 2 rows.').waitFor()
    await page.getByRole('button', { name: 'Delete 2 rows' }).click()
    await page.getByText('2 rows are deleted').waitFor()
    expect(await count({})).toBe(2)
    await page.getByRole('button', { name: 'Clear filter and search' }).click()
    await page.getByRole('button', { name: 'All rows' }).click()
    await page.getByRole('menuitem', { name: 'Delete all…' }).click()
    const whole = page.getByRole('button', { name: 'Delete 2 rows' })
    await whole.waitFor()
    expect(await whole.isDisabled()).toBe(true)
    await page.getByRole('textbox', { name: 'Type sets to confirm' }).fill('sets')
    await expectClean()
    await whole.click()
    await page.getByText('This table has no rows yet').waitFor()
    expect(await count({})).toBe(0)
  })

  it('shows hostile values as text', async () => {
    const large = `${HOSTILE}${'م😀 '.repeat(250_000)}`.slice(0, 300_000)
    expectOk(
      await call('PUT', '/tables/hostile/data/bad', {
        body: {
          string: HOSTILE,
          text: large,
          multiple: [HOSTILE, 'مرحبا', '👩‍👩‍👧‍👦'],
          json: { [HOSTILE]: HOSTILE },
          ['x'.repeat(255)]: HOSTILE,
        },
      }),
    )
    const { page } = await open('hostile')
    await page.locator('[data-cell="0:1"]', { hasText: '<img src=x' }).waitFor()
    for (const column of [2, 3, 4]) {
      await page.locator(`[data-cell="0:${column}"]`).dblclick()
      await page.getByRole('dialog').waitFor()
      await page.keyboard.press('Escape')
      await page.getByRole('dialog').waitFor({ state: 'detached' })
    }
    expect(await page.evaluate("'hacked' in window")).toBe(false)
  })

  it('does not offer changes to a read-only key', async () => {
    const key = await createKey(tested.service, 'reader', { fields: { scope: { access: 'read' } } })
    const { page } = await open('products', { key })
    await cell(page, 'Sofa').dblclick()
    for (const name of ['Insert row', 'Import', 'Save']) {
      expect(await page.getByRole('button', { name, exact: true }).count()).toBe(0)
    }
    expect(await page.getByRole('grid').getByRole('textbox').count()).toBe(0)
    await page.getByRole('button', { name: 'Export' }).waitFor()
    await page.getByRole('button', { name: 'Row', exact: true }).click()
    await page.getByRole('menuitem').first().waitFor()
    expect(await page.getByRole('menuitem').allTextContents()).toEqual(['History of the record'])
  })

  it('keeps changes while the service is away', async () => {
    const { page, context, faults } = await open('products')
    await cell(page, 'Sofa').click()
    await page.keyboard.type('Couch')
    await page.keyboard.press('Enter')
    await context.setOffline(true)
    try {
      await page.getByRole('button', { name: 'Save' }).click()
      await page.getByText('The service does not answer.').waitFor()
      await page.getByText('1 row changed, not saved').waitFor()
    } finally {
      await context.setOffline(false)
    }
    await page.getByText('The service does not answer.').waitFor({ state: 'detached' })
    await save(page)
    expect((await read('products', 'sofa')).name).toBe('Couch')
    expect(new Set(faults.splice(0))).toEqual(new Set([expect.stringContaining('DISCONNECTED')]))
  })
})

/** Saves all changes, and waits until none is left. */
async function save(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Save' }).click()
  await page
    .getByRole('region', { name: 'Changes that are not saved' })
    .waitFor({ state: 'detached' })
}

function cell(page: Page, text: string) {
  return page.getByRole('gridcell', { name: text, exact: true }).first()
}

async function copyText(page: Page, text: string): Promise<void> {
  await page.evaluate(`navigator.clipboard.writeText(${JSON.stringify(text)})`)
}
