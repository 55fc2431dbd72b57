import { ERROR_CODES } from '@offshoot/contract/errors'
import type { Document } from './document.js'
import type { FuzzRequest } from './requests.js'

export interface FuzzAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: Buffer
  readonly durationMs: number
}

/**
 * Exceeded only by a request that hangs, even on a busy machine. The cost of requests is measured
 * elsewhere.
 */
export const ANSWER_MS_MAX = 150_000

const CREATE_TABLE = 'PUT /db/{databaseBranch}/tables/{tableName}'

/** Internal words that must not appear in answers. */
const INTERNALS =
  /heap_\d|past_\d|offshoot\.\w|sqlstate|pg_\w|node_modules|node:|\.[jt]s:\d|FST_|ECONN|ENOENT|cannot read propert|is not a function/gi

/** Messages of PostgreSQL about statements, allowed only in answers to SQL requests. */
const STATEMENT_WORDS =
  /at or near|input syntax|relation "|column "|operator does not exist|out of range for type/i

type ErrorTable = Readonly<Record<string, readonly [status: number, meaning: string]>>

/** Returns the faults of an answer, one sentence each. */
export function faultsOf(
  request: FuzzRequest,
  answer: FuzzAnswer,
  options: { document: Document; mark: string },
): string[] {
  const faults: string[] = []
  const { status, body } = answer
  const text = body.toString('latin1')
  if (status >= 500) faults.push(`a failure of the server: ${status}`)
  if (answer.durationMs > ANSWER_MS_MAX) faults.push(`took ${answer.durationMs} ms`)
  if (text.includes(options.mark) || JSON.stringify(answer.headers).includes(options.mark)) {
    faults.push('shows something of the neighbour')
  }
  if (request.isForeign && status < 300) faults.push('lets a stranger in')
  if (status >= 400 && request.method !== 'HEAD') faults.push(...faultsOfError(request, answer))
  if (!request.isMisrouted) faults.push(...faultsByDocument(request, answer, options.document))
  return faults
}

function faultsOfError(request: FuzzRequest, { status, headers, body }: FuzzAnswer): string[] {
  const error = parse(body)
  if (typeof error !== 'object' || error === null) return ['the error is not a JSON object']
  const { id, message, code } = error as Record<string, unknown>
  const faults: string[] = []
  if (typeof message !== 'string' || message === '') faults.push('the error has no message')
  if (id !== headers['x-request-id']) faults.push('the id of the error is not that of the request')
  const meant = (ERROR_CODES as ErrorTable)[String(code)]?.[0]
  const isXataClient = request.headers['x-xata-agent'] !== undefined
  const isHidden = code === 'workspace_not_found' && isXataClient && status === 401
  if (meant !== status && !isHidden) faults.push(`code [${code}] does not belong to ${status}`)
  // Errors in an expression of the user are told as by a statement.
  const isOfUser = code === 'invalid_sql' || String(message).includes('invalid SQL: ')
  const isOfStatement = !isOfUser && STATEMENT_WORDS.test(String(message))
  if (isOfStatement || speaksOfInside(request, String(message))) {
    faults.push('the message speaks of the inside')
  }
  return faults
}

/** Text of the request may be repeated in the answer. */
function speaksOfInside({ url, body = Buffer.alloc(0) }: FuzzRequest, message: string): boolean {
  const said = `${url}\n${body}`.toLowerCase()
  return (message.match(INTERNALS) ?? []).some((word) => !said.includes(word.toLowerCase()))
}

function faultsByDocument(
  { operation, headers, body: sent }: FuzzRequest,
  { status, headers: received, body }: FuzzAnswer,
  document: Document,
): string[] {
  const described = operation.responses[status]
  if (described === undefined) return [`status ${status} is not documented`]
  if (status === 204 || status === 304) {
    return body.length === 0 ? [] : [`${status} is answered with a body`]
  }
  const faults: string[] = []
  const media = described.content?.['application/json']
  const [type = ''] = String(received['content-type']).split(';')
  const isOther = type !== 'application/json' && described.content?.[type] !== undefined
  if (media !== undefined && !isOther) {
    const isJson = type === 'application/json'
    if (!isJson) faults.push('is documented to be JSON, and is not')
    const fault = document.faultOf(media.schema, parse(body))
    if (fault !== undefined) faults.push(`is not as documented: ${fault}`)
  } else if (described.content === undefined && body.length > 0) {
    faults.push('has a body that is not documented')
  }
  const taken = operation.requestBody?.content['application/json']
  const isJson = headers['content-type'] === 'application/json'
  if (status < 300 && taken !== undefined && isJson && sent !== undefined && sent.length > 0) {
    const value = parse(sent)
    const isLeftOut = value === null && operation.requestBody?.required === false
    // A new table of a Xata client is empty, whatever its body has.
    const isIgnored = headers['x-xata-agent'] !== undefined && operation.name === CREATE_TABLE
    const fault = isLeftOut || isIgnored ? undefined : document.faultOf(taken.schema, value)
    if (fault !== undefined) faults.push(`takes a body that is not as documented: ${fault}`)
  }
  return faults
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString())
  } catch {
    return undefined
  }
}
