import { describe, expect, it } from 'vitest'
import { parseMetrics, quantileOf, rateOf, readingOf } from './prometheus.js'

const bucket = (le: string, value: number) =>
  `offshoot_http_request_duration_seconds_bucket{route="/a",le="${le}"} ${value}`
const at = (seconds: number, lines: readonly string[]) =>
  readingOf(parseMetrics(lines.join('\n')), seconds)

describe('parseMetrics', () => {
  it('reads names, labels with escapes, and values', () => {
    const text = '# TYPE a counter\na{b="c \\" }",d="e"} 12\nplain 1.5e-3\nbroken line here\n'
    expect(parseMetrics(text)).toEqual([
      { name: 'a', labels: { b: 'c \\" }', d: 'e' }, value: 12 },
      { name: 'plain', labels: {}, value: 0.0015 },
    ])
  })
})

describe('readings', () => {
  const before = at(0, [
    'offshoot_http_requests_total{status="200"} 10',
    bucket('0.1', 10),
    bucket('+Inf', 10),
  ])
  const after = at(5, [
    'offshoot_http_requests_total{status="200"} 20',
    'offshoot_http_requests_total{status="500"} 5',
    bucket('0.1', 19),
    bucket('+Inf', 20),
  ])

  it('give rates per second, also after a restart', () => {
    expect(rateOf(before, after, ({ requests }) => requests)).toBe(3)
    expect(rateOf(before, after, ({ failed }) => failed)).toBe(1)
    expect(rateOf(after, at(10, ['offshoot_http_requests_total 5']), (one) => one.requests)).toBe(1)
  })

  it('give quantiles of the time between them, and none without requests', () => {
    expect(quantileOf(before, after, 0.9)).toBe(0.1)
    expect(quantileOf(after, after, 0.9)).toBeNull()
  })
})
