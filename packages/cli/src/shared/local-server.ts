import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { findLocalService, type LocalService, localAddress } from '@offshoot/server/local-service'
import { isTrusted } from './trusted-owner.js'

const HOST_DEFAULT = '127.0.0.1'
const PORT_DEFAULT = '6001'
const DATA_DIR_DEFAULT = '.offshoot'
const WRITABLE_BY_OTHERS = 0o022

/** The address of a service that is started with the settings of the environment. */
export function configuredAddress(env: NodeJS.ProcessEnv = process.env): string {
  const port = Number(env.OFFSHOOT_PORT || PORT_DEFAULT)
  return localAddress(env.OFFSHOOT_HOST || HOST_DEFAULT, port > 0 ? port : Number(PORT_DEFAULT))
}

/** Finds the running service of the data folder: that of the environment, of this folder, or of the project. */
export async function findLocalServer(
  folders: readonly string[],
): Promise<LocalService | undefined> {
  for (const folder of await dataFolders(folders)) {
    const service = await findLocalService(folder)
    if (service !== undefined) return service
  }
  return undefined
}

/** Returns the data folder of a service that is not running. */
export async function findStoppedServer(folders: readonly string[]): Promise<string | undefined> {
  return (await dataFolders(folders)).find((folder) => existsSync(path.join(folder, 'api-key')))
}

/**
 * A folder of another user, or one that others can write to, could name any service. The user has chosen that of
 * the environment, whoever owns it.
 */
async function dataFolders(folders: readonly string[]): Promise<string[]> {
  const chosen = process.env.OFFSHOOT_DATA_DIR
  const candidates = chosen
    ? [path.resolve(chosen)]
    : folders.map((parent) => path.resolve(parent, DATA_DIR_DEFAULT))
  const found: string[] = []
  for (const folder of new Set(candidates)) {
    const status = await stat(folder).catch(() => undefined)
    if (!status?.isDirectory()) continue
    const isOpen = (status.mode & WRITABLE_BY_OTHERS) !== 0
    if (!isOpen && (chosen || isTrusted(status))) found.push(folder)
  }
  return found
}
