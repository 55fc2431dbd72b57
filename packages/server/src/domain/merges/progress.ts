import type { Progress } from '@offshoot/contract/operations'
import type { MergePlan } from './merge-plan.js'

/** What a merge does with a table, and the number of tables that it has done that with. Publishing is of all tables. */
type MergeStep =
  | { readonly step: 'compare' | 'write'; readonly name: string; readonly count: number }
  | { readonly step: 'publish' }

/** Returns how far a merge has come: each table is compared and written, and in the end all are published. */
export function progressOf({ schema }: MergePlan, doing: MergeStep): Progress {
  const tables = schema.tables.length
  const total = 2 * tables + 1
  if (doing.step === 'publish') return { step: 'publishing', done: 2 * tables, total }
  const { step, name, count } = doing
  return step === 'compare'
    ? { step: `comparing table [${name}]`, done: count, total }
    : { step: `writing table [${name}]`, done: tables + count, total }
}
