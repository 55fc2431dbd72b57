import fastify from 'fastify'
import pg from 'pg'

/*
 * The baseline for queries: a Fastify route with a hand-written statement through `pg` and nothing
 * else. No key, no checks, no schema, no cursor.
 */
const [postgresUrl = '', text = ''] = process.argv.slice(2)
const pool = new pg.Pool({ connectionString: postgresUrl, max: 32 })
const app = fastify()

app.post('/', async (request) => {
  const { values } = request.body as { values: unknown[] }
  const { rows } = await pool.query({ name: 'page', text, values })
  return { records: rows }
})

const address = await app.listen({ port: 0, host: '127.0.0.1' })
process.stdout.write(`${address}\n\n`)
process.on('SIGTERM', () => process.exit(0))
