#!/usr/bin/env node
/*
 * Starts a Citus cluster on this machine, for tests, and prints the URL of the coordinator. The cluster runs until this
 * process ends; the folder keeps it.
 *
 *   node scripts/start-cluster.js [--folder FOLDER] [--port PORT] [--workers COUNT] [--bin FOLDER]
 */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { PROGRAMS, startCluster } from './cluster.js'

const { values: options } = parseArgs({
  options: {
    folder: { type: 'string' },
    port: { type: 'string', default: '5500' },
    workers: { type: 'string', default: '2' },
    bin: { type: 'string', default: PROGRAMS },
  },
})

let cluster
let isStopping = false
const stop = () => {
  isStopping = true
  return cluster?.stop()
}
process.on('SIGINT', stop)
process.on('SIGTERM', stop)

cluster = await startCluster({
  folder: options.folder ?? mkdtempSync(join(tmpdir(), 'offshoot-cluster-')),
  ports: Array.from(
    { length: Number(options.workers) + 1 },
    (_, number) => Number(options.port) + number,
  ),
  bin: options.bin,
  log: (text) => process.stderr.write(text),
})
if (isStopping) await stop()
else console.log(cluster.nodes[0]?.url)
