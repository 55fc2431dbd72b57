import type { Random } from '../seeded-random.js'
import { examplesOf, type Media, type Operation, type Parameter } from './document.js'
import { hostileKey, hostileText, hostileValue } from './hostile.js'
import { RawJson, writeJson } from './json-writer.js'
import { columnsOf, freshName, type Scope, type Tables } from './scope.js'
import { valueFor } from './values.js'

export interface FuzzRequest {
  readonly operation: Operation
  readonly mode: Mode
  readonly method: string
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer | undefined
  /** The path or method may match another operation, or none. */
  readonly isMisrouted: boolean
  /** The request is for a resource of another tenant. */
  readonly isForeign: boolean
  /** The values of the path parameters. */
  readonly values: Readonly<Record<string, string>>
}

/** A sender of requests: its own names and ids, and those of others. */
export interface Caller {
  readonly scope: Omit<Scope, 'tables' | 'table'>
  readonly workspaceId: string
  readonly foreign: Readonly<Record<string, readonly string[]>>
  tablesOf(databaseBranch: string): Tables
  keyFor(operation: Operation): string | undefined
}

/** Whether a request is valid, slightly wrong, or hostile. */
type Mode = 'valid' | 'nearly' | 'hostile'
interface Draft {
  method: string
  path: string
  query: string
  headers: Record<string, string>
  body: Buffer | undefined
  isMisrouted: boolean
  isForeign: boolean
}

const JSON_TYPE = 'application/json'

/** Makes a request for the operation. */
export function makeRequest(operation: Operation, caller: Caller): FuzzRequest {
  const { random } = caller.scope
  const mode = random.weighted<Mode>([
    [5, 'valid'],
    [3, 'nearly'],
    [2, 'hostile'],
  ])
  const { values, bound, isForeign, scope } = pathValues(operation, caller)
  const key = caller.keyFor(operation)
  const draft: Draft = {
    method: operation.method,
    path: '',
    query: queryOf(operation, scope, { mode, bound }),
    headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
    body: undefined,
    isMisrouted: false,
    isForeign,
  }
  const spoiled = mode !== 'valid' && random.chance(0.3) ? spoiledPart(values, random) : undefined
  draft.path = operation.path.replace(/\{(\w+)\}/g, (_match, name: string) => {
    if (name !== spoiled) return encodePart(values[name] ?? '')
    draft.isMisrouted = true
    draft.isForeign = false
    return random.chance(0.7) ? encodePart(hostileText(random)) : oddPart(random)
  })
  addAddress(draft, operation, caller)
  addBody(draft, operation, scope, mode)
  if (random.chance(0.1)) draft.headers['x-xata-agent'] = 'client=TS_SDK'
  if (mode === 'hostile') for (const spoil of random.some(SPOILERS, 0.15)) spoil(draft, random)
  const { method, path, query, headers, body } = draft
  return {
    operation,
    mode,
    method,
    url: query === '' ? path : `${path}?${query}`,
    headers,
    body,
    isMisrouted: draft.isMisrouted,
    isForeign: draft.isForeign,
    values,
  }
}

/** Chooses path parameters, each among the resources within those before it. */
function pathValues(operation: Operation, caller: Caller) {
  const { random, stock } = caller.scope
  const values: Record<string, string> = {}
  let scope: Scope = { ...caller.scope, tables: {}, table: undefined }
  const parameters = (operation.parameters ?? []).filter((parameter) => parameter.in === 'path')
  const isNew = ['PUT', 'POST'].includes(operation.method)
  for (const { name, schema, example } of inOrder(parameters)) {
    const isLast = operation.path.endsWith(`{${name}}`)
    const isFresh = isNew && isLast && name !== 'accessId' && random.chance(0.4)
    const known = isFresh ? undefined : knownPart(name, operation, scope)
    values[name] = known ?? String(valueFor(schema, scope, name) ?? example)
    if (name === 'databaseBranch') {
      scope = { ...scope, tables: caller.tablesOf(values[name]) }
    }
    if (name === 'tableName') scope = { ...scope, table: values[name] }
  }
  const foreignName = random.chance(0.06)
    ? Object.keys(values).find((name) => caller.foreign[name] !== undefined)
    : undefined
  if (foreignName !== undefined)
    values[foreignName] = random.pick(caller.foreign[foreignName] ?? [])
  // A link is valid only with its signature.
  const bound: Record<string, string> = {}
  if (values.accessId !== undefined && foreignName === undefined && random.chance(0.8)) {
    const [accessId = '', verify] = (stock.pick(random, 'link') ?? '').split('?verify=')
    if (accessId !== '') values.accessId = accessId
    if (verify !== undefined) bound.verify = verify
  }
  return { values, bound, scope, isForeign: foreignName !== undefined }
}

const ORDER = ['workspaceId', 'databaseName', 'databaseBranch', 'tableName', 'columnName']

function inOrder(parameters: readonly Parameter[]): Parameter[] {
  const place = ({ name }: Parameter) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length)
  return [...parameters].sort((a, b) => place(a) - place(b))
}

function knownPart(name: string, operation: Operation, scope: Scope): string | undefined {
  const { random } = scope
  if (random.chance(0.1)) return undefined
  if (name === 'tableName') {
    const names = Object.keys(scope.tables)
    return names.length === 0 ? undefined : random.pick(names)
  }
  if (name === 'columnName') {
    const isFile = operation.path.includes('/file')
    const columns = columnsOf(scope).filter(({ type }) => !isFile || type.startsWith('file'))
    return columns.length === 0 ? undefined : random.pick(columns).name
  }
  const ofTable = name === 'recordId' && random.chance(0.8)
  const here = ofTable ? scope.stock.pick(random, recordsOf(scope.table)) : undefined
  return here ?? scope.stock.pick(random, name)
}

/** The kind of record ids of a table. */
export function recordsOf(table: string | undefined): string {
  return `recordId of ${table}`
}

function spoiledPart(values: Readonly<Record<string, string>>, random: Random): string | undefined {
  const names = Object.keys(values)
  return names.length === 0 ? undefined : random.pick(names)
}

/** Path parts that are inserted without escaping. */
function oddPart(random: Random): string {
  return random.pick([
    '%',
    '%zz',
    '%00',
    '%2F',
    '%2e%2e',
    '%C0%AF',
    '%ED%A0%80',
    '%u0041',
    '%25',
    '..',
    '.',
    '',
    ';a=b',
    'a,b',
    '~',
    '+',
    'shop%3Amain',
    'shop:main:dev',
    'a'.repeat(5000),
    '%41'.repeat(1000),
  ])
}

function encodePart(text: string): string {
  try {
    return encodeURIComponent(text).replaceAll('%3A', ':')
  } catch {
    // Half of a surrogate pair has no form in UTF-8, but this one gets sent.
    return '%ED%A0%BC'
  }
}

function queryOf(
  operation: Operation,
  scope: Scope,
  { mode, bound }: { mode: Mode; bound: Readonly<Record<string, string>> },
): string {
  const { random } = scope
  const parameters = (operation.parameters ?? []).filter((parameter) => parameter.in === 'query')
  const pairs = parameters.flatMap(({ name, schema, required }) => {
    if (required !== true && bound[name] === undefined && random.chance(0.5)) return []
    const isSpoiled = mode !== 'valid' && random.chance(0.3)
    const value = isSpoiled ? hostileText(random) : (bound[name] ?? valueFor(schema, scope, name))
    return [value].flat().map((item) => `${encodePart(name)}=${encodePart(String(item))}`)
  })
  if (mode === 'hostile' && random.chance(0.2)) {
    const odd = [
      'a',
      '&&',
      '=',
      '%',
      'a[]=1',
      'columns[]=a',
      '__proto__=1',
      '?',
      `a=${'b'.repeat(4000)}`,
    ]
    pairs.push(random.pick(odd), ...pairs)
  }
  return pairs.join('&')
}

/** Adds the workspace to a data-plane path, in one of three forms. */
function addAddress(draft: Draft, operation: Operation, caller: Caller): void {
  if (!operation.path.startsWith('/db')) return
  const { random } = caller.scope
  const foreign = caller.foreign.workspaceId ?? []
  const isForeign = foreign.length > 0 && random.chance(0.04)
  const workspaceId = isForeign ? random.pick(foreign) : caller.workspaceId
  if (isForeign && !draft.isMisrouted) draft.isForeign = true
  const form = random.below(isForeign ? 2 : 10)
  if (form === 0) draft.headers.host = `${workspaceId}.local.localhost`
  else if (form < 9) draft.path = `/${workspaceId}.local${draft.path}`
}

function addBody(draft: Draft, operation: Operation, scope: Scope, mode: Mode): void {
  const { random } = scope
  const { requestBody } = operation
  if (requestBody === undefined) {
    if (mode === 'hostile' && random.chance(0.2)) setBody(draft, JSON_TYPE, '{"a":1}')
    return
  }
  if (requestBody.required === false && random.chance(0.15)) return
  const [type, media] = random.pick(Object.entries(requestBody.content))
  if (type === JSON_TYPE) {
    setBody(draft, type, jsonText(jsonBody(media, scope, mode), random, mode))
  } else if (type === 'application/x-ndjson') {
    const lines = Array.from({ length: random.below(5) }, () => {
      const record = valueFor({ type: 'object', additionalProperties: true }, scope)
      return jsonText(mode === 'valid' ? record : spoil(record, random), random, mode)
    })
    setBody(draft, type, lines.join(random.pick(['\n', '\r\n', '\n\n'])))
  } else {
    const length = random.pick([0, 1, 100, 10_000, 70_000])
    setBody(draft, random.pick([type, 'image/png', 'text/plain']), Buffer.alloc(length, 137))
  }
}

function setBody(draft: Draft, type: string, body: string | Buffer): void {
  draft.headers['content-type'] = type
  draft.body = Buffer.isBuffer(body) ? body : Buffer.from(body)
}

function jsonBody(media: Media, scope: Scope, mode: Mode): unknown {
  const { random } = scope
  const examples = examplesOf(media)
  const isExample = examples.length > 0 && random.chance(0.2)
  let value = isExample ? structuredClone(random.pick(examples)) : valueFor(media.schema, scope)
  const spoiled = mode === 'valid' ? 0 : mode === 'nearly' ? 1 : random.below(5)
  for (let count = 0; count < spoiled; count++) value = spoil(value, random)
  return value
}

/** Changes one part of the value. */
function spoil(value: unknown, random: Random): unknown {
  const places = placesIn(value)
  if (places.length === 0 || random.chance(0.05)) return hostileValue(random)
  const { parent, key } = random.pick(places)
  const holder = parent as Record<string, unknown>
  random.weighted<() => void>([
    [5, () => set(holder, key, hostileValue(random))],
    [2, () => set(holder, key, null)],
    [2, () => remove(parent, key)],
    [1, () => set(holder, key, [holder[key]])],
    [1, () => set(holder, key, { [hostileKey(random)]: holder[key] })],
    [1, () => set(holder, key, asText(holder[key]))],
    [2, () => !Array.isArray(parent) && set(holder, hostileKey(random), hostileValue(random))],
    [1, () => Array.isArray(parent) && parent.push(...parent.slice(0, 20))],
  ])()
  return value
}

function asText(value: unknown): string {
  return typeof value === 'object' ? '[object Object]' : String(value)
}

/** Sets a key like JSON.parse: `__proto__` is an ordinary key. */
function set(holder: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(holder, key, {
    value,
    enumerable: true,
    writable: true,
    configurable: true,
  })
}

function remove(parent: object, key: string): void {
  if (Array.isArray(parent)) parent.splice(Number(key), 1)
  else Reflect.deleteProperty(parent, key)
}

const PLACES_MAX = 400

function placesIn(value: unknown): { parent: object; key: string }[] {
  const places: { parent: object; key: string }[] = []
  const open = [value]
  while (open.length > 0 && places.length < PLACES_MAX) {
    const parent = open.pop()
    if (typeof parent !== 'object' || parent === null || parent instanceof RawJson) continue
    for (const [key, inner] of Object.entries(parent)) {
      places.push({ parent, key })
      open.push(inner)
    }
  }
  return places
}

function jsonText(value: unknown, random: Random, mode: Mode): string {
  const text = writeJson(value)
  if (mode !== 'hostile' || !random.chance(0.3)) return text
  return random.weighted<() => string>([
    [3, () => text.slice(0, random.below(text.length + 1))],
    [1, () => `${text}${random.pick([',', '}', 'null', '\u0000', ' {}'])}`],
    [1, () => `\ufeff${text}`],
    [1, () => text.replaceAll('"', "'")],
    [2, () => text.replace('{', `{"${random.pick(['operations', 'id', '__proto__'])}":1,`)],
    [2, () => text.replace(/"(\w+)":/, '"$1":null,"$1":')],
    [2, () => random.pick(['', ' ', 'null', 'true', '0', '""', '[]', '{}', 'NaN', '[[[[', '{"a"'])],
    [1, () => '['.repeat(20_000)],
    [1, () => `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`],
    [0.3, () => `{"a":"${'a'.repeat(300_000)}"}`],
  ])()
}

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE']

const CONTENT_TYPES = [
  '',
  'text/plain',
  'application/JSON',
  'application/json;',
  'application/json; charset=latin1',
  'application/json, text/plain',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=a',
  'application/x-ndjson',
  'application/vnd.api+json',
  '*/*',
  'json',
  'a/b'.repeat(200),
]

/** Changes that make a whole request unusual. */
const SPOILERS: readonly ((draft: Draft, random: Random) => void)[] = [
  (draft, random) => {
    draft.method = random.pick(METHODS)
    draft.isMisrouted = true
  },
  (draft, random) => {
    draft.headers['content-type'] = random.pick(CONTENT_TYPES)
  },
  (draft, random) => {
    draft.headers.authorization = random.pick([
      'Bearer',
      'Bearer ',
      'Basic YTpi',
      'bearer off_a',
      `Bearer off_${'a'.repeat(5000)}`,
      "Bearer ' or 1=1 --",
      'Bearer \u00e9',
    ])
  },
  (draft, random) => {
    draft.isForeign = false
    draft.headers.host = random.pick([
      '',
      'a.b.localhost',
      '..',
      '[::1]',
      'x'.repeat(300),
      'a b',
      ':',
    ])
  },
  (draft, random) => {
    draft.headers['idempotency-key'] = random.pick(['a', 'b', '', 'a'.repeat(300), '\u00e9'])
  },
  (draft, random) => {
    draft.headers.range = random.pick(['bytes=0-0', 'bytes=5-1', 'bytes=-1', 'bytes=0-,1-', 'x'])
  },
  (draft, random) => {
    draft.headers['if-none-match'] = random.pick(['*', '"a"', 'W/"a"', ',', '"'])
  },
  (draft, random) => {
    draft.headers[random.pick(['x-http-method-override', 'x-forwarded-host', 'cookie', 'accept'])] =
      random.pick(['DELETE', 'a', '../..', 'x'.repeat(4000)])
  },
  (draft, random) => {
    if (draft.body === undefined) return
    const at = random.below(draft.body.length + 1)
    const bytes = Buffer.from(random.pick([[0x80], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xff], [0]]))
    draft.body = Buffer.concat([draft.body.subarray(0, at), bytes, draft.body.subarray(at)])
  },
  (draft, random) => {
    draft.isForeign = false
    draft.path = random.pick([
      `${draft.path}/`,
      `/${draft.path}`,
      `${draft.path}/..`,
      `/x.y${draft.path}`,
      `/..${draft.path}`,
      draft.path.toUpperCase(),
      `${draft.path}/${freshName(random)}`,
    ])
    draft.isMisrouted = true
  },
]

/** The request as a curl command. */
export function toCurl({ method, url, headers, body }: FuzzRequest): string {
  const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`
  const options = Object.entries(headers).map(([name, value]) => {
    const shown = value === '' ? `${name};` : `${name}: ${value}`
    return `-H ${quote(shown)}`
  })
  const command = `curl -sS -i --path-as-is -X ${method} ${quote(`http://127.0.0.1:6001${url}`)}`
  if (body === undefined) return [command, ...options].join(' ')
  const isPlain = body.length < 2000 && /^[\x20-\x7e]*$/.test(body.toString('latin1'))
  return isPlain
    ? [command, ...options, `--data-binary ${quote(body.toString())}`].join(' ')
    : `echo ${body.toString('base64')} | base64 -d | ${[command, ...options].join(' ')} --data-binary @-`
}
