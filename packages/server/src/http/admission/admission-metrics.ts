import { counterOf, type Family, gauge, type Sample } from '../../telemetry/metrics.js'
import type { Admission } from '../plugins/admission.js'
import type { Lane } from './lane.js'

/** Metrics of the lanes, rate limits and buffered bytes. */
export function admissionMetrics(admission: Admission): readonly Family[] {
  const ofLanes = (read: (lane: Lane) => number) => (): Sample[] =>
    Object.entries(admission.lanes).map(([lane, state]) => ({
      labels: { lane },
      value: read(state),
    }))
  return [
    gauge(
      'offshoot_admission_inside',
      'Admitted requests in progress, by lane.',
      ofLanes((lane) => lane.inside),
    ),
    gauge(
      'offshoot_admission_waiting',
      'Requests waiting for admission, by lane.',
      ofLanes((lane) => lane.waiting),
    ),
    counterOf(
      'offshoot_admission_refused_total',
      'Requests refused because of overload, by lane.',
      ofLanes((lane) => lane.refused),
    ),
    counterOf(
      'offshoot_rate_limited_total',
      'Requests refused by a limit of their API key, address or link.',
      () => admission.rateLimited,
    ),
    gauge(
      'offshoot_buffered_bytes',
      'Bytes of request bodies and answers in memory.',
      () => admission.budget.bytes,
    ),
  ]
}
