export declare const PROGRAMS: string

export declare function hasCitus(bin?: string): boolean

/** One server of a cluster. */
export interface ClusterNode {
  readonly name: string
  readonly port: number
  readonly dataDir: string
  /** The URL of its database. */
  readonly url: string
  start(): Promise<void>
  stop(signal?: NodeJS.Signals): Promise<void>
}

export interface Cluster {
  /** The coordinator first. */
  readonly nodes: readonly ClusterNode[]
  stop(): Promise<unknown>
}

export declare function startCluster(options: {
  folder: string
  ports: readonly number[]
  reachedAt?: readonly number[]
  bin?: string
  log?: (text: string) => void
}): Promise<Cluster>
