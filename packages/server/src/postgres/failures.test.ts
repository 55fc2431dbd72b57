import { AppError } from '@offshoot/contract/errors'
import { describe, expect, it } from 'vitest'
import { codeOf, constraintOf, isRetryable, isUnreachable, toAppError } from './failures.js'

const coded = (code: string, more: object = {}) =>
  Object.assign(new Error('select secret from offshoot.users'), { code, ...more })

describe('toAppError', () => {
  it.each([
    ['a refused connection', coded('ECONNREFUSED'), 'unavailable', 503],
    ['a socket that is not there', coded('ENOENT'), 'unavailable', 503],
    ['a connection that broke', coded('08006'), 'unavailable', 503],
    ['too many connections', coded('53300'), 'unavailable', 503],
    ['a full disk', coded('53100'), 'storage_full', 503],
    ['a server that is shutting down', coded('57P01'), 'unavailable', 503],
    ['a server that is starting', coded('57P03'), 'unavailable', 503],
    ['a server that only reads', coded('25006'), 'unavailable', 503],
    ['what the driver says itself', new Error('Connection terminated'), 'unavailable', 503],
    [
      'a pool without a free connection',
      new Error('timeout exceeded when trying to connect'),
      'unavailable',
      503,
    ],
    [
      'a database that is being moved',
      coded('XX000', {
        message: 'could not acquire the lock required to colocate distributed table x',
      }),
      'unavailable',
      503,
    ],
    ['a transaction in doubt', coded('OS001'), 'unavailable', 503],
    [
      'a node that is lost',
      coded('XX000', { message: 'failure on connection marked as essential: db1:5432' }),
      'unavailable',
      503,
    ],
    [
      'a node that is lost before it has prepared a transaction',
      coded('XX000', { message: "failed to prepare transaction 'citus_0_1_2_3' on host db1:5432" }),
      'unavailable',
      503,
    ],
    [
      'a node that breaks its connection',
      coded('XX000', { message: 'server closed the connection unexpectedly' }),
      'unavailable',
      503,
    ],
    [
      'a connection to a node that is no longer open',
      coded('XX000', { message: 'connection not open' }),
      'unavailable',
      503,
    ],
    [
      'a coordinator that is killed while it waits for a node',
      coded('XX000', { message: 'postmaster was shut down, exiting' }),
      'unavailable',
      503,
    ],
    ['a conflict that never ended', coded('40001'), 'retry_limit', 409],
    ['a deadlock that never ended', coded('40P01'), 'retry_limit', 409],
    ['a statement that took too long', coded('57014'), 'timeout', 503],
    ['a transaction that stood still for too long', coded('25P03'), 'timeout', 503],
    ['a lock that took too long', coded('55P03'), 'timeout', 503],
    [
      'a workspace that has gone',
      coded('23503', { constraint: 'databases_workspace_id_fkey' }),
      'workspace_not_found',
      404,
    ],
    [
      'a database that has gone',
      coded('23503', { constraint: 'branches_database_id_fkey' }),
      'database_not_found',
      404,
    ],
    [
      'a user who has gone',
      coded('23503', { constraint: 'api_keys_user_id_fkey' }),
      'invalid_api_key',
      401,
    ],
  ])('makes of %s something a caller can use', (_name, error, code, status) => {
    const result = toAppError(error)
    expect(result).toBeInstanceOf(AppError)
    expect(result).toMatchObject({ code, status, cause: error })
    expect((result as AppError).message).not.toContain('secret')
  })

  it.each([
    ['a refusal', new AppError('conflict', 'x')],
    ['a unique violation', coded('23505')],
    ['another foreign key', coded('23503', { constraint: 'branches_parent_id_fkey' })],
    ['a fault of ours', coded('42P01')],
    ['an internal error of PostgreSQL', coded('XX000')],
    ['an error without a code', new Error('x')],
    ['no error at all', undefined],
  ])('leaves %s as it is', (_name, error) => {
    expect(toAppError(error)).toBe(error)
  })
})

describe('codes', () => {
  it('are read from errors alone', () => {
    expect(codeOf(coded('23505'))).toBe('23505')
    expect(codeOf({ code: 5 })).toBeUndefined()
    expect(codeOf(null)).toBeUndefined()
    expect(codeOf('23505')).toBeUndefined()
  })

  it('tell what can be tried again from what cannot', () => {
    expect(isRetryable(coded('40001'))).toBe(true)
    expect(isRetryable(coded('40P01'))).toBe(true)
    expect(isRetryable(coded('23505'))).toBe(false)
    const outrun = Object.assign(new Error('tuple concurrently updated'), { code: 'XX000' })
    expect(isRetryable(outrun)).toBe(true)
    expect(isRetryable(coded('XX000'))).toBe(false)
    expect(isUnreachable(coded('40001'))).toBe(false)
    expect(isUnreachable(coded('42601'))).toBe(false)
  })
})

describe('the name of a constraint', () => {
  it.each([
    [
      'of one server',
      coded('23514', {
        message: 'new row for relation "heap_7" violates check constraint "heap_7_c9_check"',
        constraint: 'heap_7_c9_check',
      }),
      'heap_7_c9_check',
    ],
    [
      'of a unique index on a node of a cluster',
      coded('23505', {
        message: 'duplicate key value violates unique constraint "heap_7_c9_unique_102010"',
      }),
      'heap_7_c9_unique',
    ],
    [
      'of a check on a node of a cluster, whose message names the table first',
      coded('23514', {
        message:
          'new row for relation "heap_7_102010" violates check constraint "heap_7_c9_check_102010"',
      }),
      'heap_7_c9_check',
    ],
    ['of another error', coded('XX000', { message: 'constraint "a_1" is missing' }), undefined],
  ])('%s is found if there is one', (_name, error, name) => {
    expect(constraintOf(error)).toBe(name)
  })
})
