import { describe, it } from 'vitest'
import { createTables, expectOk } from '../support/tables.js'
import { hasChromium, testConsole } from './chromium.js'

const ROWS = Number(process.env.OFFSHOOT_TEST_MEASURE_ROWS ?? 0)
const BATCH = 10_000
const SCROLLED = 100_000

/** Records when the first cell of the grid has a text. */
const WATCH = `
  const look = () => {
    if (document.querySelector('.grid-cell:not(:empty)')?.textContent) window.firstRows = performance.now()
    else requestAnimationFrame(look)
  }
  requestAnimationFrame(look)
`
/** Scrolls to the end of what is known until enough rows were passed. */
const SCROLL = (rows: number) => `new Promise((resolve) => {
  const grid = document.querySelector('.grid')
  const step = () => {
    grid.scrollTop = grid.scrollHeight
    if (grid.scrollHeight > ${rows} * 30) resolve()
    else requestAnimationFrame(step)
  }
  step()
})`

/** Measures the grid of a large table: OFFSHOOT_TEST_MEASURE_ROWS=1000000. */
describe.skipIf(!hasChromium || ROWS === 0)('the grid of a large table', () => {
  const tested = testConsole()
  it('is measured', { timeout: 3_600_000 }, async () => {
    {
      const call = await createTables(tested.service, 'shop', {
        big: [
          { name: 'label', type: 'string' },
          { name: 'number', type: 'int' },
          { name: 'price', type: 'float' },
          { name: 'added', type: 'datetime' },
        ],
      })
      for (let first = 0; first < ROWS; first += BATCH) {
        const records = Array.from({ length: BATCH }, (_, n) => ({
          label: `label ${first + n}`,
          number: first + n,
          price: n / 8,
          added: '2026-11-16T00:00:00Z',
        }))
        expectOk(await call('POST', '/tables/big/bulk', { body: { records } }))
      }
      const address = `/console/w/${tested.service.workspaceId}/db/shop/b/main/tables/big`
      const times: number[] = []
      const cpuTimes: number[] = []
      for (let run = 0; run < 5; run++) {
        const { page, context } = await tested.open('/console/nothing', {})
        await page.addInitScript(WATCH)
        const session = await context.newCDPSession(page)
        await session.send('Network.clearBrowserCache')
        // CPU time of the main thread, which does not depend on what else the machine does.
        await session.send('Performance.enable', { timeDomain: 'threadTicks' })
        await page.goto(address)
        await page.locator('.grid-cell', { hasText: 'label' }).first().waitFor()
        const { metrics } = await session.send('Performance.getMetrics')
        const cpuSeconds = metrics.find(({ name }) => name === 'TaskDuration')?.value ?? 0
        cpuTimes.push(Math.round(cpuSeconds * 1000))
        times.push(Math.round(Number(await page.evaluate('window.firstRows'))))
        if (run === 4) {
          for (const rows of [1000, SCROLLED / 4, SCROLLED / 2, SCROLLED]) {
            await page.evaluate(SCROLL(rows))
            await session.send('HeapProfiler.collectGarbage')
            const { usedSize } = await session.send('Runtime.getHeapUsage')
            const nodes = await page.evaluate("document.querySelectorAll('*').length")
            console.log(`${rows} rows: ${Math.round(usedSize / 1e5) / 10} MB, ${nodes} elements`)
          }
        }
        await context.close()
      }
      console.log(`${ROWS} rows: first rows after ${times.join(', ')} ms`)
      console.log(`CPU time of the page until then: ${cpuTimes.join(', ')} ms`)
    }
  })
})
