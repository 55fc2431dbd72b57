import { mkdir, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { type CpuMeters, describeCpu } from './cpu.js'

export interface Figure {
  readonly name: string
  /** The compared values, ours first. */
  readonly ratio: number | undefined
  readonly goal: string
  readonly met: boolean
  readonly detail: string
}

export function figure(
  name: string,
  options: {
    ratio?: number
    atLeast?: number
    atMost?: number
    value?: number
    unit?: string
    detail: string
    cpu?: CpuMeters
  },
): Figure {
  const measured = options.ratio ?? options.value ?? Number.NaN
  const { atLeast, atMost, unit = '' } = options
  const met =
    (atLeast === undefined || measured >= atLeast) && (atMost === undefined || measured <= atMost)
  const goal = atLeast === undefined ? `<= ${atMost}${unit}` : `>= ${atLeast}${unit}`
  const cpu = options.cpu === undefined ? '' : describeCpu(options.cpu)
  return { name, ratio: options.ratio, goal, met, detail: `${options.detail}${cpu}` }
}

export function printFigures(figures: readonly Figure[]): void {
  const width = Math.max(...figures.map(({ name }) => name.length))
  for (const { name, ratio, goal, met, detail } of figures) {
    const shown = ratio === undefined ? '' : ratio.toFixed(2)
    console.log(
      `${met ? ' ok ' : 'MISS'}  ${name.padEnd(width)}  ${shown.padStart(7)}  ${goal.padEnd(10)} ${detail}`,
    )
  }
}

export async function writeFigures(figures: readonly Figure[]): Promise<void> {
  const folder = fileURLToPath(new URL('../results/', import.meta.url))
  await mkdir(folder, { recursive: true })
  const file = `${folder}${new Date().toISOString().replaceAll(':', '-')}.json`
  await writeFile(file, `${JSON.stringify({ node: process.version, figures }, null, 2)}\n`)
  console.log(`\nResults written to ${file}`)
}
