import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

/** The secret of the instance that authenticates cursors. It never changes. */
export class CursorSecret {
  #secret: Buffer | undefined

  async load(database: Queryable): Promise<Buffer> {
    if (this.#secret !== undefined) return this.#secret
    const [row] = await database.query<{ secret: Buffer }>(sql`
      select secret from offshoot.secrets where purpose = 'cursors'`)
    if (row === undefined) throw new Error('the catalogue has no secret for cursors')
    this.#secret = row.secret
    return row.secret
  }
}
