/** The content of the message that a successful start prints. */
export interface StartFacts {
  readonly version: string
  readonly address: string
  readonly workspaceId: string | undefined
  readonly region: string
  readonly postgres: string
  readonly dataDir: string
  readonly newKey: string | undefined
  readonly keyFile: string | undefined
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
    row('API', bold(facts.address)),
    row('Workspace', `${facts.address}/${workspace}.${facts.region}/db/...`),
    row('Reference', `${facts.address}/docs`),
    row('Data', `${facts.dataDir} ${dim(`(${facts.postgres})`)}`),
    ...keyRows(facts, row, { bold, dim }),
    '',
    `  ${dim('Create a database:')}`,
    ...createLines(facts, workspace).map((line) => `  ${line}`),
    '',
  ].join('\n')
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
