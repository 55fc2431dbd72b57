import { settingsTable } from '@offshoot/server/config'

/** Renders the commands and all settings, from the table that also parses them. */
export function help(): string {
  const settings = settingsTable().filter((row) => !row.env.startsWith('OFFSHOOT_LIMIT_'))
  const width = Math.max(...settings.map((row) => row.env.length)) + 2
  return [
    'Offshoot: a database service that branches like git.',
    '',
    'Usage',
    '  offshoot start        start the service',
    '  offshoot backup       write everything to one file, while the service goes on',
    '  offshoot restore      fill an empty instance from such a file',
    '  offshoot --version    print the version',
    '  offshoot --help       print this; after a command, what that command takes',
    '',
    'In a checkout: npm start, npx offshoot backup, npx offshoot restore.',
    '',
    'Settings (environment)',
    ...settings.map(
      (row) =>
        `  ${row.env.padEnd(width)}${row.help}\n  ${''.padEnd(width)}Default: ${row.fallback}. Allowed: ${row.allowed}.`,
    ),
    `  ${'OFFSHOOT_LIMIT_...'.padEnd(width)}Each limit of the service; listed in docs/reference/settings.md.`,
    '',
  ].join('\n')
}
