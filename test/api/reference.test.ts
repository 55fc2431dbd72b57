import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { ERROR_CODES } from '@offshoot/contract/errors'
import { describe, expect, it } from 'vitest'
import { settingsTable } from '../../packages/server/src/config.js'

const RENEW = 'run `npm run docs` and keep what it writes'

/** Reads the rows of all tables on a page of the reference. */
async function readRows(page: string): Promise<string[][]> {
  const text = await readFile(new URL(`../../docs/reference/${page}`, import.meta.url), 'utf8')
  return text
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => line.slice(2, -2).split(' | '))
}

describe('docs/reference', () => {
  it('lists exactly the error codes there are', async () => {
    const expected = Object.entries(ERROR_CODES).map(([code, [status, meaning]]) => [
      `\`${code}\``,
      String(status),
      meaning,
    ])
    expect(await readRows('errors.md'), RENEW).toEqual(expected)
  })

  it('lists exactly the settings there are', async () => {
    const expected = settingsTable().map(({ env, help, fallback, allowed }) => [
      `\`${env}\``,
      help,
      fallback,
      allowed,
    ])
    expect(await readRows('settings.md'), RENEW).toEqual(expected)
  })
})

describe('pages that promise something', () => {
  it.each(['docs/reliability.md', 'SECURITY.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md'])(
    'name tests that exist: %s',
    async (page) => {
      const root = new URL('../../', import.meta.url)
      const text = await readFile(new URL(page, root), 'utf8')
      const named = [...text.matchAll(/`((?:test|packages)\/[\w./-]+\.ts)`/g)]
      expect(named.length).toBeGreaterThan(0)
      const missing = named.filter(([, file = '']) => !existsSync(new URL(file, root)))
      expect(missing.map(([, file]) => file)).toEqual([])
    },
  )
})
