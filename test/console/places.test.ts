import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import { addMember, createUser, createWorkspace } from '../support/people.js'
import { endAll, startOffshoot } from '../support/process.js'
import { type BranchCall, createTables, expectOk } from '../support/tables.js'
import { hasChromium, openPage, PATIENCE_MS, testConsole } from './chromium.js'

const PIXEL = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  'base64',
)

const HOSTILE = '<img src=x onerror="window.hacked=1"> \u202eعربى 👩‍👩‍👧'

describe.skipIf(!hasChromium)('files, members and settings', () => {
  const tested = testConsole()
  let call: BranchCall
  const workspace = () => `/console/w/${tested.service.workspaceId}`

  beforeAll(async () => {
    call = await createTables(tested.service, 'shop', {
      products: [
        { name: 'name', type: 'string' },
        { name: 'photo', type: 'file' },
        { name: 'papers', type: 'file[]' },
      ],
    })
    expectOk(await call('PUT', '/tables/products/data/lamp', { body: { name: 'Lamp' } }))
  })

  it('uploads, shows, downloads and deletes files', async () => {
    const { page, faults, expectClean } = await tested.open(`${workspace()}/db/shop/b/main/files`)
    const read = async () => (await call('GET', '/tables/products/data/lamp')).body
    const upload = async (id: string, label: string, file: Parameters<Upload>[0]) => {
      await page.getByRole('textbox', { name: 'Record' }).fill(id)
      await page.getByLabel(label, { exact: true }).setInputFiles(file)
      await page.getByRole('dialog').getByRole('button', { name: 'Upload' }).click()
    }
    type Upload = ReturnType<typeof page.getByLabel>['setInputFiles']
    await page.getByText('No record of products has a file here').waitFor()
    await page.getByRole('button', { name: 'Upload' }).click()
    const picture = { name: 'my lamp.png', mimeType: 'image/png', buffer: PIXEL }
    await upload('chair', 'File', picture)
    await page.getByRole('alert').getByText('There is no record chair in products').waitFor()
    expect(faults.splice(0)).toHaveLength(1)
    await upload(HOSTILE, 'File', picture)
    await expect.poll(() => faults.length, { timeout: PATIENCE_MS }).toBe(1)
    await page.getByRole('alert').waitFor()
    expect(await page.evaluate("'hacked' in window")).toBe(false)
    expect(faults.splice(0)).toEqual([expect.stringMatching(/status of 40[04]/)])
    await expectClean()
    await upload('lamp', 'File', picture)
    await page.getByText('The file is stored').waitFor()
    expect((await read()).photo).toMatchObject({ name: 'my_lamp.png', size: PIXEL.length })
    await page.getByRole('button', { name: 'Show my_lamp.png' }).click()
    const shown = page.getByRole('dialog').getByRole('img', { name: 'my_lamp.png' })
    await shown.waitFor()
    expect(
      await shown.evaluate((one) => (one as unknown as { naturalWidth: number }).naturalWidth),
    ).toBe(1)
    await page.keyboard.press('Escape')

    await page.getByRole('button', { name: 'products.papers' }).click()
    await page.getByRole('button', { name: 'Upload' }).click()
    await upload('lamp', 'Files', [
      { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('first') },
      { name: 'b.html', mimeType: 'text/html', buffer: Buffer.from('<script>1</script>') },
    ])
    await page.getByText('2 files are stored').waitFor()
    // A page of somebody else is never shown, only downloaded.
    const download = page.waitForEvent('download')
    await page.getByRole('button', { name: 'Download b.html' }).click()
    const content = await (await (await download).createReadStream()).toArray()
    expect(Buffer.concat(content).toString()).toBe('<script>1</script>')
    await expectClean()
    await page.getByRole('button', { name: 'Delete a.txt' }).click()
    await page.getByRole('button', { name: 'Delete file' }).click()
    // A dialog hides the roles of the page behind it, so its end is waited for first.
    await page.getByText('The file is deleted').waitFor()
    await page.getByRole('cell', { name: 'a.txt', exact: true }).waitFor({ state: 'detached' })
    expect((await read()).papers).toMatchObject([{ name: 'b.html' }])
  })

  it('invites, changes roles, and removes members after a question', async () => {
    await addMember(tested.service, await createUser(tested.service, 'grace'))
    const { page, expectClean } = await tested.open(`${workspace()}/members`)
    await page.getByRole('button', { name: 'Invite', exact: true }).click()
    // A dialog gives the focus to its first field.
    await page.locator('input[type=email]:focus').fill('ada@example.com')
    await page.getByRole('dialog').getByLabel('Role').selectOption('maintainer')
    // The administrator can create the account of the person, too.
    await page.getByRole('checkbox', { name: /^They have no account/ }).check()
    await page.getByLabel('Full name').fill('ada')
    await expectClean()
    await page.getByRole('button', { name: 'Create invite' }).click()
    const dialog = page.getByRole('dialog', { name: 'The invite is ready' })
    await dialog.getByText('API key of ada').waitFor()
    const [link = '', key = ''] = await dialog.locator('code').allTextContents()
    await page.getByRole('button', { name: 'I have stored them' }).click()

    // The person opens the link, signs in with the key, and accepts. The link stays what it was meanwhile.
    const invited = await tested.open(link, { key: null })
    await invited.page.getByLabel('API key').fill(key)
    await invited.page.getByRole('button', { name: 'Sign in' }).click()
    const typed = invited.page.getByLabel('Key of the invite')
    const inviteKey = await typed.inputValue()
    await typed.fill('ik_wrong')
    await invited.page.getByRole('button', { name: 'Accept the invite' }).click()
    await invited.page.getByRole('alert').getByText('invite not found').waitFor()
    expect(invited.faults.splice(0)).toEqual([expect.stringContaining('404')])
    await invited.expectClean()
    await typed.fill(inviteKey)
    await invited.page.getByRole('button', { name: 'Accept the invite' }).click()
    await invited.page.getByRole('heading', { level: 1, name: 'Databases' }).waitFor()
    expect(invited.page.url()).not.toContain(inviteKey)
    // A maintainer invites and removes maintainers, but does not touch owners.
    await invited.visit(`${workspace()}/members`)
    await invited.page.getByRole('button', { name: 'Remove ada' }).waitFor()
    await invited.page.getByRole('button', { name: 'Remove grace' }).waitFor()
    expect(await invited.page.getByRole('button', { name: /^Remove/ }).count()).toBe(2)
    expect(await invited.page.getByLabel(/^Role of/).count()).toBe(0)
    await invited.page.getByRole('button', { name: 'Invite', exact: true }).click()
    const roles = invited.page.getByRole('dialog').getByLabel('Role').locator('option')
    expect(await roles.allTextContents()).toEqual(['maintainer'])

    await page.reload()
    await page.getByRole('row', { name: /ada@example.com/ }).waitFor()
    await page.getByLabel('Role of grace').selectOption('owner')
    await page.getByText('The role is changed').waitFor()
    await expectClean()
    await page.getByRole('button', { name: 'Remove ada' }).click()
    await page.getByRole('button', { name: 'Remove member' }).click()
    await page.getByText('ada is no longer a member').waitFor()
    await page.getByRole('row', { name: /ada@example.com/ }).waitFor({ state: 'detached' })
    const members = `/workspaces/${tested.service.workspaceId}/members`
    const { body } = await tested.service.call('GET', members)
    expect(body.members.map((one: { email: string }) => one.email)).not.toContain('ada@example.com')
    expect(body.members).toContainEqual(
      expect.objectContaining({ role: 'owner', fullname: 'grace' }),
    )

    await page.getByRole('button', { name: 'Invite', exact: true }).click()
    await page.getByLabel('E-mail').fill('late@example.com')
    await page.getByRole('button', { name: 'Create invite' }).click()
    await page.getByRole('button', { name: 'I have stored it' }).click()
    await page.getByRole('button', { name: 'Cancel the invite of late@example.com' }).click()
    await page
      .getByRole('cell', { name: 'late@example.com', exact: true })
      .waitFor({ state: 'detached' })
  })

  it('renames, colours and deletes a database, after its name is typed', async () => {
    const { page, visit, expectClean } = await tested.open(workspace())
    await page.getByRole('button', { name: 'New database' }).click()
    await page.getByLabel('Name').fill('attic')
    await page.getByRole('button', { name: /^Create/ }).click()
    await page.getByRole('heading', { level: 1, name: 'Schema' }).waitFor()
    await visit(`${workspace()}/db/attic/settings`)
    await page.getByLabel('Name').fill('cellar')
    await page.getByLabel('Colour').fill('#123456')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.waitForURL(`**${workspace()}/db/cellar/settings`)
    const list = async () =>
      (await tested.service.call('GET', `/workspaces/${tested.service.workspaceId}/dbs`)).body
        .databases as { name: string; ui?: { color?: string } }[]
    expect((await list()).find(({ name }) => name === 'cellar')?.ui?.color).toBe('#123456')
    await page.getByRole('button', { name: 'Delete database' }).click()
    const dialog = page.getByRole('dialog')
    const confirm = dialog.getByRole('button', { name: 'Delete database' })
    await dialog.getByRole('textbox').fill('cella')
    expect(await confirm.isDisabled()).toBe(true)
    await expectClean()
    await dialog.getByRole('textbox').fill('cellar')
    await confirm.click()
    await page.waitForURL(`**${workspace()}`)
    expect((await list()).map(({ name }) => name)).toEqual(['shop'])
  })

  it('renames and deletes a workspace', async () => {
    const { id } = await createWorkspace(tested.service, 'Spare')
    const { page } = await tested.open(`/console/w/${id}/settings`, {})
    await page.getByLabel('Name').fill('Gone')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('Saved', { exact: true }).waitFor()
    expect((await tested.service.call('GET', `/workspaces/${id}`)).body.name).toBe('Gone')
    await page.getByRole('button', { name: 'Delete workspace' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('textbox').fill(id)
    await dialog.getByRole('button', { name: 'Delete workspace' }).click()
    await page.getByText('is deleted').waitFor()
    expect((await tested.service.call('GET', `/workspaces/${id}`)).status).toBe(404)
  })

  it('offers the requests behind the branches and a difference as code', async () => {
    const base = `${workspace()}/db/shop`
    const path = `${tested.service.workspace}/db/shop:next`
    expectOk(await tested.service.call('PUT', path, { body: { from: 'main' } }))
    const { page, visit } = await tested.open(`${base}/branches`)
    const curl = async () => {
      await page.getByRole('button', { name: 'Code', exact: true }).click()
      await page.getByRole('dialog').getByText('createClient(').waitFor()
      await page.getByRole('button', { name: 'curl' }).click()
      const text = (await page.getByRole('dialog').locator('pre').textContent()) ?? ''
      await page.keyboard.press('Escape')
      const [, url = ''] = /curl -sS '([^']+)'/.exec(text) ?? []
      return tested.service.call('GET', url.slice(tested.url.length))
    }
    const names = (await curl()).body.branches.map(({ name }: { name: string }) => name)
    expect(names).toContain('next')
    await visit(`${base}/b/next/diff?against=main`)
    await page.getByRole('heading', { name: 'No difference' }).waitFor()
    expect(await curl()).toMatchObject({ status: 200, body: { tables: expect.any(Array) } })
  })
})

describe.skipIf(!hasChromium)('the console of a process', () => {
  let dataDir = ''
  beforeAll(async () => {
    dataDir = await makeDataFolder('console')
  })
  afterAll(async () => {
    await endAll([dataDir])
    await rm(dataDir, { recursive: true, force: true })
  })

  it('goes on after the service was stopped and started again, and asks for a metrics token', async () => {
    const token = 'k3Xv9QpL2mZr8TnB5wYc7HdF'
    const first = startOffshoot(dataDir, { env: { OFFSHOOT_METRICS_TOKEN: token } })
    const { address, key = '', workspaceId } = await first.ready()
    const { page, context, faults, visit } = await openPage({ url: address, key }, '/console/')
    try {
      await page.getByRole('button', { name: 'Make a sample database with branches' }).click()
      await page.getByRole('link', { name: 'feature-loyalty' }).waitFor()
      await visit('/console/metrics')
      const typed = page.getByLabel('Metrics token')
      await typed.fill('wrong')
      await page.getByRole('button', { name: 'Show metrics' }).click()
      await page.getByText('The service refused this token.').waitFor()
      await typed.fill(HOSTILE)
      await page.getByRole('button', { name: 'Show metrics' }).click()
      await expect.poll(() => faults.length, { timeout: PATIENCE_MS }).toBe(3)
      await page.getByText('The service refused this token.').waitFor()
      expect(await page.evaluate("'hacked' in window")).toBe(false)
      await typed.fill(token)
      await page.getByRole('button', { name: 'Show metrics' }).click()
      await page.getByRole('img', { name: 'Requests' }).waitFor()
      expect(await page.evaluate('JSON.stringify([localStorage, sessionStorage])')).not.toContain(
        token,
      )
      expect(faults.splice(0)).toEqual(Array(3).fill(expect.stringContaining('401')))

      await visit(`/console/w/${workspaceId}/db/sample/b/main/tables/customers`)
      await page.getByRole('gridcell', { name: 'Ada Lovelace' }).first().click()
      await page.keyboard.type('Countess')
      await page.keyboard.press('Enter')
      expect(await first.end('SIGTERM')).toMatchObject({ code: 0 })
      await page.getByRole('button', { name: 'Save' }).click()
      await page.getByText('The service does not answer').waitFor()
      const port = new URL(address).port
      const second = startOffshoot(dataDir, { env: { OFFSHOOT_PORT: port } })
      await second.ready()
      await page.getByText('The service does not answer').waitFor({ state: 'detached' })
      // The session outlives the process, and so do the changes that were not saved.
      await page.getByRole('button', { name: 'Save' }).click()
      await page.getByText('Saved 1 row').waitFor()
      await page.reload()
      await page.getByRole('gridcell', { name: 'Countess' }).waitFor()
      await second.end('SIGTERM')
    } finally {
      await context.close()
    }
  })
})
