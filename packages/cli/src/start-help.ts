import { settingsTable } from '@offshoot/server/config'

/** Renders the help of `offshoot start` with all settings, from the table that also parses them. */
export function startHelp(): string {
  const settings = settingsTable().filter((row) => !row.env.startsWith('OFFSHOOT_LIMIT_'))
  const width = Math.max(...settings.map((row) => row.env.length)) + 2
  return [
    'Usage: offshoot start',
    '',
    'Starts the service and runs it until it is told to stop. In a checkout: npm start.',
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
