import type { KeyScope } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { age, notice, print, printJson, printTable } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { withServer } from '../shared/target.js'
import { parseDuration } from './branch.js'

interface CreateFlags {
  readonly json?: boolean
  readonly readOnly?: boolean
  readonly audit?: boolean
  readonly workspace?: string
  readonly databases?: readonly string[]
  readonly branches?: readonly string[]
  readonly expires?: string
}

/** `offshoot keys`: lists, creates and revokes API keys. */
export const keysCommand = () =>
  createCommand('keys', 'API keys: ls, create, rm')
    .addCommand(
      withServer(createCommand('ls', 'list the API keys of the user')).action(
        action(async (target, { json }) => {
          const keys = await target.account.keys()
          if (json) printJson(keys)
          else {
            printTable(
              ['name', 'age', 'scope'],
              keys.map(({ name, createdAt, scope }) => [
                name,
                age(createdAt),
                describeScope(scope),
              ]),
            )
          }
          return 0
        }),
      ),
    )
    .addCommand(
      withServer(
        createCommand('create', 'create an API key, which is printed once', [
          'offshoot keys create ci --databases shop --branches "preview-*" --expires 30d',
          'offshoot keys create report --workspace home-x7k2p9 --read-only',
        ]),
      )
        .argument('<name>', 'name of the key')
        .option('--read-only', 'the key can only read')
        .option('--workspace <id>', 'the key reaches only this workspace')
        .option(
          '--databases <name...>',
          'the key reaches only these databases, of the workspace of the project (OFFSHOOT_WORKSPACE)',
        )
        .option(
          '--branches <pattern...>',
          'the key reaches only these branches of that workspace, such as preview-*',
        )
        .option('--audit', 'the key can read the audit log, although its scope is limited')
        .option('--expires <duration>', 'time until the key expires, such as 30d')
        .action(
          action<CreateFlags, [string]>(async (target, flags, name) => {
            // Another workspace may have a database of the same name.
            const isPart = [flags.workspace, flags.databases, flags.branches].some(
              (flag) => flag !== undefined,
            )
            const scope: KeyScope = {
              ...(flags.readOnly ? { access: 'read' } : {}),
              ...(flags.audit ? { audit: true } : {}),
              ...(isPart ? { workspaces: [await target.workspace()] } : {}),
              ...(flags.databases === undefined ? {} : { databases: flags.databases }),
              ...(flags.branches === undefined ? {} : { branches: flags.branches }),
            }
            const { expires } = flags
            const expiresAt =
              expires && new Date(Date.now() + parseDuration(expires) * 1000).toISOString()
            const created = await target.account.createKey(name, {
              ...(Object.keys(scope).length === 0 ? {} : { scope }),
              ...(expiresAt ? { expiresAt } : {}),
            })
            if (flags.json) printJson(created)
            else {
              print(`${created.key}\n`)
              notice(`The key reaches: ${describeScope(created.scope)}.`)
              notice('This is the only time that the key is shown.')
            }
            return 0
          }),
        ),
    )
    .addCommand(
      withServer(createCommand('rm', 'revoke an API key').alias('delete'))
        .argument('<name>', 'name of the key')
        .option('--yes', 'do not ask')
        .action(
          action<{ json?: boolean; yes?: boolean }, [string]>(
            async (target, { json, yes }, name) => {
              await requireConsent(`This revokes the API key ${name} on ${target.url}.`, yes)
              await target.account.deleteKey(name)
              if (json) printJson({ key: name, deleted: true })
              else notice(`Revoked the key ${name}.`)
              return 0
            },
          ),
        ),
    )

/** Says in words what a key reaches. */
function describeScope(scope: KeyScope | undefined): string {
  if (scope === undefined) return 'everything'
  const { access, audit, workspaces, databases, branches } = scope
  const { requestsPerSecond, requestsAtOnce } = scope
  const list = (noun: string, names: readonly string[] | undefined) =>
    names === undefined ? [] : [`${noun}${names.length === 1 ? '' : 's'} ${names.join(', ')}`]
  const parts = [
    ...list('workspace', workspaces),
    ...list('database', databases),
    ...(branches === undefined ? [] : [`branches ${branches.join(', ')}`]),
    ...(requestsPerSecond === undefined ? [] : [`${requestsPerSecond} requests per second`]),
    ...(requestsAtOnce === undefined ? [] : [`${requestsAtOnce} requests at once`]),
  ]
  const place = parts.length === 0 ? 'everything' : parts.join('; ')
  return [place, access === 'read' && 'read only', audit && 'the audit log']
    .filter(Boolean)
    .join('; ')
}
