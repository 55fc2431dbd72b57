import type { Import } from './imports.js'

export const SERVER = 'packages/server/src/'

/** The packages that each package may import. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  contract: [],
  'embedded-postgres': [],
  server: ['@offshoot/contract', '@offshoot/embedded-postgres'],
  client: [],
  cli: ['@offshoot/server', '@offshoot/client'],
  console: ['@offshoot/client'],
}

/**
 * The rooms of the server, lowest first. A file may import its own room and the rooms of lower levels.
 * Rooms of one level do not know each other.
 */
const LEVELS: readonly (readonly string[])[] = [
  ['common', 'telemetry', 'bundled.ts', 'tell-person.ts', 'version.ts'],
  ['config.ts'],
  ['blobs', 'postgres'],
  ['dialect'],
  // The floors of rows/. The modules beside its folders are the highest.
  ['rows/columns', 'rows/gates'],
  ['rows/layout'],
  ['rows/reading'],
  ['rows/indexes'],
  ['rows/heaps'],
  ['rows/running'],
  ['rows/writing'],
  ['rows/merging'],
  ['rows'],
  ['domain/access'],
  ['domain/log'],
  ['domain/long-work'],
  ['domain/checkpoints'],
  ['domain/keys'],
  ['domain/users'],
  ['domain/workspaces'],
  ['domain/quotas'],
  ['domain/schemas'],
  ['domain/branches'],
  ['domain/merges'],
  ['domain/proposals'],
  ['domain/databases'],
  ['domain/first-start.ts'],
  ['data/session'],
  ['data/files'],
  ['data/records'],
  ['data/query'],
  ['data/sets'],
  ['data/search'],
  ['data/sql'],
  ['shapes'],
  ['http'],
  ['wire'],
  [
    'console-folder.ts',
    'create-blob-store.ts',
    'early-postgres.ts',
    'explain-start.ts',
    'key-file.ts',
    'start-message.ts',
    'start-tracing.ts',
  ],
  ['app.ts', 'background.ts', 'backup', 'local-service.ts'],
  ['serve.ts'],
  ['main.ts'],
  ['start.ts'],
]

/**
 * The face of `rows/`: the modules that the rooms above may import. Everything else about how rows are stored stays below
 * them.
 */
export const ROWS_FACE: readonly string[] = [
  'rows/columns/column-types.ts',
  'rows/columns/conversions.ts',
  'rows/columns/datetime-type.ts',
  'rows/columns/fault.ts',
  'rows/columns/file-value.ts',
  'rows/columns/json-text.ts',
  'rows/columns/record-encoder.ts',
  'rows/columns/stored-schema.ts',
  'rows/columns/table-codec.ts',
  'rows/columns/text-types.ts',
  'rows/files.ts',
  'rows/heaps/schema-changes.ts',
  'rows/heaps/spare-heaps.ts',
  'rows/indexes/heap-indexes.ts',
  'rows/indexes/index-builder.ts',
  'rows/indexes/index-state.ts',
  'rows/indexes/vector-index.ts',
  'rows/layout/database-schema.ts',
  'rows/layout/fork.ts',
  'rows/layout/heap-sizes.ts',
  'rows/layout/layout.ts',
  'rows/layout/storage-hold.ts',
  'rows/merging/compare-rows.ts',
  'rows/merging/comparison.ts',
  'rows/merging/difference.ts',
  'rows/merging/publish-stream.ts',
  'rows/merging/settle.ts',
  'rows/merging/table-states.ts',
  'rows/open-branch.ts',
  'rows/reading/read-plan.ts',
  'rows/reading/record-json.ts',
  'rows/reading/searched-text.ts',
  'rows/reading/table-read.ts',
  'rows/reading/table-rows.ts',
  'rows/row-state.ts',
  'rows/running/staleness.ts',
  'rows/running/transactions.ts',
  'rows/storage.ts',
  'rows/stored-branch.ts',
  'rows/writing/refusals.ts',
  'rows/writing/staged-rows.ts',
  'rows/writing/table-writer.ts',
]

/** The names that the rooms above may import from `rows/`, all together. The number may only become smaller. */
export const ROWS_NAMES_MAX = 80

/** Describes what is wrong with an import, or returns undefined if it is allowed. */
export function explainImport({ file, target }: Import): string | undefined {
  // A test may use rooms above its own to set up what it tests.
  if (file.endsWith('.test.ts')) return
  const [, name = ''] = file.split('/')
  if (target.startsWith('@offshoot/')) {
    const allowed = PACKAGES[name]
    if (allowed?.some((known) => target === known || target.startsWith(`${known}/`))) return
    return `packages/${name} may import ${allowed?.join(', ') || 'no package of this repository'}`
  }
  if (!target.startsWith('packages/')) return
  if (!target.startsWith(`packages/${name}/src/`)) return 'a package is imported by its name'
  if (name !== 'server') return
  return explainRooms(file.slice(SERVER.length), target.slice(SERVER.length))
}

function explainRooms(file: string, target: string): string | undefined {
  const from = findRoom(file)
  const to = findRoom(target)
  if (from === undefined) return `${file} is in no room: add its room to LEVELS`
  if (to === undefined) return `${target} is in no room: add its room to LEVELS`
  if (from.room === to.room) return
  if (to.level >= from.level) return `${from.room} is not above ${to.room}`
  if (isInRows(target) && !isInRows(file) && !ROWS_FACE.includes(target)) {
    return 'rows/ is only imported through its face, the modules in ROWS_FACE'
  }
  return
}

/** Returns whether a file, below the folder of the server, belongs to `rows/`. */
export function isInRows(file: string): boolean {
  return file.startsWith('rows/')
}

function findRoom(file: string): { room: string; level: number } | undefined {
  for (const [level, rooms] of LEVELS.entries()) {
    const room = rooms.find((name) => file === name || file.startsWith(`${name}/`))
    if (room !== undefined) return { room, level }
  }
  return undefined
}

/** Finds import cycles between files: each as the list of its files, in the order of the imports. */
export function findCycles(imports: readonly Import[]): string[][] {
  const targets = new Map<string, string[]>()
  for (const { file, target } of imports) {
    targets.set(file, [...(targets.get(file) ?? []), target])
  }
  const done = new Set<string>()
  const cycles: string[][] = []
  const visit = (file: string, path: readonly string[]): void => {
    const start = path.indexOf(file)
    if (start >= 0) {
      cycles.push(path.slice(start))
      return
    }
    if (done.has(file)) return
    for (const target of targets.get(file) ?? []) visit(target, [...path, file])
    done.add(file)
  }
  for (const file of targets.keys()) visit(file, [])
  return cycles
}
