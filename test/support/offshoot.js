import { run } from '../../packages/cli/dist/offshoot.js'

/* The command as an installed package runs it. That of a checkout first looks for sources that have changed. */
process.exitCode = await run(process.argv.slice(2))
