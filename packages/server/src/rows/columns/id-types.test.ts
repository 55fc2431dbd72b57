import { LIMITS } from '@offshoot/contract/limits'
import { RECORD_ID_PATTERN } from '@offshoot/contract/names'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Fault } from './fault.js'
import { idCodec, linkType } from './id-types.js'

const options = { limits: LIMITS, jsonAsText: false }

describe('link', () => {
  const codec = linkType.compile({ id: 1, name: 'c', type: 'link' }, options)

  test.each(['a', 'rec_d2m4o9k8v3q1t7h5n6c0', 'A-~:_9', '`{|}', 'a'.repeat(LIMITS.nameLengthMax)])(
    'takes %s',
    (id) => expect(codec.encode(id)).toBe(id),
  )

  test('takes a linked record as it was read', () => {
    expect(codec.encode({ id: 'rec_1' })).toBe('rec_1')
    expect(codec.encode({ id: 'rec_1', name: 'Ada', xata: { version: 0 } })).toBe('rec_1')
  })

  test.each([
    ['', 'is empty; a record id has at least one character'],
    ['a'.repeat(LIMITS.nameLengthMax + 1), `is longer than ${LIMITS.nameLengthMax} characters`],
    ['a b', 'is not a record id: only letters, digits and _ - ~ : ` { | } are allowed'],
    ['a\n', 'is not a record id: only letters, digits and _ - ~ : ` { | } are allowed'],
    ['a"', 'is not a record id: only letters, digits and _ - ~ : ` { | } are allowed'],
    ['é', 'is not a record id: only letters, digits and _ - ~ : ` { | } are allowed'],
    [1, 'expected a record id, got a number'],
    [['a'], 'expected a record id, got an array'],
    [{}, 'expected a record id, got an object'],
    [Object.create({ id: 'inherited' }), 'expected a record id, got an object'],
    [{ id: 1 }, 'expected a record id, got a number'],
    [{ id: { id: 'a' } }, 'expected a record id, got an object'],
  ])('refuses %j', (value, message) => {
    expect(codec.encode(value)).toEqual(new Fault(message))
  })

  test('is read as an object with the id', () => {
    fc.assert(
      fc.property(fc.stringMatching(new RegExp(RECORD_ID_PATTERN)), (id) => {
        fc.pre(id.length <= LIMITS.nameLengthMax)
        expect(codec.encode(id)).toBe(id)
        expect(JSON.parse(codec.decode(id))).toEqual({ id })
      }),
    )
  })
})

describe('ids of type int', () => {
  const { encode, create } = idCodec({ idType: 'int' }, LIMITS)

  test.each([
    [0, '0'],
    [-5, '-5'],
    ['12', '12'],
    [Number.MAX_SAFE_INTEGER, '9007199254740991'],
    ['-9007199254740991', '-9007199254740991'],
  ])('take %j', (id, text) => expect(encode(id)).toBe(text))

  test.each([
    '',
    '-0',
    '01',
    '+1',
    ' 1',
    '1.0',
    '1e3',
    'a',
    '9007199254740992',
    1.5,
    Number.NaN,
    null,
  ])('refuse %j', (id) => expect(encode(id)).toBeInstanceOf(Fault))

  test('are taken from a sequence', () => expect(create).toBeUndefined())
})

describe('ids with a size', () => {
  test.each([
    [16, 32_767, -32_768],
    [32, 2_147_483_647, -2_147_483_648],
  ] as const)('of %d bits are between their limits', (idBits, max, min) => {
    const { encode, numberMax } = idCodec({ idType: 'int', idBits }, LIMITS)
    expect(numberMax).toBe(max)
    expect([encode(max), encode(String(min))]).toEqual([String(max), String(min)])
    for (const id of [max + 1, min - 1, String(max + 1)]) expect(encode(id)).toBeInstanceOf(Fault)
  })
})

describe('ids of type uuid', () => {
  const { encode, create } = idCodec({ idType: 'uuid' }, LIMITS)

  test('are stored in lower case', () => {
    expect(encode('0190A5C1-7D3E-7CC2-9F0B-2A6F1C3D4E5F')).toBe(
      '0190a5c1-7d3e-7cc2-9f0b-2a6f1c3d4e5f',
    )
  })

  test('are refused in other forms', () => {
    for (const id of ['rec_1', '0190a5c17d3e7cc29f0b2a6f1c3d4e5f', 1]) {
      expect(encode(id)).toBeInstanceOf(Fault)
    }
  })

  test('are made in ascending order, with version and variant', () => {
    const ids = Array.from({ length: 10_000 }, () => create?.() ?? '')
    expect([...ids].sort()).toEqual(ids)
    expect(new Set(ids).size).toBe(ids.length)
    for (const id of ids) {
      expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    }
  })
})
