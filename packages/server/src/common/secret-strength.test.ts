import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { estimateBits, isStrongSecret, SECRET_LENGTH_MIN } from './secret-strength.js'

describe('isStrongSecret', () => {
  it.each([
    ['a short one', 'off_1234'],
    ['one character too few', 'k3Xv9QpL2mZr8TnB5wYc7Hd'],
    ['one character', 'x'.repeat(255)],
    ['two characters', 'ab'.repeat(30)],
    ['a repeated word', 'password'.repeat(5)],
    ['a repeated key', `${'k3Xv9QpL'.repeat(4)}`],
    ['a sequence', 'abcdefghijklmnopqrstuvwxyz'],
    ['sequences', '0123456789abcdefghij9876543210'],
    ['a prefix and padding', `off_test_${'0'.repeat(40)}`],
  ])('refuses %s', (_name, text) => {
    expect(isStrongSecret(text)).toBe(false)
  })

  it('takes random texts of every usual form', () => {
    for (let round = 0; round < 2000; round++) {
      expect(isStrongSecret(randomBytes(16).toString('hex'))).toBe(true)
      expect(isStrongSecret(randomBytes(32).toString('base64url'))).toBe(true)
    }
  })

  it('takes a random text of the least length', () => {
    const text = 'k3Xv9QpL2mZr8TnB5wYc7HdF'
    expect(text).toHaveLength(SECRET_LENGTH_MIN)
    expect(isStrongSecret(text)).toBe(true)
  })

  it('estimates nothing for nothing', () => {
    expect(estimateBits('')).toBe(0)
    expect(estimateBits('aaaa')).toBe(0)
  })
})
