import { COLUMN_TYPES, type Column } from '@offshoot/contract/schema'
import { anyJson, columnsOf, freshName, type Scope } from './scope.js'

/** Returns a valid record of the table, or some fields of one. */
export function recordFor(scope: Scope): Record<string, unknown> {
  const { random } = scope
  const record: Record<string, unknown> = {}
  if (random.chance(0.3)) record.id = freshName(random)
  for (const column of columnsOf(scope)) {
    const isFile = column.type.startsWith('file')
    const isNeeded = column.notNull === true && column.defaultValue === undefined
    if (!isNeeded && !random.chance(isFile ? 0.1 : 0.5)) continue
    record[column.name] = random.chance(0.05) ? null : columnValue(column, scope)
  }
  return record
}

/** Returns a value of the type of a column. */
export function columnValue(column: Column, scope: Scope): unknown {
  const { random } = scope
  switch (column.type) {
    case 'bool':
      return random.chance(0.5)
    case 'int':
      return random.chance(0.1) ? { $increment: random.below(5) } : random.below(2000) - 1000
    case 'float':
      return random.pick([0.5, -1e10, 1e-10, 3, 1.7976931348623157e308])
    case 'string':
    case 'text':
      return random.pick(['Ada', 'a b', 'né 🍎', '', "O'Hara", '100%', 'x'.repeat(2048)])
    case 'email':
      return `${freshName(random)}@example.com`
    case 'multiple':
      return Array.from({ length: random.below(4) }, () => random.pick(['a', 'b,c', '"', '{}']))
    case 'link':
      return scope.stock.pick(random, 'recordId') ?? 'ada'
    case 'object':
      return Object.fromEntries(
        random.some(column.columns ?? []).map((inner) => [inner.name, columnValue(inner, scope)]),
      )
    case 'datetime':
      return random.pick(['2026-01-31T09:30:00.000Z', '1969-12-31T23:59:59+02:00'])
    case 'vector':
      return Array.from({ length: Math.min(column.vector?.dimension ?? 2, 50) }, () =>
        random.next(),
      )
    case 'file':
      return file(scope)
    case 'file[]':
      return Array.from({ length: random.below(3) }, () => ({
        ...file(scope),
        ...(random.chance(0.5) ? { id: freshName(random) } : {}),
      }))
    case 'json':
      return anyJson(random, 3)
  }
}

/** Returns a valid column definition. */
export function newColumn(scope: Scope, depth: number): Column {
  const { random } = scope
  const type = random.pick(COLUMN_TYPES)
  const name = freshName(random)
  switch (type) {
    case 'link':
      return { name, type, link: { table: scope.stock.pick(random, 'tableName') ?? 'users' } }
    case 'vector':
      return { name, type, vector: { dimension: 2 + random.below(5) } }
    case 'object': {
      const length = depth > 4 ? 0 : 1 + random.below(2)
      return { name, type, columns: Array.from({ length }, () => newColumn(scope, depth + 2)) }
    }
    case 'string':
    case 'email':
    case 'int':
      return random.chance(0.3) ? { name, type, unique: true } : { name, type }
    case 'bool':
      return { name, type, ...(random.chance(0.3) ? { notNull: true, defaultValue: 'true' } : {}) }
    default:
      return { name, type }
  }
}

function file({ random }: Scope): Record<string, unknown> {
  return {
    name: random.pick(['a.txt', "b(1)!*'.png", '']),
    mediaType: random.pick(['text/plain', 'image/png', 'application/octet-stream']),
    base64Content: Buffer.from('content').toString('base64'),
    ...(random.chance(0.3) ? { enablePublicUrl: random.chance(0.5) } : {}),
    ...(random.chance(0.2) ? { signedUrlTimeout: random.below(100) } : {}),
  }
}
