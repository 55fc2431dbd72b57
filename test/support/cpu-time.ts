/** CPU time of this process in milliseconds while something runs; other processes have no part in it. */
export function cpuMsOf(run: () => void): number {
  const before = process.cpuUsage()
  run()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}
