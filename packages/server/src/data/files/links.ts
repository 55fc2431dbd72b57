import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import type { FileForm, LinkPurpose } from '../../rows/files.js'
import { writeAccessId } from './access-id.js'

interface LinkKey {
  readonly id: string
  readonly secret: Buffer
}

/** A key signs for this long; then a new one does. */
const KEY_DAYS = 30
/** Signatures live for a day at the most; a key is kept until the last of its has expired. */
const KEY_KEPT_DAYS = KEY_DAYS + 2

/** After a key is deleted, processes that do nothing else still trust it for this long. */
const RELOAD_MS = 10_000

/** Signs links to files, and tells its own signatures from others. */
export class FileLinks {
  #keys: readonly LinkKey[] = []
  #loadedAtMs = Number.NEGATIVE_INFINITY

  /** Must have run before anything is signed. */
  async load(database: Queryable): Promise<void> {
    if (performance.now() - this.#loadedAtMs < RELOAD_MS) return
    await this.reload(database)
  }

  async reload(database: Queryable): Promise<void> {
    this.#keys = await database.query<{ id: string; secret: Buffer }>(sql`
      select id, secret from offshoot.link_keys order by id desc`)
    this.#loadedAtMs = performance.now()
  }

  /** How the answers of a request write files on a branch. `origin` is the address of the service. */
  form(options: { origin: string; branchId: string; canUpload: boolean }): FileForm {
    const { origin, branchId, canUpload } = options
    const link: FileForm['link'] = (file, signed) => {
      const accessId = writeAccessId(branchId, file)
      const url = `${origin}/file/${accessId}`
      return signed === undefined ? url : `${url}?verify=${this.#sign(accessId, signed)}`
    }
    return { canUpload, link, contents: new Map() }
  }

  /** `{key}.{expiry}.{signature}`; the newest key signs. */
  #sign(accessId: string, options: { purpose: LinkPurpose; seconds: number }): string {
    const [key] = this.#keys
    if (key === undefined) throw new Error('there is no key to sign links with')
    const expiresAt = Math.floor(Date.now() / 1000) + options.seconds
    const signed = { accessId, purpose: options.purpose, expiresAt }
    return `${key.id}.${expiresAt}.${signature(key, signed).toString('base64url')}`
  }

  /** Whether the text was signed here, for this file and purpose, and has not expired. */
  async verify(
    database: Queryable,
    text: string,
    options: { accessId: string; purpose: LinkPurpose },
  ): Promise<boolean> {
    const match = /^(\d{1,19})\.(\d{1,12})\.([\w-]{43})$/.exec(text)
    if (match === null) return false
    const [, keyId = '', expiry = '', given = ''] = match
    const expiresAt = Number(expiry)
    if (expiresAt * 1000 <= Date.now()) return false
    await this.load(database)
    const key = this.#keys.find(({ id }) => id === keyId) ?? (await this.#findNew(database, keyId))
    if (key === undefined) return false
    // A text that only reads like the signature is another one.
    const bytes = Buffer.from(given, 'base64url')
    return (
      bytes.toString('base64url') === given &&
      timingSafeEqual(bytes, signature(key, { ...options, expiresAt }))
    )
  }

  /** Another process may have made it just now. */
  async #findNew(database: Queryable, keyId: string): Promise<LinkKey | undefined> {
    const [newest] = this.#keys
    if (newest === undefined || BigInt(keyId) <= BigInt(newest.id)) return undefined
    const [known] = await database.query(sql`
      select id from offshoot.link_keys where id = ${keyId}`)
    if (known !== undefined) await this.reload(database)
    return this.#keys.find(({ id }) => id === keyId)
  }
}

function signature(
  key: LinkKey,
  { accessId, purpose, expiresAt }: { accessId: string; purpose: LinkPurpose; expiresAt: number },
): Buffer {
  return createHmac('sha256', key.secret).update(`${purpose}\n${expiresAt}\n${accessId}`).digest()
}

/** From now on links are signed with a new key; the old ones still verify. */
export async function insertLinkKey(database: Queryable): Promise<{ id: string; createdAt: Date }> {
  const [row] = await database.query<{ id: string; createdAt: Date }>(sql`
    insert into offshoot.link_keys (secret)
    values (${randomBytes(32)})
    returning id, created_at as "createdAt"`)
  if (row === undefined) throw new Error('an inserted key was not returned')
  return row
}

/** Ends the links that the keys before this one have signed. Resolves with how many keys there were. */
export async function deleteLinkKeysBefore(database: Queryable, id: string): Promise<number> {
  const rows = await database.query(sql`
    delete from offshoot.link_keys
    where id < ${id}
    returning id`)
  return rows.length
}

/** Makes a new key when the newest is old, and drops those whose signatures have all expired. */
export async function renewLinkKeys(database: Queryable): Promise<void> {
  const [recent] = await database.query(sql`
    select 1
    from offshoot.link_keys
    where created_at > now() - make_interval(days => ${KEY_DAYS})
    limit 1`)
  if (recent === undefined) await insertLinkKey(database)
  await database.query(sql`
    delete from offshoot.link_keys
    where created_at < now() - make_interval(days => ${KEY_KEPT_DAYS})
      and id < (select max(id) from offshoot.link_keys)`)
}
