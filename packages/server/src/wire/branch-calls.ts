import type { Node } from 'libpg-query'
import { contentOf, type NodeOf, namesOf, visit } from '../dialect/nodes.js'
import { endOfParentheses } from '../dialect/source-text.js'
import { BRANCH_FUNCTIONS, type BranchFunction } from './branch-functions.js'
import { unsupported, WireError } from './wire-error.js'

/*
 * Calls of the schema `offshoot` in a statement: `select offshoot.fork('pr-1')`, `select * from offshoot.diff('main')`. The
 * service does what they say, and writes their results into the statement as parameters.
 */

/** The schema of functions about branches. */
/** Calls of functions in one statement. */
export const BRANCH_CALLS_MAX = 20

const SCHEMA = 'offshoot'

/** A call, and where it is in the text. */
interface BranchCall {
  readonly name: string
  readonly definition: BranchFunction
  /** Constants, or the numbers of parameters. */
  readonly given: readonly (string | null | { readonly parameter: number })[]
  /** Characters of the text. */
  readonly start: number
  readonly end: number
  /** Whether it is a relation of FROM. */
  readonly isRelation: boolean
  /** Whether the statement gives it no name of its own. */
  readonly isUnnamed: boolean
}

/** Returns whether a statement calls functions about branches. */
export function callsBranches(node: Node): boolean {
  let isFound = false
  visit(node, (kind, content) => {
    if (kind === 'FuncCall') {
      isFound ||= namesOf((content as NodeOf<'FuncCall'>).funcname).at(-2) === SCHEMA
    }
    if (kind === 'RangeVar') isFound ||= (content as NodeOf<'RangeVar'>).schemaname === SCHEMA
  })
  return isFound
}

/** Returns the calls of a statement, in the order of the text. */
export function findBranchCalls(node: Node, text: string): BranchCall[] {
  if (contentOf(node, 'SelectStmt') === undefined) {
    throw unsupported(`the schema "${SCHEMA}" can only be used in queries`)
  }
  const finder = new CallFinder(text)
  finder.find(node)
  const calls = finder.calls.sort((one, other) => one.start - other.start)
  if (calls.length > 1 && calls.some(({ definition }) => definition.isWrite)) {
    throw unsupported('a function that changes branches must be the only one of its statement')
  }
  return calls
}

class CallFinder {
  readonly calls: BranchCall[] = []
  readonly #bytes: Buffer
  /** Calls that were found at their places. */
  readonly #seen = new Set<unknown>()

  constructor(readonly text: string) {
    this.#bytes = Buffer.from(text)
  }

  find(node: Node): void {
    visit(node, (kind, content) => {
      if (kind === 'RangeVar') this.#relation(content as NodeOf<'RangeVar'>)
      if (kind === 'RangeFunction') this.#rows(content as NodeOf<'RangeFunction'>)
      if (kind === 'ResTarget') this.#target(content as NodeOf<'ResTarget'>)
      if (kind === 'FuncCall') {
        this.#call(content as NodeOf<'FuncCall'>, { isRelation: false, isUnnamed: false })
      }
    })
  }

  #relation({ schemaname, relname = '', location, alias }: NodeOf<'RangeVar'>): void {
    if (schemaname !== SCHEMA) return
    this.#requireRoom()
    const start = this.#characters(location)
    const end = start + (/^\w+\s*\.\s*"?\w+"?/.exec(this.text.slice(start))?.[0].length ?? 0)
    const shape = { isRelation: true, isUnnamed: alias === undefined }
    this.calls.push({
      ...define(relname, { given: [], ...shape }),
      given: [],
      start,
      end,
      ...shape,
    })
  }

  #rows({ functions = [], alias }: NodeOf<'RangeFunction'>): void {
    const call = contentOf(contentOf(functions[0], 'List')?.items?.[0], 'FuncCall')
    if (call !== undefined) this.#call(call, { isRelation: true, isUnnamed: alias === undefined })
  }

  #target({ name, val }: NodeOf<'ResTarget'>): void {
    const call = contentOf(val, 'FuncCall')
    if (call !== undefined) {
      this.#call(call, { isRelation: false, isUnnamed: name === undefined })
    }
  }

  #call(
    call: NodeOf<'FuncCall'>,
    shape: { readonly isRelation: boolean; readonly isUnnamed: boolean },
  ): void {
    const [schema, name = ''] = namesOf(call.funcname).slice(-2)
    if (schema !== SCHEMA || this.#seen.has(call)) return
    this.#seen.add(call)
    this.#requireRoom()
    const given = (call.args ?? []).map(givenValue)
    const start = this.#characters(call.location)
    const end = endOfParentheses(this.text, start)
    this.calls.push({ ...define(name, { given, ...shape }), given, start, end, ...shape })
  }

  /** Each call costs a request, and finding it in the text costs as much as the text is long. */
  #requireRoom(): void {
    if (this.calls.length < BRANCH_CALLS_MAX) return
    throw new WireError(
      '54000',
      `a statement can call at most ${BRANCH_CALLS_MAX} functions of the schema "${SCHEMA}"`,
    )
  }

  #characters(location: number | undefined): number {
    return this.#bytes.subarray(0, location ?? 0).toString().length
  }
}

/** Finds a function. Throws if it cannot be used like this. */
function define(
  name: string,
  { given, isRelation }: Pick<BranchCall, 'given' | 'isRelation'>,
): Pick<BranchCall, 'name' | 'definition'> {
  const definition = Object.hasOwn(BRANCH_FUNCTIONS, name) ? BRANCH_FUNCTIONS[name] : undefined
  if (definition === undefined) {
    throw new WireError('42883', `function ${SCHEMA}.${name} does not exist`, {
      hint: `There are ${Object.keys(BRANCH_FUNCTIONS).join(', ')}.`,
    })
  }
  const [least, most] = definition.arguments
  if (given.length < least || given.length > most) {
    throw new WireError('42883', `function ${SCHEMA}.${name} takes ${least} to ${most} arguments`)
  }
  if (definition.columns !== undefined && !isRelation) {
    throw unsupported(`${SCHEMA}.${name} returns rows: use it in FROM`)
  }
  return { name, definition }
}

/** Returns a constant or the number of a parameter. */
function givenValue(node: Node): BranchCall['given'][number] {
  const cast = contentOf(node, 'TypeCast')
  if (cast?.arg !== undefined) return givenValue(cast.arg)
  const parameter = contentOf(node, 'ParamRef')?.number
  if (parameter !== undefined) return { parameter }
  const constant = contentOf(node, 'A_Const')
  if (constant?.isnull) return null
  if (constant?.sval !== undefined) return constant.sval.sval ?? ''
  throw unsupported(`a function of the schema "${SCHEMA}" takes texts and parameters only`)
}

/** Writes a statement whose calls are parameters that follow its own. */
export function withoutBranchCalls(
  text: string,
  { calls, parameterCount }: { calls: readonly BranchCall[]; parameterCount: number },
): string {
  let written = ''
  let from = 0
  for (const [index, call] of calls.entries()) {
    // The statement must use each of its parameters, also those of calls.
    const used = [`$${parameterCount + 1 + index}`, ...call.given.flatMap(parameterText)]
    const result = `coalesce(${used.map((each) => `${each}::text`).join(', ')})`
    written += text.slice(from, call.start) + replacement(call, result)
    from = call.end
  }
  return written + text.slice(from)
}

const parameterText = (given: BranchCall['given'][number]): string[] =>
  typeof given === 'object' && given !== null ? [`$${given.parameter}`] : []

function replacement({ name, definition, isRelation, isUnnamed }: BranchCall, result: string) {
  const { columns } = definition
  const alias = isUnnamed ? ` as "${name}"` : ''
  if (columns === undefined) {
    return isRelation ? `(select ${result} as "${name}")${alias}` : `${result}${alias}`
  }
  const list = Object.entries(columns).map(([column, type]) => `"${column}" ${type}`)
  return `(select * from json_to_recordset((${result})::json) as found(${list.join(', ')}))${alias}`
}
