/**
 * Returns the CPU time of this process in milliseconds while a function runs. Unlike wall-clock
 * time, it does not depend on other processes.
 */
export function cpuMsOf(run: () => void): number {
  const before = process.cpuUsage()
  run()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}
