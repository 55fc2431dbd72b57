import { LIMITS } from '@offshoot/contract/limits'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { NOW } from './column-type.js'
import { datetimeType, decodeDatetime } from './datetime-type.js'
import { Fault } from './fault.js'

const options = { limits: LIMITS, jsonAsText: false }
const column = { id: 1, name: 'c', type: 'datetime' } as const
const codec = datetimeType.compile(column, options)

test.each([
  '2026-01-31T09:30:00Z',
  '2026-01-31t09:30:00z',
  '2026-01-31T09:30:00.1Z',
  '2026-01-31T09:30:00.123456Z',
  '2026-01-31T23:59:59.999999+00:00',
  '2026-01-31T09:30:00-00:00',
  '2026-01-31T09:30:00+14:00',
  '2026-01-31T09:30:00+15:59',
  '2026-01-31T09:30:00-15:59',
  '2024-02-29T00:00:00Z',
  '2000-02-29T00:00:00Z',
  '0001-01-01T00:00:00Z',
  '0001-01-01T01:00:00+01:00',
  '0001-01-01T00:00:00-01:00',
  '9999-12-31T23:59:59.999999Z',
  '9999-12-31T22:59:59-01:00',
  '9999-12-31T23:59:59+01:00',
])('takes %s as it is', (text) => expect(codec.encode(text)).toBe(text))

test.each([
  ['2026-01-31T09:30:00.1234560Z', '2026-01-31T09:30:00.123456Z'],
  ['2026-01-31T09:30:00.0000000000+02:00', '2026-01-31T09:30:00.000000+02:00'],
  [`2026-01-31T09:30:00.5${'0'.repeat(1000)}Z`, '2026-01-31T09:30:00.500000Z'],
])('drops zeros beyond the microsecond of %s', (text, stored) => {
  expect(codec.encode(text)).toBe(stored)
})

describe('refuses', () => {
  const shape = 'is not a date and time with an offset, such as 2026-01-31T09:30:00.000Z'
  const real = 'is a date or time that does not exist'
  const range = 'is not in the years 0001 to 9999 in UTC'

  test.each([
    ['', shape],
    ['now', shape],
    ['2026-01-31', shape],
    ['2026-01-31T09:30Z', shape],
    ['2026-01-31T09:30:00', shape],
    ['2026-01-31 09:30:00Z', shape],
    ['2026-01-31T09:30:00.Z', shape],
    ['2026-01-31T09:30:00,5Z', shape],
    ['2026-01-31T09:30:00 Z', shape],
    ['2026-01-31T09:30:00Z ', shape],
    [' 2026-01-31T09:30:00Z', shape],
    ['2026-01-31T09:30:00Zulu', shape],
    ['2026-01-31T09:30:00+01', shape],
    ['2026-01-31T09:30:00+0100', shape],
    ['2026-01-31T09:30:00+01:00:00', shape],
    ['2026-01-31T09:30:00+1:00', shape],
    ['2026-1-31T09:30:00Z', shape],
    ['20260131T093000Z', shape],
    ['-2026-01-31T09:30:00Z', shape],
    ['+02026-01-31T09:30:00Z', shape],
    ['12026-01-31T09:30:00Z', shape],
    ['２026-01-31T09:30:00Z', shape],
    ['2026-01-31T09:30:00\u0000Z', shape],
    ['2026-00-31T09:30:00Z', real],
    ['2026-13-31T09:30:00Z', real],
    ['2026-01-00T09:30:00Z', real],
    ['2026-01-32T09:30:00Z', real],
    ['2026-02-29T09:30:00Z', real],
    ['2026-02-30T09:30:00Z', real],
    ['1900-02-29T09:30:00Z', real],
    ['2026-04-31T09:30:00Z', real],
    ['2026-01-31T24:00:00Z', real],
    ['2026-01-31T09:60:00Z', real],
    ['2016-12-31T23:59:60Z', real],
    ['2026-01-31T09:30:00+01:60', real],
    ['2026-01-31T09:30:00+16:00', 'has an offset beyond 15:59'],
    ['2026-01-31T09:30:00-23:00', 'has an offset beyond 15:59'],
    ['2026-01-31T09:30:00.1234567Z', 'is finer than a microsecond'],
    ['2026-01-31T09:30:00.00000000001Z', 'is finer than a microsecond'],
    ['0000-01-01T00:00:00Z', range],
    ['0001-01-01T00:59:59+01:00', range],
    ['9999-12-31T23:00:00-01:00', range],
    [1769851800000, 'expected a string, got a number'],
    [{}, 'expected a string, got an object'],
  ])('%j', (value, message) => expect(codec.encode(value)).toEqual(new Fault(message)))
})

test('agrees with Date about which moments exist', () => {
  const two = (max: number) => fc.nat({ max }).map((part) => String(part).padStart(2, '0'))
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 9998 }),
      ...[two(14), two(33), two(25), two(61), two(61)],
      (year, month, day, hour, minute, second) => {
        const text = `${String(year).padStart(4, '0')}-${month}-${day}T${hour}:${minute}:${second}Z`
        const date = new Date(text)
        // Date moves a day that its month does not have into the next month, and knows hour 24.
        const exists =
          !Number.isNaN(date.getTime()) && date.toISOString() === text.replace('Z', '.000Z')
        expect(codec.encode(text) === text).toBe(exists)
      },
    ),
    { numRuns: 2000 },
  )
})

test.each([
  ['2024-01-02 03:04:05+00', '2024-01-02T03:04:05.000Z'],
  ['2024-01-02 03:04:05.1+00', '2024-01-02T03:04:05.100Z'],
  ['2024-01-02 03:04:05.123+00', '2024-01-02T03:04:05.123Z'],
  ['2024-01-02 03:04:05.1234+00', '2024-01-02T03:04:05.123400Z'],
  ['2024-01-02 03:04:05.123456+00', '2024-01-02T03:04:05.123456Z'],
  ['0001-01-01 00:00:00+00', '0001-01-01T00:00:00.000Z'],
])('reads %s', (text, json) => {
  expect(decodeDatetime(text)).toBe(json)
  expect(codec.decode(text)).toBe(`"${json}"`)
})

test('does not read a timestamp of another time zone or style as if it were in UTC', () => {
  expect(() => decodeDatetime('2024-01-02 03:04:05+01')).toThrow()
  expect(() => decodeDatetime('02/01/2024 03:04:05 UTC')).toThrow()
})

test('has now or a moment as default', () => {
  expect(datetimeType.parseDefault('now', column, options)).toBe(NOW)
  expect(datetimeType.parseDefault('2024-01-02T03:04:05Z', column, options)).toBe(
    '2024-01-02T03:04:05Z',
  )
  for (const text of ['', 'NOW', 'tomorrow', '2024-01-02']) {
    expect(datetimeType.parseDefault(text, column, options)).toBeInstanceOf(Fault)
  }
})
