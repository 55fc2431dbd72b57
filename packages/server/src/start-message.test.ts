import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { type StartFacts, startMessage } from './start-message.js'

const FACTS: StartFacts = {
  version: '1.2.3',
  address: 'http://127.0.0.1:6001',
  postgresAddress: undefined,
  workspaceId: 'home-abc123',
  region: 'local',
  postgres: 'embedded PostgreSQL 18.4',
  dataDir: '/data',
  newKey: 'off_secret',
  hasConsole: false,
  signInToken: undefined,
  keyFile: '/data/api-key',
  isFoundByCommands: false,
  startedInMs: 1234,
}

const render = (facts: Partial<StartFacts> = {}) =>
  startMessage({ ...FACTS, ...facts }, { color: false })

describe('startMessage', () => {
  it('says where everything is, and the key that is new', () => {
    expect(render()).toBe(`
  ⑂ Offshoot 1.2.3 ready in 1.2 s

  API        http://127.0.0.1:6001
  Workspace  http://127.0.0.1:6001/home-abc123.local/db/...
  Reference  http://127.0.0.1:6001/docs
  Data       /data (embedded PostgreSQL 18.4)
  API key    off_secret (shown this once)
  Key file   /data/api-key

  Create a database:
  curl -X PUT http://127.0.0.1:6001/workspaces/home-abc123/dbs/shop \\
    -H "Authorization: Bearer $(cat '/data/api-key')" \\
    -H 'Content-Type: application/json' -d '{"region":"local"}'
`)
  })

  it('shows the command of the command line if it needs no settings', () => {
    const message = render({ isFoundByCommands: true })
    expect(message).toContain(
      '  Create a database, in a second terminal in this folder:\n  npx offshoot db create shop\n',
    )
    expect(message).not.toContain('curl')
  })

  it('links to the console with a token that is not sent to servers', () => {
    expect(render({ hasConsole: true, signInToken: 'abc' })).toContain(
      '  Console    http://127.0.0.1:6001/console/#token=abc (signs in once)\n',
    )
    expect(render({ hasConsole: true })).toContain(
      '  Console    http://127.0.0.1:6001/console/ (sign in with an API key)\n',
    )
    expect(render()).not.toContain('Console')
  })

  it('does not show the key of an earlier start', () => {
    const message = render({ newKey: undefined })
    expect(message).not.toContain('off_secret')
    expect(message).not.toContain('shown this once')
    expect(message).toContain('Key file   /data/api-key')
  })

  it('names the variable when there is no key file, and a place for the workspace', () => {
    const message = render({ keyFile: undefined, newKey: undefined, workspaceId: undefined })
    expect(message).toContain('Bearer $OFFSHOOT_API_KEY')
    expect(message).toContain('/workspaces/{workspace}/dbs/shop')
    expect(message).not.toContain('undefined')
  })

  it('uses colours only when it is asked to', () => {
    const colour = '\u001b['
    expect(render()).not.toContain(colour)
    expect(startMessage(FACTS, { color: true })).toContain(colour)
  })

  it.each(['plain', "it's", 'a b', '$HOME', '`id`', '"quoted"', 'back\\slash'])(
    'can be pasted into a shell with a data folder called %s',
    (name) => {
      const parent = mkdtempSync(path.join(tmpdir(), 'offshoot-message-'))
      const keyFile = path.join(parent, name)
      writeFileSync(keyFile, 'off_from_file\n')
      const [, command = ''] = render({ keyFile }).split('Create a database:\n')
      const script = `curl() { for word in "$@"; do printf '%s\\n' "$word"; done; }\n${command}`
      const words = execFileSync('sh', ['-c', script], { encoding: 'utf8' }).trim().split('\n')
      rmSync(parent, { recursive: true })
      expect(words).toEqual([
        '-X',
        'PUT',
        'http://127.0.0.1:6001/workspaces/home-abc123/dbs/shop',
        '-H',
        'Authorization: Bearer off_from_file',
        '-H',
        'Content-Type: application/json',
        '-d',
        '{"region":"local"}',
      ])
    },
  )
})
