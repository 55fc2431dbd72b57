import { describe, expect, it } from 'vitest'
import { Counter, gauge, Metrics } from './metrics.js'

/** Metrics whose rendering takes some milliseconds, and a count of how often they were rendered. */
function slowMetrics(options?: { renderShareMax: number }) {
  const rendered = new Counter('rendered', 'Rendered.')
  let times = 0
  const metrics = new Metrics(options)
  metrics.add(
    rendered,
    gauge('slow', 'Slow.', () => {
      times++
      for (const end = performance.now() + 5; performance.now() < end; );
      return 1
    }),
  )
  return { metrics, rendered, times: () => times }
}

describe('metrics', () => {
  it('are not rendered for each of many requests', () => {
    const { metrics, times } = slowMetrics()
    for (let count = 0; count < 1000; count++) metrics.render()
    expect(times()).toBeLessThan(100)
  })

  it('are rendered anew after a while', async () => {
    const { metrics, rendered } = slowMetrics()
    expect(String(metrics.render())).toContain('rendered 0\n')
    rendered.add()
    await expect.poll(() => String(metrics.render())).toContain('rendered 1\n')
  })

  it('are those of the moment if rendering may take all of the time', () => {
    const { metrics, rendered, times } = slowMetrics({ renderShareMax: 1 })
    for (let count = 0; count < 3; count++) {
      expect(String(metrics.render())).toContain(`rendered ${count}\n`)
      rendered.add()
    }
    expect(times()).toBe(3)
  })
})
