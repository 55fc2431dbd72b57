import { OffshootError, type OperationInfo } from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { keys } from './answers.js'
import { account, clientOf, type Place } from './clients.js'

/** How often the state of an operation is read. */
const POLL_MS = 1000

/** Follows an operation that an earlier page has started, until it ends. */
export function useOperation(id: string | null) {
  return useQuery({
    queryKey: ['operation', id],
    queryFn: ({ signal }) => account.operation(id ?? '', { signal }),
    enabled: id !== null,
    gcTime: 0,
    refetchInterval: ({ state: { data } }) => (data?.state === 'running' ? POLL_MS : false),
  })
}

const isRunning = ({ state }: OperationInfo) => state === 'running'

/** Reads the operations of a branch that are running, until none is left. */
export function useRunningOperations(place: Place) {
  return useQuery({
    queryKey: [...keys.branch(place), 'operations'],
    queryFn: async ({ signal }) =>
      (await clientOf(place).branch().operations({ signal })).filter(isRunning),
    refetchInterval: ({ state: { data = [] } }) => (data.length > 0 ? POLL_MS : false),
  })
}

/** Cancels an operation. It ends a moment later, and whoever follows it gets an error. */
export function cancelOperation({ id }: Pick<OperationInfo, 'id'>): Promise<unknown> {
  return account.cancelOperation(id)
}

/** Returns the error that an operation has ended with. */
export function errorOfOperation({ state, error }: OperationInfo): OffshootError {
  const message = String(error?.message ?? `the operation ended as ${state}`)
  return new OffshootError(message, {
    code: (error?.code ?? 'unexpected_answer') as OffshootError['code'],
    status: Number(error?.status ?? 0),
    requestId: error?.id === undefined ? undefined : String(error.id),
    body: error ?? {},
  })
}
