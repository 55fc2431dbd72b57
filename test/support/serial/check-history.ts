import { type History, MISSING, type Observed, type Write } from './history.js'

/**
 * Anomalies that a serializable history does not have, with the names of Adya's thesis:
 *
 * G0        a cycle of write dependencies
 * G1a       a read of a value that was rolled back
 * G1b       a read of a value that its own transaction overwrote later
 * G1c       a cycle of write and read dependencies
 * G-single  a cycle with exactly one anti-dependency
 * G2        a cycle with several anti-dependencies
 *
 * `garbled` is a history that no order of versions explains.
 */
type AnomalyKind = 'G0' | 'G1a' | 'G1b' | 'G1c' | 'G-single' | 'G2' | 'garbled'

export interface Anomaly {
  readonly kind: AnomalyKind
  readonly explanation: string
}

/** An edge from a transaction to one that must come after it. */
interface Edge {
  readonly from: string
  readonly to: string
  /** Kinds of dependency: write-write, write-read, and read-write (anti-dependency). */
  readonly kind: 'ww' | 'wr' | 'rw'
  readonly key: string
}

/** Finds anomalies, at most one cycle per edge that closes one. */
export function checkHistory(history: History): Anomaly[] {
  const versions = orderVersions(history)
  const edges = dependencies(history, versions)
  return [...versions.garbled, ...dirtyReads(history), ...circles(edges)]
}

/** The versions of each key in order, with the transaction that wrote each. */
interface Versions {
  readonly byKey: ReadonlyMap<string, readonly Version[]>
  readonly garbled: readonly Anomaly[]
}

interface Version {
  readonly number: number
  readonly value: string
  readonly writer: string
}

function orderVersions(history: History): Versions {
  const garbled: Anomaly[] = []
  const found = new Map<string, Map<number, Version>>()
  const note = (key: string, version: Version, told: string) => {
    const versions = found.get(key) ?? new Map<number, Version>()
    const known = versions.get(version.number)
    if (known !== undefined && known.value !== version.value) {
      const explanation = `${key} version ${version.number} is [${known.value}] and, ${told}, [${version.value}]`
      garbled.push({ kind: 'garbled', explanation })
    }
    versions.set(version.number, known ?? version)
    found.set(key, versions)
  }
  const writers = writersOf(history)
  for (const { id, outcome, writes } of history) {
    if (outcome === 'aborted') continue
    for (const { key, version, value } of writes) {
      if (version !== undefined) note(key, { number: version, value, writer: id }, `says ${id}`)
    }
  }
  // Versions of transactions with an unknown outcome are found through reads.
  for (const { id, reads } of history) {
    for (const { key, version, value } of reads) {
      if (value === undefined) continue
      const writer = writers.get(value)?.id
      if (writer === undefined) {
        const explanation = `${id} saw [${value}] in ${key}, which nobody has written`
        garbled.push({ kind: 'garbled', explanation })
      } else note(key, { number: version, value, writer }, `saw ${id}`)
    }
  }
  const byKey = new Map(
    [...found].map(([key, versions]) => [
      key,
      [...versions.values()].sort((a, b) => a.number - b.number),
    ]),
  )
  return { byKey, garbled }
}

function writersOf(history: History): Map<string, Observed> {
  return new Map(
    history.flatMap((transaction) =>
      transaction.writes.map(({ value }) => [value, transaction] as const),
    ),
  )
}

function dirtyReads(history: History): Anomaly[] {
  const writers = writersOf(history)
  return history.flatMap(({ id, reads }) =>
    reads.flatMap(({ key, value }): Anomaly[] => {
      const writer = value === undefined ? undefined : writers.get(value)
      if (writer === undefined || writer.id === id) return []
      const seen = `${id} saw [${value}] of ${writer.id} in ${key}`
      if (writer.outcome === 'aborted') {
        return [{ kind: 'G1a', explanation: `${seen}, which was rolled back` }]
      }
      const last = writer.writes.filter((write: Write) => write.key === key).at(-1)
      if (last?.value === value) return []
      return [{ kind: 'G1b', explanation: `${seen}, which that replaced by [${last?.value}]` }]
    }),
  )
}

function dependencies(history: History, { byKey }: Versions): Edge[] {
  const edges = new Map<string, Edge>()
  const add = (edge: Edge) => {
    if (edge.from === edge.to) return
    edges.set(`${edge.from} ${edge.kind} ${edge.to} ${edge.key}`, edge)
  }
  for (const [key, versions] of byKey) {
    for (const [position, { writer }] of versions.entries()) {
      const next = versions[position + 1]
      if (next !== undefined) add({ from: writer, to: next.writer, kind: 'ww', key })
    }
  }
  for (const { id, outcome, reads } of history) {
    if (outcome === 'aborted') continue
    for (const { key, version } of reads) {
      const versions = byKey.get(key) ?? []
      const seen = versions.find(({ number }) => number === version)
      if (seen !== undefined && version !== MISSING) {
        add({ from: seen.writer, to: id, kind: 'wr', key })
      }
      const next = versions.find(({ number, writer }) => number > version && writer !== id)
      if (next !== undefined) add({ from: id, to: next.writer, kind: 'rw', key })
    }
  }
  return [...edges.values()]
}

type Graph = ReadonlyMap<string, readonly Edge[]>

function graphOf(edges: readonly Edge[]): Graph {
  const graph = new Map<string, Edge[]>()
  for (const edge of edges) {
    const out = graph.get(edge.from) ?? []
    out.push(edge)
    graph.set(edge.from, out)
  }
  return graph
}

/** Returns cycles under the strongest matching name: a G0 is not also reported as G1c. */
function circles(edges: readonly Edge[]): Anomaly[] {
  const only = (...kinds: readonly Edge['kind'][]) =>
    graphOf(edges.filter(({ kind }) => kinds.includes(kind)))
  const passes: readonly (readonly [AnomalyKind, Edge['kind'], Graph])[] = [
    ['G0', 'ww', only('ww')],
    ['G1c', 'wr', only('ww', 'wr')],
    ['G-single', 'rw', only('ww', 'wr')],
    ['G2', 'rw', only('ww', 'wr', 'rw')],
  ]
  const found: Anomaly[] = []
  const told = new Set<string>()
  for (const [kind, closing, graph] of passes) {
    const component = componentsOf(graph)
    for (const edge of edges) {
      if (edge.kind !== closing || told.has(edge.from)) continue
      // Within a component every edge lies on a cycle; for G-single, the edge itself is not in the
      // graph.
      const isPossible = kind === 'G-single' || component.get(edge.from) === component.get(edge.to)
      const back = isPossible ? shortestPath(graph, edge.to, edge.from) : undefined
      if (back === undefined) continue
      const circle = [edge, ...back]
      for (const { from } of circle) told.add(from)
      found.push({ kind, explanation: explain(circle) })
    }
  }
  return found
}

function shortestPath(graph: Graph, from: string, to: string): Edge[] | undefined {
  const cameBy = new Map<string, Edge | undefined>([[from, undefined]])
  const queue = [from]
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    if (next === to) {
      const path: Edge[] = []
      for (let edge = cameBy.get(to); edge !== undefined; edge = cameBy.get(edge.from)) {
        path.unshift(edge)
      }
      return path
    }
    for (const edge of graph.get(next) ?? []) {
      if (cameBy.has(edge.to)) continue
      cameBy.set(edge.to, edge)
      queue.push(edge.to)
    }
  }
  return undefined
}

/** Returns the strongly connected component of each transaction (Tarjan, iterative). */
function componentsOf(graph: Graph): Map<string, number> {
  const component = new Map<string, number>()
  const index = new Map<string, number>()
  const low = new Map<string, number>()
  const stack: string[] = []
  let count = 0
  const lower = (node: string, value: number) =>
    low.set(node, Math.min(low.get(node) ?? value, value))
  for (const root of graph.keys()) {
    if (index.has(root)) continue
    const open: { node: string; position: number }[] = []
    const enter = (node: string) => {
      index.set(node, index.size)
      lower(node, index.get(node) ?? 0)
      stack.push(node)
      open.push({ node, position: 0 })
    }
    enter(root)
    while (open.length > 0) {
      const frame = open.at(-1)
      if (frame === undefined) break
      const edge = graph.get(frame.node)?.[frame.position++]
      if (edge !== undefined) {
        if (!index.has(edge.to)) enter(edge.to)
        else if (!component.has(edge.to)) lower(frame.node, index.get(edge.to) ?? 0)
        continue
      }
      open.pop()
      const parent = open.at(-1)
      if (parent !== undefined) lower(parent.node, low.get(frame.node) ?? 0)
      if (low.get(frame.node) !== index.get(frame.node)) continue
      for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
        component.set(node, count)
        if (node === frame.node) break
      }
      count++
    }
  }
  return component
}

const WORDS = { ww: 'was overwritten by', wr: 'was seen by', rw: 'did not see' } as const

function explain(circle: readonly Edge[]): string {
  return circle
    .map(({ from, kind, key, to }) => `${from} ${WORDS[kind]} ${to} in ${key}`)
    .join(', ')
}
