import { OffshootError } from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { type FormEvent, lazy, Suspense, useEffect, useState } from 'react'
import { bearer, send } from '../../api/http.js'
import { useSession } from '../../api/session.js'
import { Button } from '../../ui/button.js'
import { formatBytes } from '../../ui/bytes.js'
import { ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import type { Line } from './plot.js'
import { parseMetrics, quantileOf, type Reading, rateOf, readingOf } from './prometheus.js'
import './metrics.css'

const Plot = lazy(() => import('./plot.js'))
const POLL_MS = 2000
/** Five minutes of readings. */
const READINGS_MAX = 150

/** The token that was typed in, for as long as the tab is open. It is never stored. */
let typedToken = ''

/** Health, version, and live plots of the process that answers. */
export function MetricsPage() {
  const { version } = useSession()
  const [readings, setReadings] = useState<readonly Reading[]>([])
  const [access, setAccess] = useState({ token: typedToken, attempt: 0 })
  const health = useQuery({
    queryKey: ['health'],
    queryFn: async () =>
      (await (await fetch('/health')).json()) as { status: string; message: string },
    refetchInterval: POLL_MS,
  })
  const metrics = useQuery({
    // The number stands for the token, so that no key of the cache contains it.
    queryKey: ['metrics', access.attempt],
    queryFn: async () => {
      const headers = access.token === '' ? undefined : { authorization: bearer(access.token) }
      const text = await (await send('GET', '/metrics', headers)).text()
      return readingOf(parseMetrics(text), Date.now() / 1000)
    },
    refetchInterval: (query) => (query.state.status === 'error' ? false : POLL_MS),
    gcTime: 0,
  })
  const latest = metrics.data
  useEffect(() => {
    if (latest !== undefined) setReadings((before) => [...before.slice(1 - READINGS_MAX), latest])
  }, [latest])
  return (
    <Page
      title="Health and metrics"
      subtitle={
        <span className="row">
          Offshoot {version}
          {health.data && (
            <Tag kind={health.data.status === 'ready' ? 'good' : 'bad'}>{health.data.status}</Tag>
          )}
          <span className="faint">{health.data?.message}</span>
        </span>
      }
    >
      {metrics.isPending && <Loading lines={6} />}
      {metrics.isError &&
        (isRefused(metrics.error) ? (
          <TokenForm
            isWrong={access.token !== ''}
            onToken={(token) => {
              typedToken = token
              setAccess({ token, attempt: access.attempt + 1 })
            }}
          />
        ) : (
          <ErrorNote error={metrics.error} onRetry={() => void metrics.refetch()} />
        ))}
      {latest !== undefined && (
        <Suspense fallback={<Loading lines={6} />}>
          <Plots readings={readings} latest={latest} />
        </Suspense>
      )}
    </Page>
  )
}

/** Returns whether the answer asks for a metrics token. */
function isRefused(error: Error): boolean {
  return error instanceof OffshootError && (error.code as string) === 'invalid_metrics_token'
}

/** Asks for the metrics token. */
function TokenForm({ isWrong, onToken }: { isWrong: boolean; onToken: (token: string) => void }) {
  const [token, setToken] = useState('')
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (token !== '') onToken(token)
  }
  return (
    <form className="card form pad" onSubmit={submit}>
      <h2>Metrics are protected by a token</h2>
      <p className="muted">
        The service was started with <code>OFFSHOOT_METRICS_TOKEN</code>. Enter its value to see the
        plots.
      </p>
      <TextField
        label="Metrics token"
        hint="It is kept until this tab is closed, and never stored."
        type="password"
        autoComplete="off"
        value={token}
        onChange={setToken}
      />
      {isWrong && <ErrorNote error="The service refused this token." />}
      <div className="row">
        <Button type="submit" kind="primary" disabled={token === ''}>
          Show metrics
        </Button>
      </div>
    </form>
  )
}

function Plots({ readings, latest }: { readings: readonly Reading[]; latest: Reading }) {
  const pairs = readings.slice(1).map((after, i) => [readings[i] ?? after, after] as const)
  const times = pairs.map(([, after]) => after.atSeconds)
  const rates = (of: (reading: Reading) => number) =>
    pairs.map(([before, after]) => rateOf(before, after, of))
  const quantiles = (quantile: number) =>
    pairs.map(([before, after]) => quantileOf(before, after, quantile))
  const line = (label: string, color: string, values: readonly (number | null)[]): Line => ({
    label,
    color: `var(--${color})`,
    values,
  })
  const perSecond = (value: number) => `${value.toFixed(value < 10 ? 1 : 0)}/s`
  const milliseconds = (value: number) => `${(value * 1000).toFixed(0)} ms`
  const plots = [
    {
      title: 'Requests',
      format: perSecond,
      lines: [
        line(
          'requests',
          'accent',
          rates((one) => one.requests),
        ),
      ],
    },
    {
      title: 'Latency',
      format: milliseconds,
      lines: [line('median', 'accent', quantiles(0.5)), line('95 %', 'warn', quantiles(0.95))],
    },
    {
      title: 'Errors',
      format: perSecond,
      lines: [
        line(
          'refused (4xx)',
          'warn',
          rates((one) => one.refused),
        ),
        line(
          'failed (5xx)',
          'danger',
          rates((one) => one.failed),
        ),
      ],
    },
    {
      title: 'Connections to PostgreSQL',
      format: String,
      lines: [
        line(
          'in use',
          'accent',
          pairs.map(([, { poolInUse }]) => poolInUse),
        ),
        line(
          'waiting',
          'danger',
          pairs.map(([, { poolWaiting }]) => poolWaiting),
        ),
      ],
    },
    {
      title: 'Memory',
      format: formatBytes,
      lines: [
        line(
          'resident',
          'info',
          pairs.map(([, { memoryBytes }]) => memoryBytes),
        ),
      ],
    },
    {
      title: 'Event loop lag (99 %)',
      format: milliseconds,
      lines: [
        line(
          'lag',
          'info',
          pairs.map(([, { lagSeconds }]) => lagSeconds),
        ),
      ],
    },
  ]
  return (
    <>
      <p className="muted">
        {latest.requests.toLocaleString('en')} requests since the start ·{' '}
        {latest.failed.toLocaleString('en')} failed · {latest.poolInUse} of {latest.poolMax}{' '}
        connections in use · {formatBytes(latest.memoryBytes)} of memory
      </p>
      <div className="plots">
        {plots.map(({ title, format, lines }) => (
          <section key={title} className="card pad">
            <header className="row">
              <h2 className="grow">{title}</h2>
              {lines.map(({ label, color, values }) => {
                const value = values.at(-1)
                return (
                  <span key={label} className="row plot-now">
                    <span className="dot" style={{ background: color }} />
                    {label} {value === null || value === undefined ? '–' : format(value)}
                  </span>
                )
              })}
            </header>
            <Plot title={title} times={times} lines={lines} format={format} />
          </section>
        ))}
      </div>
    </>
  )
}
