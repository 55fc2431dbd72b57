import { AppError } from '@offshoot/contract/errors'
import type { KeyScope } from '@offshoot/contract/users'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { cpuMsOf } from '../../../../../test/support/cpu-time.js'
import {
  matchesPattern,
  requireAccess,
  requireUnlimited,
  requireWholeDatabase,
  requireWholeWorkspace,
  scopeReachesBranch,
  scopeReachesDatabase,
  scopeReachesWorkspace,
} from './scope.js'

describe('matchesPattern', () => {
  it.each([
    ['main', 'main', true],
    ['main', 'mai', false],
    ['main', 'mains', false],
    ['main', 'Main', false],
    ['main', '*', true],
    ['', '*', true],
    ['', '', true],
    ['main', '', false],
    ['preview-1', 'preview-*', true],
    ['preview-', 'preview-*', true],
    ['preview', 'preview-*', false],
    ['a-preview-1', 'preview-*', false],
    ['feat-x-db', 'feat-*-db', true],
    ['feat--db', 'feat-*-db', true],
    ['feat-db', 'feat-*-db', false],
    ['aXbXc', 'a*b*c', true],
    ['abcabc', '*abc', true],
    ['abcab', '*abc', false],
    ['a', '**', true],
    ['a~b', 'a~*', true],
    ['a.b', 'a.b', true],
    ['axb', 'a.b', false],
  ])('%j against %j is %s', (text, pattern, expected) => {
    expect(matchesPattern(text, pattern)).toBe(expected)
  })

  it('agrees with an equivalent regular expression', () => {
    const texts = fc.string({ unit: fc.constantFrom('a', 'b', '-'), maxLength: 12 })
    const patterns = fc.string({ unit: fc.constantFrom('a', 'b', '-', '*'), maxLength: 8 })
    fc.assert(
      fc.property(texts, patterns, (text, pattern) => {
        const expected = new RegExp(`^${pattern.replaceAll('*', '.*')}$`).test(text)
        expect(matchesPattern(text, pattern)).toBe(expected)
      }),
      { numRuns: 2000 },
    )
  })

  it('is fast for adversarial patterns', () => {
    const cpuMs = cpuMsOf(() => {
      expect(matchesPattern('a'.repeat(255), `${'*a'.repeat(127)}b`)).toBe(false)
    })
    expect(cpuMs).toBeLessThan(1000)
  })
})

describe('scopes', () => {
  it('do not restrict what they leave out', () => {
    expect(scopeReachesWorkspace({}, 'w')).toBe(true)
    expect(scopeReachesDatabase({ branches: ['x'] }, 'd')).toBe(true)
    expect(scopeReachesBranch({ databases: ['x'] }, 'b')).toBe(true)
  })

  it('allow what they name and nothing else', () => {
    expect(scopeReachesWorkspace({ workspaces: ['a', 'b'] }, 'b')).toBe(true)
    expect(scopeReachesWorkspace({ workspaces: ['a', 'b'] }, 'c')).toBe(false)
    expect(scopeReachesDatabase({ databases: ['shop'] }, 'shop2')).toBe(false)
    expect(scopeReachesBranch({ branches: ['x', 'preview-*'] }, 'preview-1')).toBe(true)
    expect(scopeReachesBranch({ branches: ['x', 'preview-*'] }, 'main')).toBe(false)
  })

  const scopes: readonly [string, KeyScope][] = [
    ['nothing', {}],
    ['writing', { access: 'write' }],
    ['reading', { access: 'read' }],
    ['workspaces', { workspaces: ['w'] }],
    ['databases', { databases: ['d'] }],
    ['branches', { branches: ['*'] }],
  ]
  const passing = (require: (scope: KeyScope) => void) =>
    scopes
      .filter(([, scope]) => {
        try {
          require(scope)
          return true
        } catch (error) {
          expect(error).toBeInstanceOf(AppError)
          expect((error as AppError).code).toBe('key_scope')
          return false
        }
      })
      .map(([name]) => name)

  it('are enough for what they limit', () => {
    const all = scopes.map(([name]) => name)
    expect(passing((scope) => requireAccess(scope, 'read'))).toEqual(all)
    expect(passing((scope) => requireAccess(scope, 'write'))).toEqual(
      all.filter((name) => name !== 'reading'),
    )
    expect(passing(requireUnlimited)).toEqual(['nothing', 'writing'])
    expect(passing(requireWholeWorkspace)).toEqual(['nothing', 'writing', 'workspaces'])
    expect(passing(requireWholeDatabase)).toEqual(['nothing', 'writing', 'workspaces', 'databases'])
  })
})
