import { mkdtemp, realpath, statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'

/** Space for the clusters, the write-ahead logs and the files of all services that run at once. */
const SPACE_NEEDED_BYTES = 4 * 2 ** 30

/**
 * Creates a folder for the data of a service. It is in memory if there is enough: memory survives a killed
 * process just as well as a disk does, and nothing waits for a disk that is busy with other work.
 */
export async function makeDataFolder(name: string): Promise<string> {
  const memory = '/dev/shm'
  const { bavail, bsize } = await statfs(memory).catch(() => ({ bavail: 0, bsize: 0 }))
  const parent = bavail * bsize > SPACE_NEEDED_BYTES ? memory : tmpdir()
  return realpath(await mkdtemp(path.join(parent, `offshoot-${name}-`)))
}
