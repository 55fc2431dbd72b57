import { describe, expect, it } from 'vitest'
import { readConfig } from './config.js'
import { explainStart } from './explain-start.js'
import { toAppError } from './postgres/failures.js'

const config = readConfig({
  OFFSHOOT_DATABASE_URL: 'postgresql://offshoot@db0.example.com/offshoot',
})

describe('explainStart', () => {
  it('says why the coordinator of a cluster could not use a node', () => {
    const reason = 'connection to the remote node offshoot@db1.example.com:5432 failed'
    const error = toAppError(Object.assign(new Error(reason), { code: '08006' }))
    const explained = explainStart(error, config)
    expect(explained).toContain('coordinator of a Citus cluster')
    expect(explained).toContain(reason)
  })

  it('names the setting of a PostgreSQL that cannot be reached', () => {
    const error = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
    expect(explainStart(error, config)).toBe(
      'the PostgreSQL of OFFSHOOT_DATABASE_URL cannot be reached: connect ECONNREFUSED',
    )
  })
})
