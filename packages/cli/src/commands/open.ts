import { spawn } from 'node:child_process'
import { action, createCommand } from '../shared/command.js'
import { notice, print, printJson } from '../shared/output.js'
import { withServer } from '../shared/target.js'

const OPENERS: Readonly<Record<string, string>> = { darwin: 'open', win32: 'explorer' }

/** `offshoot open`: opens the server in a browser. */
export const openCommand = () =>
  withServer(createCommand('open', 'open the server in a browser')).action(
    action(async ({ url }, { json }) => {
      if (json) printJson({ url })
      else print(`${url}\n`)
      const child = spawn(OPENERS[process.platform] ?? 'xdg-open', [url], {
        stdio: 'ignore',
        detached: true,
      })
      child.on('error', () => notice('There is no browser to open; use the address above.'))
      child.unref()
      return 0
    }),
  )
