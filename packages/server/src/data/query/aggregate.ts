import type { AggregateRequest } from '@offshoot/contract/aggregation'
import { type AggregationContext, type Measure, parseAggregations } from './aggregation.js'
import { type AggregationNode, aggregationSql, BUCKETS_MAX, listNodes } from './aggregation-sql.js'
import { BaseRows, runCalculation, writeValue } from './base-rows.js'
import { type Field, type FieldType, resolveField } from './field.js'
import { parseFilter } from './filter.js'
import { invalidQuery } from './invalid-query.js'
import { lookupOf, type QueryContext } from './query-records.js'
import { requireQuerySize } from './query-size.js'

const DEFAULT = { count: { count: '*' } }

/** Aggregates the records that meet a filter. Returns JSON text. */
export async function aggregateRecords(
  context: QueryContext,
  request: AggregateRequest,
): Promise<string> {
  const { session } = context
  requireQuerySize(request.filter, request.aggs)
  const { codec } = session.table(context.tableName)
  const lookup = lookupOf(session)
  const resolve = (path: string) => resolveField(lookup, codec, path)
  const isLink: AggregationContext['isLink'] = ({ source, links }: Field) =>
    source.kind === 'column' &&
    (links.at(-1)?.target ?? codec).physical[source.index]?.column.type === 'link'
  const nodes = listNodes(parseAggregations({ resolve, isLink }, request.aggs ?? DEFAULT))
  const base = new BaseRows(lookup, codec, parseFilter(resolve, request.filter ?? {}))
  const rows = await runCalculation(context, aggregationSql(nodes, base))
  const buckets = nodes.map((): Bucket[] => [])
  for (const [index, , text] of rows) {
    const node = nodes[Number(index)]
    if (node !== undefined) buckets[node.index]?.push(readBucket(node, text))
  }
  if (buckets.some(({ length }) => length > BUCKETS_MAX)) {
    throw invalidQuery(`aggs: there are more than ${BUCKETS_MAX} buckets; ask for fewer`)
  }
  const [root] = nodes
  const whole = buckets[0]?.[0]
  if (root === undefined || whole === undefined) throw new Error('the root must have a result')
  return `{"aggs":{${new Writer(buckets).members(root, whole).join(',')}}}`
}

interface Bucket {
  readonly keys: readonly (string | null)[]
  readonly count: string
  readonly measures: readonly (string | null)[]
}

function readBucket({ keys }: AggregationNode, text: string | null | undefined): Bucket {
  const texts = JSON.parse(text ?? '[]') as (string | null)[]
  return {
    keys: texts.slice(0, keys.length),
    count: texts[keys.length] ?? '0',
    measures: texts.slice(keys.length + 1),
  }
}

/** Writes buckets as JSON, nested in their enclosing buckets. */
class Writer {
  /** Buckets by node and by the keys of the enclosing buckets. */
  readonly #inside: readonly ReadonlyMap<string, Bucket[]>[]

  constructor(buckets: readonly (readonly Bucket[])[]) {
    this.#inside = buckets.map((list) => {
      const byOuter = new Map<string, Bucket[]>()
      for (const bucket of list) {
        const outer = JSON.stringify(bucket.keys.slice(0, -1))
        const group = byOuter.get(outer)
        if (group === undefined) byOuter.set(outer, [bucket])
        else group.push(bucket)
      }
      return byOuter
    })
  }

  members(node: AggregationNode, bucket: Bucket): string[] {
    const measures = node.measures.map(({ name, measure }, index) => {
      return `${JSON.stringify(name)}:${writeMeasure(measure, bucket.measures[index])}`
    })
    const children = node.children.map(({ name, node: child }) => {
      const inside = this.#inside[child.index]?.get(JSON.stringify(bucket.keys)) ?? []
      const values = inside.map((inner) => this.#bucket(child, inner))
      return `${JSON.stringify(name)}:{"values":[${values.join(',')}]}`
    })
    return [...measures, ...children]
  }

  #bucket(node: AggregationNode, bucket: Bucket): string {
    const key = writeValue(node.keys.at(-1) ?? 'text', bucket.keys.at(-1), { jsonAsText: false })
    return `{${[`"$key":${key}`, `"$count":${bucket.count}`, ...this.members(node, bucket)].join(',')}}`
  }
}

/** The types that these measures keep. Others are numbers. */
const KEPT: Readonly<Partial<Record<Measure['kind'], ReadonlySet<FieldType>>>> = {
  sum: new Set(['decimal']),
  min: new Set(['decimal', 'datetime', 'date', 'time', 'enum']),
  max: new Set(['decimal', 'datetime', 'date', 'time', 'enum']),
}

function writeMeasure(measure: Measure, text: string | null | undefined): string {
  if (measure.kind !== 'percentiles') {
    const type = measure.kind === 'count' ? 'int' : measure.field.type
    const isKept = KEPT[measure.kind]?.has(type) === true
    return writeValue(isKept ? type : 'float', text, { jsonAsText: false })
  }
  const values = JSON.parse(text ?? '[]') as (number | null)[]
  const members = measure.percents.map((percent, index) => {
    const key = Number.isInteger(percent) ? percent.toFixed(1) : String(percent)
    return `${JSON.stringify(key)}:${JSON.stringify(values[index] ?? null)}`
  })
  return `{"values":{${members.join(',')}}}`
}
