import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import type { FileForm } from '../../rows/columns/file-value.js'
import { writeAccessId } from './access-id.js'

export type LinkPurpose = 'read' | 'upload'

interface LinkKey {
  readonly id: string
  readonly secret: Buffer
}

/** The time after which a key is replaced by a new one for signing. */
const KEY_DAYS = 30
/** Signatures expire after at most one day. A key is kept until its last signature has expired. */
const KEY_KEPT_DAYS = KEY_DAYS + 2

/** Other processes accept a deleted key for up to this long. */
const RELOAD_MS = 10_000

/** Signs links to files and verifies the signatures. */
export class FileLinks {
  #keys: readonly LinkKey[] = []
  #loadedAtMs = Number.NEGATIVE_INFINITY

  /** Loads the keys. Must be called before signing. */
  async load(database: Queryable): Promise<void> {
    if (performance.now() - this.#loadedAtMs < RELOAD_MS) return
    await this.reload(database)
  }

  async reload(database: Queryable): Promise<void> {
    this.#keys = await database.query<{ id: string; secret: Buffer }>(sql`
      select id, secret from offshoot.link_keys order by id desc`)
    this.#loadedAtMs = performance.now()
  }

  /** Returns how a response writes the files of a branch. `origin` is the address of the service. */
  form(options: { origin: string; branchId: string; canUpload: boolean }): FileForm {
    const { origin, branchId, canUpload } = options
    const link: FileForm['link'] = (file, signed) => {
      const accessId = writeAccessId(branchId, file)
      const url = `${origin}/file/${accessId}`
      return signed === undefined ? url : `${url}?verify=${this.#sign(accessId, signed)}`
    }
    return { canUpload, link, contents: new Map() }
  }

  /** Signs with the newest key. The format is `{key}.{expiry}.{signature}`. */
  #sign(accessId: string, options: { purpose: LinkPurpose; seconds: number }): string {
    const [key] = this.#keys
    if (key === undefined) throw new Error('link keys must be loaded before signing')
    const expiresAt = Math.floor(Date.now() / 1000) + options.seconds
    const signed = { accessId, purpose: options.purpose, expiresAt }
    return `${key.id}.${expiresAt}.${signature(key, signed).toString('base64url')}`
  }

  /** Returns whether the signature is valid for this file and purpose, and has not expired. */
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
    // Buffer.from ignores some invalid characters, so require the canonical encoding.
    const bytes = Buffer.from(given, 'base64url')
    return (
      bytes.toString('base64url') === given &&
      timingSafeEqual(bytes, signature(key, { ...options, expiresAt }))
    )
  }

  /** Finds a key that another process has just created. */
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

/** Inserts a new key, which signs links from now on. Older keys still verify. */
export async function insertLinkKey(database: Queryable): Promise<{ id: string; createdAt: Date }> {
  const [row] = await database.query<{ id: string; createdAt: Date }>(sql`
    insert into offshoot.link_keys (secret)
    values (${randomBytes(32)})
    returning id, created_at as "createdAt"`)
  if (row === undefined) throw new Error('an inserted key was not returned')
  return row
}

/** Deletes older keys, which invalidates the links that they signed. Returns the number of deleted keys. */
export async function deleteLinkKeysBefore(database: Queryable, id: string): Promise<number> {
  const rows = await database.query(sql`
    delete from offshoot.link_keys
    where id < ${id}
    returning id`)
  return rows.length
}

/** Inserts a new key if the newest is too old, and deletes keys whose signatures have all expired. */
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
