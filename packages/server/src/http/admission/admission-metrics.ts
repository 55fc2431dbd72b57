import { counterOf, type Family, gauge, type Sample } from '../../telemetry/metrics.js'
import type { Admission } from '../plugins/admission.js'
import type { Lane } from './lane.js'

/** How full the service is, and what it has refused for that. */
export function admissionMetrics(admission: Admission): readonly Family[] {
  const ofLanes = (read: (lane: Lane) => number) => (): Sample[] =>
    Object.entries(admission.lanes).map(([lane, state]) => ({
      labels: { lane },
      value: read(state),
    }))
  return [
    gauge(
      'offshoot_admission_inside',
      'Requests that were let in and are worked on, by lane.',
      ofLanes((lane) => lane.inside),
    ),
    gauge(
      'offshoot_admission_waiting',
      'Requests that wait to be let in, by lane.',
      ofLanes((lane) => lane.waiting),
    ),
    counterOf(
      'offshoot_admission_refused_total',
      'Requests that were not let in because there were too many, by lane.',
      ofLanes((lane) => lane.refused),
    ),
    counterOf(
      'offshoot_rate_limited_total',
      'Requests that went beyond the limits of their key.',
      () => admission.rateLimited,
    ),
    gauge(
      'offshoot_buffered_bytes',
      'Bytes of bodies and answers that are in memory.',
      () => admission.budget.bytes,
    ),
  ]
}
