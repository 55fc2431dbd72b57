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
    '  offshoot backup       write a snapshot of the instance to a file; the service may be running',
    '  offshoot restore      fill an empty instance from a backup',
    '  offshoot --version    print the version',
    '  offshoot --help       print this help; after a command, the help of that command',
    '',
    'In a checkout: npm start, npx offshoot backup, npx offshoot restore.',
    '',
    'Settings (environment)',
    ...settings.map(
      (row) =>
        `  ${row.env.padEnd(width)}${row.help}\n  ${''.padEnd(width)}Default: ${row.fallback}. Allowed: ${row.allowed}.`,
    ),
    `  ${'OFFSHOOT_LIMIT_...'.padEnd(width)}Limits of the service; see docs/reference/settings.md.`,
    '',
  ].join('\n')
}
