import { createCommand, plainAction } from '../shared/command.js'
import { readStored, storeKey } from '../shared/credentials.js'
import { notice } from '../shared/output.js'
import { findAddress } from '../shared/target.js'

/** `offshoot logout`: forgets the API key of a server. */
export const logoutCommand = () =>
  createCommand('logout', 'forget the API key of a server; the key itself stays valid', [
    'offshoot logout --url https://db.example.com',
  ])
    .option('--url <url>', 'address of the server (OFFSHOOT_URL)')
    .action(
      plainAction<{ url?: string }, []>(async (flags) => {
        const url = await findAddress(flags.url)
        const { keys } = await readStored()
        await storeKey(url, undefined)
        notice(keys[url] === undefined ? `There was no key for ${url}.` : `Signed out of ${url}.`)
        return 0
      }),
    )
