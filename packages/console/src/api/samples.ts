import type { Place } from './clients.js'

/** A request as a command line. `path` is below the branch, or below the database if `of` says so. */
export function curlSample(
  { workspace, region, database, branch }: Place,
  path: string,
  options: { readonly body?: unknown; readonly of?: 'database' } = {},
): string {
  const { body, of } = options
  const place =
    of === 'database' ? `/dbs/${part(database)}` : `/db/${part(database)}:${part(branch)}`
  const lines = [
    `curl -sS ${quoted(`${location.origin}/${part(workspace)}.${part(region)}${place}${path}`)}`,
    `  -H "Authorization: Bearer $OFFSHOOT_API_KEY"`,
  ]
  if (body !== undefined) {
    lines.push(`  -H 'Content-Type: application/json'`, `  -d ${quoted(JSON.stringify(body))}`)
  }
  return lines.join(' \\\n')
}

const part = encodeURIComponent
/** The region that the client has by default. */
const REGION_DEFAULT = 'local'

/** Quotes a text for the shell. A single quote ends the text, so each is written outside of it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}

/** A program that uses the client of a branch. */
export function clientSample(
  { workspace, region, database, branch }: Place,
  statements: string,
): string {
  const regionLine = region === REGION_DEFAULT ? '' : `\n  region: ${JSON.stringify(region)},`
  return `import { createClient } from '@offshoot/client'

const client = createClient({
  url: ${JSON.stringify(location.origin)},
  apiKey: process.env.OFFSHOOT_API_KEY ?? '',
  workspace: ${JSON.stringify(workspace)},${regionLine}
  database: ${JSON.stringify(database)},
  branch: ${JSON.stringify(branch)},
})
${statements}
`
}
