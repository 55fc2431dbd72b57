import { benchBranching } from './branching.js'
import { benchBusy } from './busy.js'
import { benchCluster } from './cluster.js'
import { benchFiles } from './files.js'
import { benchHistory } from './history.js'
import { benchLinks } from './links.js'
import { benchQuery } from './query.js'
import { benchRecords } from './records.js'
import { type Figure, printFigures, writeFigures } from './report.js'
import { benchSets } from './sets.js'
import { benchSoak } from './soak.js'
import { benchTools } from './tools.js'
import { benchVersus } from './versus.js'
import { benchWire } from './wire.js'

/** All suites by name. `npm run bench -- --quick records` runs a short form of one of them. */
const SUITES: Readonly<Record<string, (options: { quick: boolean }) => Promise<Figure[]>>> = {
  records: benchRecords,
  sets: benchSets,
  links: benchLinks,
  query: benchQuery,
  files: benchFiles,
  branching: benchBranching,
  history: benchHistory,
  busy: benchBusy,
  wire: benchWire,
  tools: benchTools,
  versus: benchVersus,
  cluster: benchCluster,
  soak: benchSoak,
}
/** Suites that run only when they are named, because they take long. */
const NAMED_ONLY: ReadonlySet<string> = new Set(['soak'])

const args = process.argv.slice(2)
const quick = args.includes('--quick')
const chosen = args.filter((arg) => !arg.startsWith('--'))
const figures: Figure[] = []
for (const [name, suite] of Object.entries(SUITES)) {
  if (chosen.length > 0 ? !chosen.includes(name) : NAMED_ONLY.has(name)) continue
  console.log(`${name}${quick ? ' (quick)' : ''}`)
  const measured = await suite({ quick })
  printFigures(measured)
  figures.push(...measured)
}
await writeFigures(figures)
