import fastify from 'fastify'
import pg from 'pg'

/*
 * The baseline for single records: a Fastify route with the same statement through `pg` and nothing
 * else. No key, no checks, no schema.
 */
const [postgresUrl = '', heap = '', insertText = ''] = process.argv.slice(2)
const pool = new pg.Pool({ connectionString: postgresUrl, max: 32 })
const app = fastify()

app.get('/:id', async (request) => {
  const { id } = request.params as { id: string }
  const { rows } = await pool.query({
    name: 'get',
    text: `select * from ${heap} where id = $1`,
    values: [id],
  })
  return rows[0]
})

app.post('/', async (request) => {
  const { values } = request.body as { values: unknown[] }
  const { rows } = await pool.query({ name: 'insert', text: insertText, values })
  return rows[0]
})

const address = await app.listen({ port: 0, host: '127.0.0.1' })
process.stdout.write(`${address}\n\n`)
process.on('SIGTERM', () => process.exit(0))
