import { askFirstAnswers } from './app/first-answers.js'
import { pageOf } from './app/pages.js'
import { applyTheme } from './app/theme.js'
import './style.css'

/** If the first answers take longer, the frame is shown without them. */
const FRAME_MS = 300

// Libraries that add styles at run time look for the nonce of the content security policy here.
const nonce = document.querySelector<HTMLMetaElement>('meta[property=csp-nonce]')?.nonce
Object.assign(globalThis, { __webpack_nonce__: nonce })

applyTheme()
void show()

/** Renders the page once with all that it shows, instead of once for each answer. */
async function show(): Promise<void> {
  const ready = Promise.allSettled([askFirstAnswers(location), pageOf(location.pathname)?.load()])
  const { start } = await import('./app/start.js')
  await Promise.race([ready, new Promise((resolve) => setTimeout(resolve, FRAME_MS))])
  start()
}
