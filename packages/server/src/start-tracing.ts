import type { Config } from './config.js'
import type { StatementTracing } from './postgres/database.js'
import { EXPORT_PAUSE_MS, OtlpExporter } from './telemetry/otlp-exporter.js'
import { traceStatements } from './telemetry/trace-statements.js'
import { Tracer } from './telemetry/tracer.js'
import { version } from './version.js'

export interface Tracing extends StatementTracing {
  readonly tracer: Tracer
  /** Number of spans that could not be sent. */
  readonly dropped: number
  stop(): Promise<void>
}

/** Starts tracing. Loaded only if the settings name a collector. */
export function startTracing(
  config: Pick<Config, 'telemetryHeaders' | 'serviceName' | 'traceSampleRatio'>,
  options: { url: string; pauseMs?: number; onError(error: unknown): void },
): Tracing {
  const exporter = new OtlpExporter({
    pauseMs: EXPORT_PAUSE_MS,
    ...options,
    headers: config.telemetryHeaders,
    resource: { 'service.name': config.serviceName, 'service.version': version },
    version,
  })
  const tracer = new Tracer({
    sampleRatio: config.traceSampleRatio,
    onEnd: (span) => exporter.add(span),
  })
  return {
    tracer,
    get dropped() {
      return exporter.dropped
    },
    watch: (client) => traceStatements(client, tracer),
    startCall: (name) => tracer.startCall(name),
    stop: () => exporter.stop(),
  }
}
