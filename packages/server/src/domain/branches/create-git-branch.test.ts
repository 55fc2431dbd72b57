import { LIMITS } from '@offshoot/contract/limits'
import { NAME_PATTERN } from '@offshoot/contract/names'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { branchNamesFor } from './create-git-branch.js'

describe('branchNamesFor', () => {
  it.each([
    ['main', 'main'],
    ['feat/login', 'feat-login'],
    ['Feat_1~x', 'Feat_1~x'],
    ['a//b..c', 'a-b-c'],
    ['a--b', 'a-b'],
    ['/a/', 'a'],
    ['функция/x', 'x'],
    ['café', 'caf'],
    ['🌿/🍎 a', 'a'],
    [`${'x'.repeat(199)}/y`, 'x'.repeat(199)],
    ['x'.repeat(1024), 'x'.repeat(200)],
  ])('calls the branch of %s %s', (gitBranch, expected) => {
    expect(branchNamesFor(gitBranch)[0]).toBe(expected)
  })

  it('adds six characters of a hash if the plain name is in use, then more', () => {
    const [plain, short = '', long = ''] = branchNamesFor('feat/login')
    expect(plain).toBe('feat-login')
    expect(short).toMatch(/^feat-login-[0-9a-f]{6}$/)
    expect(long).toMatch(/^feat-login-[0-9a-f]{32}$/)
    expect(long.startsWith(short)).toBe(true)
  })

  it('uses a hash for a git branch without any character that a branch name can have', () => {
    expect(branchNamesFor('🌿')[0]).toMatch(/^git-[0-9a-f]{6}$/)
    expect(branchNamesFor('🌿')[0]).not.toBe(branchNamesFor('🍎')[0])
  })

  it('always returns the same names, and only valid ones', () => {
    const pattern = new RegExp(NAME_PATTERN)
    fc.assert(
      fc.property(fc.string({ unit: 'binary', minLength: 1, maxLength: 400 }), (gitBranch) => {
        const names = branchNamesFor(gitBranch)
        expect(names).toEqual(branchNamesFor(gitBranch))
        expect(new Set(names).size).toBe(names.length)
        const isName = (name: string) => pattern.test(name) && name.length <= LIMITS.nameLengthMax
        expect(names.filter((name) => !isName(name))).toEqual([])
      }),
    )
  })
})
