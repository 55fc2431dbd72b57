import { createHash } from 'node:crypto'
import { until } from '../process.js'
import type { Found, Ledger, Row, Rows } from './ledger.js'
import { DATABASE, type Endpoint, type Reply } from './service.js'

const PAGE_SIZE = 1000
/** Concurrent requests of a check. */
const READS_AT_ONCE = 8

/** Columns in a comparable form. */
export function canonical(values: Readonly<Record<string, unknown>>): string {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined)
  return JSON.stringify(Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1))))
}

export function sha256Of(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}

/**
 * Compares all data of a service with the ledger over HTTP, and updates the ledger. No writer may
 * be running. Returns the faults.
 */
export async function checkLedger(service: Endpoint, ledger: Ledger): Promise<string[]> {
  const endpoint = repeating(service)
  const main = await readBranch(endpoint, 'main')
  if (main === undefined) return ['main: is missing']
  const faults = ledger.checkMain(main)
  const names = [...ledger.branches.keys()]
  const found = new Map<string, Found | undefined>()
  await inParallel(names, async (name) => {
    found.set(name, await readBranch(endpoint, name))
  })
  for (const [name, branch] of [...ledger.branches]) {
    faults.push(...ledger.checkBranch(branch, found.get(name)))
  }
  faults.push(...(await checkBranchList(endpoint, ledger)))
  faults.push(...(await checkDownloads(endpoint, main)))
  if (faults.length === 0) ledger.settle()
  return faults
}

/** The records to read from each table. */
export interface Filters {
  readonly items: object
  readonly files: object
}

/** Returns all records of a branch; undefined if the branch does not exist. */
async function readBranch(
  endpoint: Endpoint,
  branch: string,
  filters: Filters = { items: {}, files: {} },
): Promise<Found | undefined> {
  const items = await readTable(endpoint, {
    branch,
    table: 'items',
    columns: ['*'],
    filter: filters.items,
  })
  const files = await readTable(endpoint, {
    branch,
    table: 'files',
    columns: ['label', 'content.size', 'content.base64Content'],
    filter: filters.files,
  })
  if (items === undefined || files === undefined) return undefined
  const rows = new Map<string, Row>()
  let total = 0
  for (const { id, service, ...values } of items) {
    if (id === 'total') total = values.value as number
    else {
      const key = keyOf(id, values.payload)
      const row = { values: canonical(values), version: service.version }
      rows.set(rows.has(key) ? `${key} twice` : key, row)
    }
  }
  for (const { id, service, label, content } of files) {
    const values = canonical({ label, content: contentHash(content) })
    rows.set(`files/${id}`, { values, version: service.version })
  }
  return { rows, total }
}

/** Records with generated ids are identified by a text from their writer. */
function keyOf(id: string, payload: string): string {
  return `items/${id.startsWith('rec_') ? payload : id}`
}

/**
 * Returns the records of one writer on the first branch; undefined while the service does not
 * answer.
 */
export async function readOwnRows(endpoint: Endpoint, filters: Filters): Promise<Rows | undefined> {
  if (!(await isReady(endpoint))) return undefined
  try {
    return (await readBranch(endpoint, 'main', filters))?.rows
  } catch {
    return undefined
  }
}

async function isReady(endpoint: Endpoint): Promise<boolean> {
  return (await endpoint.send('GET', '/health')).status === 200
}

function contentHash(content: { base64Content?: string; size: number } | undefined) {
  if (content === undefined) return undefined
  const bytes = Buffer.from(content.base64Content ?? '', 'base64')
  return bytes.length === content.size ? sha256Of(bytes) : `cut to ${bytes.length} bytes`
}

// biome-ignore lint/suspicious/noExplicitAny: records of every shape.
type AnyRecord = Record<string, any>

async function readTable(
  endpoint: Endpoint,
  options: { branch: string; table: string; columns: readonly string[]; filter: object },
): Promise<AnyRecord[] | undefined> {
  const url = `/db/${DATABASE}:${options.branch}/tables/${options.table}/query`
  const records: AnyRecord[] = []
  const { columns, filter } = options
  let body: object = { columns, filter, page: { size: PAGE_SIZE } }
  for (;;) {
    const reply = await endpoint.send('POST', url, { body })
    if (reply.status === 404 && reply.body.code === 'branch_not_found') return undefined
    expectFine(reply, `${url}`)
    records.push(...reply.body.records)
    const { cursor, more } = reply.body.meta.page
    if (!more) return records
    body = { page: { after: cursor } }
  }
}

/** Checks that there are no unexpected branches. */
async function checkBranchList(endpoint: Endpoint, ledger: Ledger): Promise<string[]> {
  const reply = await endpoint.send('GET', `/dbs/${DATABASE}`)
  expectFine(reply, 'the list of branches')
  const names: string[] = reply.body.branches.map((branch: { name: string }) => branch.name)
  return names
    .filter((name) => name !== 'main' && !ledger.branches.has(name))
    .map((name) => `${name}: is there, and nobody made it`)
}

/** Checks that every file of the first branch can be downloaded with the right content. */
async function checkDownloads(endpoint: Endpoint, { rows }: Found): Promise<string[]> {
  const faults: string[] = []
  const files = [...rows].filter(([key]) => key.startsWith('files/'))
  await inParallel(files, async ([key, { values }]) => {
    const { content } = JSON.parse(values)
    const id = key.slice('files/'.length)
    const url = `/db/${DATABASE}:main/tables/files/data/${id}/column/content/file`
    const reply = await endpoint.send('GET', url)
    if (content === undefined) {
      if (reply.status !== 204 && reply.status !== 404) faults.push(`${key}: ${reply.status}`)
      return
    }
    const hash = reply.status === 200 ? sha256Of(reply.bytes) : `status ${reply.status}`
    if (hash !== content) faults.push(`${key}: downloads as ${hash}, must be ${content}`)
    if (reply.headers.etag !== `"${content}"`) faults.push(`${key}: has etag ${reply.headers.etag}`)
  })
  return faults
}

/**
 * Repeats requests that are answered with 503, as clients are asked to. On a busy machine, a connection to PostgreSQL
 * can take longer than its time limit.
 */
function repeating(endpoint: Endpoint): Endpoint {
  return {
    async send(...request) {
      let reply = await endpoint.send(...request)
      await until(async () => {
        if (reply.status === 503) reply = await endpoint.send(...request)
        return reply.status !== 503
      })
      return reply
    },
  }
}

function expectFine(reply: Reply, what: string): void {
  if (reply.status >= 200 && reply.status < 300) return
  throw new Error(`${what}: got ${reply.status} ${JSON.stringify(reply.body)}`)
}

async function inParallel<Item>(
  items: readonly Item[],
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const queue = [...items]
  const worker = async () => {
    for (let item = queue.pop(); item !== undefined; item = queue.pop()) await work(item)
  }
  await Promise.all(Array.from({ length: READS_AT_ONCE }, worker))
}
