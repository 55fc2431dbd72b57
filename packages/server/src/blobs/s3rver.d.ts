/** The part of the S3-compatible test server that tests use; it brings no types of its own. */
declare module 's3rver' {
  export default class S3rver {
    constructor(options: {
      directory: string
      address?: string
      port?: number
      silent?: boolean
      configureBuckets?: readonly { name: string; configs: readonly string[] }[]
    })
    run(): Promise<{ port: number }>
    close(): Promise<void>
  }
}
