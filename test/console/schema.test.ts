import { beforeAll, describe, expect, it } from 'vitest'
import { createKey } from '../support/people.js'
import { type BranchCall, createTables, expectOk } from '../support/tables.js'
import { hasChromium, testConsole } from './chromium.js'
import { takeShot } from './shots.js'

describe.skipIf(!hasChromium)('the schema editor and the SQL page', () => {
  const tested = testConsole()
  let call: BranchCall
  const address = (page: string) =>
    `/console/w/${tested.service.workspaceId}/db/shop/b/main/${page}`
  const columnsOf = async (table: string) => {
    const { body } = await call('GET', `/tables/${table}/schema`)
    return body.columns as { name: string }[]
  }

  beforeAll(async () => {
    call = await createTables(tested.service, 'shop', {
      customers: [
        { name: 'name', type: 'string' },
        { name: 'email', type: 'email', unique: true },
      ],
      orders: [
        { name: 'customer', type: 'link', link: { table: 'customers' } },
        { name: 'total', type: 'float', notNull: true, defaultValue: '0' },
        { name: 'note', type: 'text' },
      ],
      prices: [
        { name: 'amount', type: 'string' },
        { name: 'size', type: 'enum', enum: { values: ['small', 'large'] } },
      ],
    })
    const records = [
      { id: 'o1', customer: 'ada', total: 20.5, note: 'fragile; "quoted"' },
      { id: 'o2', customer: 'ada', total: 4 },
    ]
    expectOk(await call('POST', '/tables/orders/bulk', { body: { records } }))
    expectOk(await call('PUT', '/tables/customers/data/ada', { body: { name: 'Ada' } }))
  })

  it('collects edits, previews them, and names what would be lost', async () => {
    const { page, expectClean, faults } = await tested.open(address('schema'))
    const orders = page.getByRole('region', { name: 'Table orders' })
    await orders.getByText('link, to customers').waitFor()
    await page.getByRole('button', { name: 'New table' }).click()
    await page.getByRole('textbox', { name: /^Name/ }).first().fill('products')
    await page.getByRole('button', { name: 'Create', exact: true }).click()
    const products = page.getByRole('region', { name: 'Table products' })
    // The new table asks for its columns, one after the other.
    const dialog = page.getByRole('dialog', { name: 'New column of products' })
    await dialog.getByRole('textbox', { name: /^Name/ }).fill('price')
    await page.getByRole('combobox', { name: 'Type' }).selectOption('float')
    await page.getByRole('textbox', { name: /^Default/ }).fill('1.5')
    await page.getByRole('checkbox', { name: /^Required/ }).check()
    await takeShot(page, 'schema-column')
    await expectClean()
    await dialog.getByRole('button', { name: 'Add and next' }).click()
    await dialog.getByText('Added: price').waitFor()
    // A fault is shown in the dialog. The name has the focus.
    await dialog.locator('input:focus').fill('price')
    await dialog.getByRole('button', { name: 'Add', exact: true }).click()
    await dialog.getByRole('alert').waitFor()
    expect(faults.splice(0)).toHaveLength(1)
    await dialog.getByRole('button', { name: 'Close' }).last().click()
    await products.getByText('float, required, default 1.5').waitFor()
    await products.getByRole('button', { name: 'Column', exact: true }).click()
    await dialog.locator('input:focus').fill('size')
    await page.getByRole('combobox', { name: 'Type' }).selectOption('object')
    await page
      .getByRole('group', { name: 'Nested columns' })
      .getByRole('textbox', { name: /^Name/ })
      .fill('width')
    await page.getByRole('button', { name: 'Add', exact: true }).click()
    await products.getByText('object, of width').waitFor()
    await orders.getByRole('button', { name: 'Actions of column note' }).click()
    await page.getByRole('menuitem', { name: 'Remove column' }).click()
    await page.getByText('4 edits, not applied').waitFor()
    expect((await columnsOf('orders')).map(({ name }) => name)).toContain('note')
    await page.getByRole('button', { name: 'Review and apply' }).click()
    await page.getByText('Column orders.note: the values of 1 record').waitFor()
    await takeShot(page, 'schema-review')
    await expectClean()
    expect(await page.getByRole('button', { name: 'Apply', exact: true }).isDisabled()).toBe(true)
    await page.getByLabel('Lose these values').check()
    await page.getByRole('button', { name: 'Apply', exact: true }).click()
    await page.getByText('The schema was changed').waitFor()
    expect((await columnsOf('orders')).map(({ name }) => name)).not.toContain('note')
    expect(await columnsOf('products')).toMatchObject([
      { name: 'price', type: 'float', notNull: true, defaultValue: '1.5' },
      { name: 'size', type: 'object', columns: [{ name: 'width', type: 'string' }] },
    ])
    // Indexes are created at once.
    await orders.getByRole('button', { name: 'Actions of column total' }).click()
    await page.getByRole('menuitem', { name: 'Create index' }).click()
    await orders.getByRole('row', { name: /total.*ready/ }).waitFor()
    await orders.getByRole('button', { name: 'Actions of orders' }).click()
    await page.getByRole('menuitem', { name: 'Create search index' }).click()
    await orders.getByText(/search index/).waitFor()
    await takeShot(page, 'schema')
    await page.getByRole('button', { name: 'Diagram' }).click()
    await page.getByRole('link', { name: 'Table customers' }).waitFor()
    await takeShot(page, 'schema-diagram')
    await expectClean()
    await page.getByRole('button', { name: 'History' }).click()
    await page.getByText('Remove column orders.note').waitFor()
    await expectClean()
  })

  it('changes a column, and shows before that which records do not allow it', async () => {
    expectOk(await call('PUT', '/tables/customers/data/number', { body: { name: '7' } }))
    const { page, expectClean } = await tested.open(address('schema'))
    const customers = page.getByRole('region', { name: 'Table customers' })
    await customers.getByRole('button', { name: 'Actions of column name' }).click()
    await page.getByRole('menuitem', { name: 'Change' }).click()
    const dialog = page.getByRole('dialog', { name: 'Change customers.name' })
    await dialog.getByRole('combobox', { name: 'Type' }).selectOption('int')
    await dialog.getByRole('textbox', { name: /^Description/ }).fill('A number by now.')
    await takeShot(page, 'schema-change')
    await expectClean()
    await dialog.getByRole('button', { name: 'Add to the edits' }).click()
    await page.getByRole('button', { name: 'Review and apply' }).click()
    await page.getByText(/1 record has a value that does not convert to \[int\]/).waitFor()
    await expectClean()
    expect(await page.getByRole('button', { name: 'Apply', exact: true }).isDisabled()).toBe(true)
    expect(await columnsOf('customers')).toContainEqual({ name: 'name', type: 'string' })
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Discard' }).click()
  })

  it('converts a column by an expression, and a dry run lists the values that do not convert', async () => {
    for (const [id, name] of Object.entries({ p1: '7 EUR', p2: '8 EUR', p3: '0 EUR' })) {
      expectOk(await call('PUT', `/tables/prices/data/${id}`, { body: { amount: name } }))
    }
    const { page, expectClean } = await tested.open(address('schema'))
    const prices = page.getByRole('region', { name: 'Table prices' })
    await prices.getByRole('button', { name: 'Actions of column amount' }).click()
    await page.getByRole('menuitem', { name: 'Change' }).click()
    const dialog = page.getByRole('dialog', { name: 'Change prices.amount' })
    const dryRun = async () => dialog.getByRole('button', { name: 'Dry run' }).click()
    await dialog.getByRole('combobox', { name: 'Type' }).selectOption('int')
    await dryRun()
    await dialog.getByRole('alert').getByText('p1: 7 EUR').waitFor()
    await takeShot(page, 'schema-using')
    await expectClean()
    await dialog
      .getByRole('textbox', { name: /^Convert by/ })
      .fill("cast(replace(amount, ' EUR', '') as int)")
    expect(await dialog.getByRole('alert').count()).toBe(0)
    await dryRun()
    await dialog.getByText('All records allow the change.').waitFor()
    await dialog.getByRole('button', { name: 'Add to the edits' }).click()
    await page.getByRole('button', { name: 'Review and apply' }).click()
    await page.getByText(/Change column prices.amount: int, converted by cast/).waitFor()
    await page.getByRole('button', { name: 'Apply', exact: true }).click()
    const amount = async () => (await call('GET', '/tables/prices/data/p1')).body.amount
    await expect.poll(amount).toBe(7)
    expect((await call('GET', '/tables/prices/data/p3')).body.amount).toBe(0)
  })

  it('an enum is sorted by its order, and a value in use is not removed', async () => {
    expectOk(await call('PUT', '/tables/prices/data/p1', { body: { size: 'small' } }))
    const { page } = await tested.open(address('schema'))
    const prices = page.getByRole('region', { name: 'Table prices' })
    await prices.getByRole('button', { name: 'Actions of column size' }).click()
    await page.getByRole('menuitem', { name: 'Change' }).click()
    const dialog = page.getByRole('dialog', { name: 'Change prices.size' })
    const values = dialog.getByRole('textbox', { name: /^Values/ })
    await values.fill('large')
    await dialog.getByRole('button', { name: 'Dry run' }).click()
    await dialog.getByRole('alert').getByText('p1').waitFor()
    await values.fill('large\nmedium\nsmall')
    await dialog.getByRole('button', { name: 'Add to the edits' }).click()
    await page.getByRole('button', { name: 'Review and apply' }).click()
    await page.getByText('Change column prices.size: values large, medium, small').waitFor()
    await page.getByRole('button', { name: 'Apply', exact: true }).click()
    await expect
      .poll(() => columnsOf('prices'))
      .toContainEqual({
        name: 'size',
        type: 'enum',
        enum: { values: ['large', 'medium', 'small'] },
      })
  })

  it('makes tables with typed ids and a history, and gives the rule of a link a name', async () => {
    const { page, expectClean } = await tested.open(address('schema'))
    await page.getByRole('button', { name: 'New table' }).click()
    const table = page.getByRole('dialog', { name: 'New table' })
    await table.getByRole('textbox', { name: /^Name/ }).fill('visits')
    await table.getByRole('combobox', { name: /^Type of ids/ }).selectOption('int')
    await table.getByRole('textbox', { name: /^Keep versions/ }).fill('30d')
    await takeShot(page, 'schema-table')
    await expectClean()
    await table.getByRole('button', { name: 'Create' }).click()
    const column = page.getByRole('dialog', { name: 'New column of visits' })
    await column.getByRole('textbox', { name: /^Name/ }).fill('customer')
    await column.getByRole('combobox', { name: 'Type' }).selectOption('link')
    await column.getByRole('combobox', { name: /^Links to/ }).selectOption('customers')
    await column.getByRole('combobox', { name: /^If the linked/ }).selectOption('cascade')
    await column.getByRole('textbox', { name: /^Name of the rule/ }).fill('visitor')
    await expectClean()
    await column.getByRole('button', { name: 'Add', exact: true }).click()
    await page.getByRole('button', { name: 'Review and apply' }).click()
    await page.getByText('Add table visits: ids of type int, versions kept for 30d').waitFor()
    await page.getByRole('button', { name: 'Apply', exact: true }).click()
    const tableOf = async () => {
      const { schema } = (await call('GET', '')).body
      return schema.tables.find(({ name }: { name: string }) => name === 'visits')
    }
    await expect.poll(tableOf).toMatchObject({
      idType: 'int',
      history: { keep: '30d' },
      columns: [{ link: { table: 'customers', onDelete: 'cascade', constraint: 'visitor' } }],
    })
    const visits = page.getByRole('region', { name: 'Table visits' })
    await visits.getByRole('button', { name: 'Actions of column customer' }).click()
    await page.getByRole('menuitem', { name: 'Change' }).click()
    const dialog = page.getByRole('dialog', { name: 'Change visits.customer' })
    expect(await dialog.getByRole('combobox', { name: /^Links to/ }).isDisabled()).toBe(true)
    await dialog.getByRole('combobox', { name: /^If the linked/ }).selectOption('setNull')
    await dialog.getByRole('textbox', { name: /^Name of the rule/ }).fill('')
    await dialog.getByRole('button', { name: 'Add to the edits' }).click()
    await page.getByRole('button', { name: 'Review and apply' }).click()
    await page.getByRole('button', { name: 'Apply', exact: true }).click()
    await expect
      .poll(async () => (await tableOf()).columns[0].link)
      .toEqual({ table: 'customers', onDelete: 'setNull' })
  })

  it('gives ids, whole numbers and texts a size, and changes it', async () => {
    const { page, expectClean } = await tested.open(address('schema'))
    await page.getByRole('button', { name: 'New table' }).click()
    const table = page.getByRole('dialog', { name: 'New table' })
    await table.getByRole('textbox', { name: /^Name/ }).fill('parts')
    await table.getByRole('combobox', { name: /^Type of ids/ }).selectOption('int')
    await table.getByRole('combobox', { name: 'Size of ids' }).selectOption('32')
    await expectClean()
    await table.getByRole('button', { name: 'Create' }).click()
    const column = page.getByRole('dialog', { name: 'New column of parts' })
    await column.getByRole('textbox', { name: /^Name/ }).fill('stock')
    await column.getByRole('combobox', { name: 'Type' }).selectOption('int')
    await column.getByRole('combobox', { name: 'Size' }).selectOption('16')
    await expectClean()
    await column.getByRole('button', { name: 'Add and next' }).click()
    await column.getByText('Added: stock').waitFor()
    await column.locator('input:focus').fill('code')
    await column.getByRole('spinbutton', { name: /^Characters/ }).fill('20')
    await expectClean()
    await column.getByRole('button', { name: 'Add', exact: true }).click()
    const parts = page.getByRole('region', { name: 'Table parts' })
    for (const words of ['int, 32 bits, unique, generated', 'int, 16 bits', 'string(20)']) {
      await parts.getByText(words, { exact: true }).waitFor()
    }
    await page.getByRole('button', { name: 'Review and apply' }).click()
    await page.getByText('Add table parts: ids of type int, 32 bits').waitFor()
    await page.getByRole('button', { name: 'Apply', exact: true }).click()
    await expect.poll(async () => (await call('GET', '/tables/parts/schema')).status).toBe(200)
    await page.getByRole('button', { name: 'Review and apply' }).waitFor({ state: 'hidden' })
    await parts.getByRole('button', { name: 'Actions of column code' }).click()
    await page.getByRole('menuitem', { name: 'Change' }).click()
    const dialog = page.getByRole('dialog', { name: 'Change parts.code' })
    await dialog.getByRole('spinbutton', { name: /^Characters/ }).fill('')
    await dialog.getByRole('button', { name: 'Add to the edits' }).click()
    await page.getByRole('button', { name: 'Review and apply' }).click()
    await page.getByText('Change column parts.code: no limit of characters').waitFor()
    await page.getByRole('button', { name: 'Apply', exact: true }).click()
    await expect
      .poll(() => columnsOf('parts'))
      .toEqual([
        { name: 'stock', type: 'int', bits: 16 },
        { name: 'code', type: 'string' },
      ])
  })

  it('adds constraints and generated columns, and links the records that break a rule', async () => {
    const { page, expectClean } = await tested.open(address('schema'))
    const orders = page.getByRole('region', { name: 'Table orders' })
    const addConstraint = async (name: string) => {
      await orders.getByRole('button', { name: 'Actions of orders' }).click()
      await page.getByRole('menuitem', { name: 'Add constraint…' }).click()
      await page.getByRole('textbox', { name: /^Name/ }).fill(name)
    }
    const apply = async () => {
      await page.getByRole('button', { name: 'Review and apply' }).click()
      await page.getByRole('button', { name: 'Apply', exact: true }).click()
    }
    await addConstraint('large')
    await page.getByRole('combobox', { name: 'Rule' }).selectOption('check')
    await page.getByRole('textbox', { name: /^Condition/ }).fill('total > 5')
    await page.getByRole('button', { name: 'Add to the edits' }).click()
    await page.getByRole('button', { name: 'Review and apply' }).click()
    await page.getByRole('alert').getByRole('link', { name: 'o2' }).waitFor()
    expect(await page.getByRole('button', { name: 'Apply', exact: true }).isDisabled()).toBe(true)
    await takeShot(page, 'schema-constraint')
    await expectClean()
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Discard' }).click()
    await addConstraint('once')
    await page.getByRole('checkbox', { name: 'customer' }).check()
    await page.getByRole('checkbox', { name: 'total' }).check()
    await page.getByRole('button', { name: 'Add to the edits' }).click()
    await orders.getByRole('button', { name: 'Column', exact: true }).click()
    await page.getByRole('dialog').locator('input:focus').fill('number')
    await page.getByRole('combobox', { name: 'Type' }).selectOption('int')
    await page.getByRole('combobox', { name: /^Generated/ }).selectOption('sequence')
    await page.getByRole('button', { name: 'Add', exact: true }).click()
    await orders.getByText('int, generated: sequence').waitFor()
    await apply()
    // The notice of an earlier change may still be shown, so the page does not tell when this one is stored.
    const storedConstraints = async () => {
      const { body } = await call('GET', '')
      return body.schema.tables.find(({ name }: { name: string }) => name === 'orders').constraints
    }
    await expect.poll(storedConstraints).toEqual([{ name: 'once', unique: ['customer', 'total'] }])
    const constraints = orders.getByRole('list', { name: 'Constraints of orders' })
    await constraints.getByText('customer, total').waitFor()
    await constraints.getByRole('button', { name: 'Remove constraint once' }).click()
    await constraints.waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Discard' }).click()
    await constraints.waitFor()
  })

  it('a merge names the rule that records would break, and takes the linked record', async () => {
    const ledger = await createTables(tested.service, 'ledger', {
      people: [{ name: 'name', type: 'string' }],
      bills: [{ name: 'payer', type: 'link', link: { table: 'people', onDelete: 'restrict' } }],
    })
    expectOk(await ledger('PUT', '/tables/people/data/ada', { body: { name: 'Ada' } }))
    const fork = `${tested.service.workspace}/db/ledger:fork`
    expectOk(await tested.service.call('PUT', fork, { body: { from: 'main' } }))
    const bill = `${fork}/tables/bills/data/b1`
    expectOk(await tested.service.call('PUT', bill, { body: { payer: 'ada' } }))
    expectOk(await ledger('DELETE', '/tables/people/data/ada'))
    const merge = `/console/w/${tested.service.workspaceId}/db/ledger/b/fork/merge`
    const { page, expectClean } = await tested.open(merge)
    const conflict = page.getByRole('article', { name: 'Conflict of bills.payer' })
    await conflict.getByText('bills.payer links to a record of people that must exist').waitFor()
    await takeShot(page, 'conflict-link')
    await expectClean()
    await conflict.getByRole('button', { name: 'Use the record of fork' }).click()
    await page.getByRole('button', { name: 'Merge into main' }).click()
    await page.getByRole('heading', { name: 'fork is merged into main' }).waitFor()
    expect((await ledger('GET', '/tables/people/data/ada')).body.name).toBe('Ada')
  })

  it('runs several statements, completes names, and shows results in the grid', async () => {
    const { page, expectClean, faults } = await tested.open(address('sql'))
    const replace = async (text: string) => {
      await page.evaluate(`navigator.clipboard.writeText(${JSON.stringify(text)})`)
      await editor.press('Control+a')
      await editor.press('Control+v')
    }
    const editor = page.getByRole('textbox', { name: 'SQL statements' })
    await editor.click()
    await page.keyboard.type('select * from cust')
    // The editor ignores Enter for a moment after it has opened the list, so that it is not confirmed by accident.
    await page.getByRole('option', { name: /customers/ }).click()
    await editor.getByText('customers').waitFor()
    await page.keyboard.press('Control+Enter')
    await page.getByRole('gridcell', { name: 'Ada', exact: true }).waitFor()
    await replace(
      "insert into customers (id, name) values ('bob', 'a;b'); -- a comment; with a mark\n" +
        'select o.id, c.id, total from orders o left join customers c on c.id = o.customer order by 1;',
    )
    await page.getByRole('button', { name: 'Run' }).click()
    await page.getByRole('tab', { name: /^2: select/ }).waitFor()
    await page.getByRole('gridcell', { name: '20.5' }).waitFor()
    expect(await page.getByRole('columnheader', { name: /^id/ }).count()).toBe(2)
    await takeShot(page, 'sql')
    await expectClean()
    expect((await call('GET', '/tables/customers/data/bob')).body.name).toBe('a;b')
    await page.getByRole('button', { name: 'Code' }).click()
    await page.getByText('client.sql.batch').waitFor()
    await page.getByRole('button', { name: 'curl' }).click()
    await page.getByText('/sql/batch').waitFor()
    await expectClean()
    await page.keyboard.press('Escape')
    // Typing over a selection of several coloured lines: browsers keep its look by inline styles, which the
    // content security policy would refuse.
    await replace("select 'a',\n  1 -- one\nfrom orders\nwhere total > 2")
    await editor.press('Control+Home')
    await editor.press('Shift+ArrowDown')
    await editor.press('Shift+ArrowDown')
    await page.keyboard.type('x')
    await editor.press('Control+a')
    await editor.press('Backspace')
    await replace('select nothing from nowhere')
    await page.keyboard.press('Control+Enter')
    await page.getByRole('alert').getByText('table [nowhere] not found').waitFor()
    expect(faults.splice(0)).toHaveLength(1)
    await page.getByRole('button', { name: 'History' }).click()
    await page
      .getByRole('dialog')
      .getByRole('button', { name: /select \* from customers/ })
      .click()
    await page.getByRole('textbox').getByText('customers').waitFor()
  })

  it('does not offer edits to a read-only key', async () => {
    const key = await createKey(tested.service, 'reader', { fields: { scope: { access: 'read' } } })
    const { page } = await tested.open(address('schema'), { key })
    await page.getByText('link, to customers', { exact: true }).waitFor()
    expect(await page.getByRole('button', { name: /New table|Column|Actions/ }).count()).toBe(0)
  })
})
