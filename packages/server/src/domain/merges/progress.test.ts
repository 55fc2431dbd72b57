import { expect, it } from 'vitest'
import type { MergePlan } from './merge-plan.js'
import { progressOf } from './progress.js'

it('counts each table twice, because it is compared and written, and publishing once', () => {
  const schema = { tables: [{ name: 'items' }, { name: 'users' }] }
  const plan = { schema } as unknown as MergePlan
  const total = 5
  expect([
    progressOf(plan, { step: 'compare', name: 'items', count: 0 }),
    progressOf(plan, { step: 'compare', name: 'users', count: 1 }),
    progressOf(plan, { step: 'write', name: 'users', count: 0 }),
    progressOf(plan, { step: 'publish' }),
  ]).toEqual([
    { step: 'comparing table [items]', done: 0, total },
    { step: 'comparing table [users]', done: 1, total },
    { step: 'writing table [users]', done: 2, total },
    { step: 'publishing', done: 4, total },
  ])
})
