import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'

export interface Line {
  readonly label: string
  readonly color: string
  readonly values: readonly (number | null)[]
}

const HEIGHT = 150

/** A plot of lines over time. The numbers are also in the text beside it, for those who cannot see it. */
export default function Plot({
  title,
  times,
  lines,
  format,
}: {
  title: string
  times: readonly number[]
  lines: readonly Line[]
  format: (value: number) => string
}) {
  const holder = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  // biome-ignore lint/correctness/useExhaustiveDependencies: the lines of a plot keep their labels; data is set below.
  useEffect(() => {
    const element = holder.current
    if (element === null) return
    const style = getComputedStyle(element)
    const axis = {
      stroke: style.getPropertyValue('color'),
      grid: { stroke: style.getPropertyValue('border-top-color'), width: 1 },
      ticks: { show: false },
    }
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        cursor: { drag: { x: false, y: false } },
        legend: { show: false },
        axes: [axis, { ...axis, size: 64, values: (_plot, values) => values.map(format) }],
        scales: { y: { range: (_plot, _min, max) => [0, Math.max(max ?? 0, 1e-9) * 1.1] } },
        series: [
          {},
          ...lines.map(({ label, color }) => ({
            label,
            stroke: resolveColor(element, color),
            width: 1.5,
            points: { show: false },
          })),
        ],
      },
      [[], ...lines.map(() => [])],
      element,
    )
    plot.current = made
    const observer = new ResizeObserver(() =>
      made.setSize({ width: element.clientWidth, height: HEIGHT }),
    )
    observer.observe(element)
    return () => {
      observer.disconnect()
      made.destroy()
    }
  }, [])
  useEffect(() => {
    plot.current?.setData([[...times], ...lines.map(({ values }) => [...values])])
  }, [times, lines])
  return <div className="plot" ref={holder} role="img" aria-label={title} />
}

/** A canvas knows no variables of style sheets. */
function resolveColor(element: HTMLElement, color: string): string {
  const probe = document.createElement('span')
  probe.style.color = color
  element.append(probe)
  const resolved = getComputedStyle(probe).color
  probe.remove()
  return resolved
}
