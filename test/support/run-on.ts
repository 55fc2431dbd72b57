import pg from 'pg'

/** Runs statements on a connection of their own. Returns the rows of the last one. */
export async function runOn<Row extends pg.QueryResultRow>(
  config: pg.ClientConfig,
  statements: readonly string[],
): Promise<Row[]> {
  const client = new pg.Client(config)
  client.on('error', () => undefined)
  await client.connect()
  try {
    let rows: Row[] = []
    for (const statement of statements) rows = (await client.query<Row>(statement)).rows
    return rows
  } finally {
    await client.end()
  }
}
