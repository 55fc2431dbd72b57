/** The content of the message that a successful start prints. */
export interface StartFacts {
  readonly version: string
  readonly address: string
  /** `host:port` for clients of PostgreSQL; undefined if there is none. */
  readonly postgresAddress: string | undefined
  readonly hasConsole: boolean
  /** The token of the sign-in link; undefined if there is no link. */
  readonly signInToken: string | undefined
  readonly workspaceId: string | undefined
  readonly region: string
  readonly postgres: string
  readonly dataDir: string
  /** The key, if this start created it and may show it. */
  readonly newKey: string | undefined
  readonly keyFile: string | undefined
  /** Whether `offshoot` commands in the current folder find the service and its key without settings. */
  readonly isFoundByCommands: boolean
  readonly startedInMs: number
}

export function startMessage(facts: StartFacts, style: { color: boolean }): string {
  const paint = (code: number) => (text: string) =>
    style.color ? `\u001b[${code}m${text}\u001b[0m` : text
  const [bold, dim, green] = [paint(1), paint(2), paint(32)]
  const row = (name: string, value: string) => `  ${dim(name.padEnd(11))}${value}`
  const workspace = facts.workspaceId ?? '{workspace}'
  return [
    '',
    `  ${green('⑂')} ${bold('Offshoot')} ${facts.version} ${dim(`ready in ${seconds(facts.startedInMs)}`)}`,
    '',
    ...consoleRows(facts, row, { bold, dim }),
    row('API', bold(facts.address)),
    row('Workspace', `${facts.address}/${workspace}.${facts.region}/db/...`),
    ...postgresRows(facts, workspace).map((address) => row('PostgreSQL', address)),
    row('Reference', `${facts.address}/docs`),
    row('Data', `${facts.dataDir} ${dim(`(${facts.postgres})`)}`),
    ...keyRows(facts, row, { bold, dim }),
    '',
    `  ${dim(facts.isFoundByCommands ? 'Create a database, in a second terminal in this folder:' : 'Create a database:')}`,
    ...createLines(facts, workspace).map((line) => `  ${line}`),
    '',
  ].join('\n')
}

function postgresRows({ postgresAddress }: StartFacts, workspace: string): string[] {
  if (postgresAddress === undefined) return []
  return [`postgresql://${workspace}:{API key}@${postgresAddress}/{database}:{branch}`]
}

/** The token is in the fragment of the link, which browsers do not send, so no log of a proxy has it. */
function consoleRows(
  { address, hasConsole, signInToken }: StartFacts,
  row: (name: string, value: string) => string,
  { bold, dim }: Record<'bold' | 'dim', (text: string) => string>,
): string[] {
  if (!hasConsole) return []
  if (signInToken === undefined) {
    return [row('Console', `${bold(`${address}/console/`)} ${dim('(sign in with an API key)')}`)]
  }
  const link = `${address}/console/#token=${signInToken}`
  return [row('Console', `${bold(link)} ${dim('(signs in once)')}`)]
}

function keyRows(
  facts: StartFacts,
  row: (name: string, value: string) => string,
  { bold, dim }: Record<'bold' | 'dim', (text: string) => string>,
): string[] {
  const rows: string[] = []
  if (facts.newKey !== undefined) {
    rows.push(row('API key', `${bold(facts.newKey)} ${dim('(shown this once)')}`))
  }
  if (facts.keyFile !== undefined) rows.push(row('Key file', facts.keyFile))
  return rows
}

function createLines(facts: StartFacts, workspace: string): string[] {
  if (facts.isFoundByCommands) return ['npx offshoot db create shop']
  const key = facts.keyFile === undefined ? '$OFFSHOOT_API_KEY' : `$(cat ${quote(facts.keyFile)})`
  return [
    `curl -X PUT ${facts.address}/workspaces/${workspace}/dbs/shop \\`,
    `  -H "Authorization: Bearer ${key}" \\`,
    `  -H 'Content-Type: application/json' -d '{"region":"${facts.region}"}'`,
  ]
}

/** Quotes a text as one shell word. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`
}
