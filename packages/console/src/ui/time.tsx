const DAY = 86_400
/** Units with their length, and the shortest time that is told in them. */
const UNITS = [
  ['year', 365 * DAY, 365 * DAY],
  // “Next month” says too little about a key that expires in 30 days.
  ['month', 30 * DAY, 60 * DAY],
  ['day', DAY, DAY],
  ['hour', 3600, 3600],
  ['minute', 60, 60],
] as const

const format = new Intl.RelativeTimeFormat('en', { numeric: 'auto' })

/** Returns a time relative to now, such as "3 days ago" or "in 2 hours". */
export function relativeTime(time: string | Date, now = Date.now()): string {
  const seconds = Math.round((new Date(time).getTime() - now) / 1000)
  for (const [unit, length, shortest] of UNITS) {
    if (Math.abs(seconds) >= shortest) return format.format(Math.round(seconds / length), unit)
  }
  return Math.abs(seconds) < 10 ? 'just now' : format.format(seconds, 'second')
}

/** A time relative to now, with the exact time as the tooltip. */
export function Ago({ time }: { time: string }) {
  return (
    <time dateTime={time} title={new Date(time).toLocaleString()}>
      {relativeTime(time)}
    </time>
  )
}
