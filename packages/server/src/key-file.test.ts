import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { findKeyFile, writeKeyFile } from './key-file.js'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'offshoot-key-'))
})
afterEach(() => rm(folder, { recursive: true }))

describe('the key file', () => {
  it('is written for its owner alone, with nothing else left behind', async () => {
    const file = await writeKeyFile(folder, 'off_key')
    expect(file).toBe(path.join(folder, 'api-key'))
    expect(await readFile(file, 'utf8')).toBe('off_key\n')
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect(await readdir(folder)).toEqual(['api-key'])
  })

  it('replaces an earlier one, whatever its rights', async () => {
    const file = path.join(folder, 'api-key')
    await writeFile(file, 'old and much longer than the new one')
    await chmod(file, 0o644)
    await writeKeyFile(folder, 'off_new')
    expect(await readFile(file, 'utf8')).toBe('off_new\n')
    expect((await stat(file)).mode & 0o777).toBe(0o600)
  })

  it('is found when it is there', async () => {
    expect(await findKeyFile(folder)).toBeUndefined()
    await writeKeyFile(folder, 'off_key')
    expect(await findKeyFile(folder)).toBe(path.join(folder, 'api-key'))
  })
})
