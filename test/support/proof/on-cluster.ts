import path from 'node:path'
import { startTestCluster, type TestCluster } from '../cluster.js'
import { createProofDatabase, makeProofFolder, ProofService } from './service.js'

/** A service on a Citus cluster of its own, with the database of the proofs. */
export interface OnCluster {
  readonly cluster: TestCluster
  readonly service: ProofService
  close(): Promise<void>
}

export async function startOnCluster(
  options: {
    readonly isProxied?: boolean
    /** Only the service ends transactions that are in doubt. */
    readonly isRecoveredByService?: boolean
    /** The pause between two rounds of background work. */
    readonly backgroundPauseMs?: number
  } = {},
): Promise<OnCluster> {
  const { isProxied = false, isRecoveredByService = false, backgroundPauseMs = 200 } = options
  const folder = await makeProofFolder()
  let cluster: TestCluster | undefined
  let service: ProofService | undefined
  const close = async () => {
    await service?.kill()
    await cluster?.close()
    await folder.remove()
  }
  try {
    cluster = await startTestCluster({ isProxied })
    if (isRecoveredByService) await cluster.setRecoveryInterval('-1')
    service = new ProofService(path.join(folder.path, 'service'), {
      OFFSHOOT_DATABASE_URL: cluster.coordinator.url,
      OFFSHOOT_BACKGROUND_PAUSE_MS: String(backgroundPauseMs),
    })
    await service.start()
    await createProofDatabase(service, service.workspaceId)
    return { cluster, service, close }
  } catch (error) {
    await close()
    throw error
  }
}
