import { createClient } from '@offshoot/client'
import { createCommand, plainAction } from '../shared/command.js'
import { credentialsFile, storeKey } from '../shared/credentials.js'
import { UsageError } from '../shared/failure.js'
import { httpFetch } from '../shared/http-fetch.js'
import { notice } from '../shared/output.js'
import { askForKey } from '../shared/prompts.js'
import { findAddress } from '../shared/target.js'

/** `offshoot login`: checks an API key and keeps it. */
export const loginCommand = () =>
  createCommand('login', 'check an API key and keep it for later commands', [
    'offshoot login',
    'offshoot login --url https://db.example.com < key.txt',
  ])
    .option('--url <url>', 'address of the server (OFFSHOOT_URL)')
    .action(
      plainAction<{ url?: string }, []>(async (flags) => {
        const url = await findAddress(flags.url)
        const apiKey = (await askForKey(url)).trim()
        if (apiKey === '') throw new UsageError('no API key was given')
        const { account } = createClient({
          url,
          apiKey,
          fetch: httpFetch,
          database: 'none',
          branch: 'main',
        })
        const { email } = await account.user()
        await storeKey(url, apiKey)
        notice(`Signed in to ${url} as ${email}. The key is in ${credentialsFile()}.`)
        return 0
      }),
    )
