import type { CallOptions, RepeatableBody, Transport } from './http.js'
import type { FileInfo } from './schema.js'

/** The content of one file of a record. */
export class FileHandle {
  readonly #transport: Transport
  readonly #path: string

  constructor(transport: Transport, path: string) {
    this.#transport = transport
    this.#path = path
  }

  /**
   * Downloads the content. Returns undefined if there is no file.
   *
   * @example
   * ```ts
   * const photo = await client.table('users').file('ada', 'photo').download()
   * console.log(photo?.type, photo?.size)
   * ```
   */
  async download(options: CallOptions = {}): Promise<Blob | undefined> {
    const response = await this.#get(options)
    return response?.blob()
  }

  /**
   * Downloads the content as a stream. Returns undefined if there is no file.
   *
   * @example
   * ```ts
   * const content = await client.table('users').file('ada', 'photo').stream()
   * for await (const chunk of content ?? []) console.log(chunk.byteLength)
   * ```
   */
  async stream(options: CallOptions = {}): Promise<ReadableStream<Uint8Array> | undefined> {
    const response = await this.#get(options)
    return response?.body ?? undefined
  }

  /**
   * Stores new content. A stream is sent as it is read, and is never repeated.
   *
   * @example
   * ```ts
   * const { url } = await client
   *   .table('users')
   *   .file('ada', 'photo')
   *   .upload(new Blob(['...'], { type: 'image/png' }))
   * ```
   */
  upload(
    content: RepeatableBody | ReadableStream<Uint8Array>,
    options: { readonly mediaType?: string } & CallOptions = {},
  ): Promise<FileInfo> {
    const ownType = content instanceof Blob && content.type !== '' ? content.type : undefined
    const mediaType = options.mediaType ?? ownType ?? 'application/octet-stream'
    return this.#transport.json({
      method: 'PUT',
      path: this.#path,
      body: content,
      headers: { 'content-type': mediaType },
      signal: options.signal,
    })
  }

  /**
   * Deletes the file. Returns its metadata.
   *
   * @example
   * ```ts
   * await client.table('users').file('ada', 'photo').delete()
   * ```
   */
  delete(options: CallOptions = {}): Promise<FileInfo> {
    return this.#transport.json({ method: 'DELETE', path: this.#path, signal: options.signal })
  }

  async #get({ signal }: CallOptions): Promise<Response | undefined> {
    const response = await this.#transport.send({
      method: 'GET',
      path: this.#path,
      isRead: true,
      signal,
    })
    return response.status === 204 ? undefined : response
  }
}
