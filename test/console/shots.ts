import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import type { Page } from 'playwright-core'

const FOLDER = process.env.OFFSHOOT_TEST_SHOTS

/** Hides or shows the notices, which are of earlier steps. The page allows no further styles. */
const setNotices = (page: Page, visibility: 'hidden' | 'visible') =>
  page.evaluate(
    `for (const each of document.querySelectorAll('.toasts')) each.style.visibility = '${visibility}'`,
  )

/** Saves screenshots, light and dark, to the folder in `OFFSHOOT_TEST_SHOTS`; nothing without it. */
export async function takeShot(page: Page, name: string): Promise<void> {
  if (FOLDER === undefined) return
  await mkdir(FOLDER, { recursive: true })
  await setNotices(page, 'hidden')
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme })
    await page.screenshot({ path: path.join(FOLDER, `${name}-${colorScheme}.png`) })
  }
  await page.emulateMedia({ colorScheme: null })
  await setNotices(page, 'visible')
}
