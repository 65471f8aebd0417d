/** The answers of the server, as docs/http-api.md states them. Times are nanoseconds relative to the profile's origin. */

export interface ProfileSummary {
  id: string;
  name: string;
  format: string;
  made_by: MadeBy;
  health: Health;
  span_ns: number;
}

/** Whether and what the server takes; without `enabled` the rest is missing. */
export interface UploadRules {
  enabled: boolean;
  limit_bytes?: number;
  /** endings of file names that can be part of a profile */
  endings?: string[];
}

export interface UploadState {
  id: string;
  name: string;
  state: "receiving" | "reading" | "done" | "failed" | "cancelled";
  files: number;
  received_bytes: number;
  expected_bytes: number | null;
  stage: string;
  /** of the reading, 0 to 1 */
  fraction: number;
  /** id of the opened profile once it is done */
  profile: string | null;
  error: string | null;
}

export interface MadeBy {
  label: string;
  emulated: boolean;
  target: string | null;
  model_version: string | null;
  launch_status: string;
  notes: string[];
}

export interface Health {
  in_file: number;
  stored: number;
  repaired: number;
  skipped: number;
  dropped: number | null;
  clean: boolean;
  text: string;
}

export type TrackKind = "framework" | "stream" | "runtime" | "device" | "copy" | "engine";

export interface Track {
  id: number;
  label: string;
  short: string;
  kind: TrackKind;
  subtitle: string;
  provenance: "measured" | "emulated" | "recorded";
  lanes: number;
  physical_core: number | null;
}

export interface Range {
  start: number;
  end: number;
}

export interface ProfileCard {
  id: string;
  name: string;
  path: string;
  format: string;
  origin_ns: string;
  span_ns: number;
  made_by: MadeBy;
  health: Health;
  steps: (Range & { name: string; complete: boolean })[];
  default_range: Range & { text: string };
  groups: { label: string; tracks: Track[] }[];
  names: string[];
  facts: string[];
  empty: string | null;
  /** of the device's side of one execution: the profile and the event it belongs to */
  outer: { profile: string; event: string } | null;
}

/** The code around a source line, or why there is none. */
export interface SourceLines {
  file?: string;
  line?: number;
  first?: number;
  lines?: string[];
  reason?: string;
}

export interface EventCard {
  id: string;
  name: string;
  op: string | null;
  track_id: number;
  lane: number;
  lane_label: string;
  role: string;
  start: number;
  end: number;
  duration_ns: number;
}

export interface Gap {
  id: string;
  track_id: number;
  start: number;
  end: number;
  duration_ns: number;
  cause: string;
  text: string;
  next_event: string | null;
}

export interface Execution {
  execution_id: string;
  /** id of the profile of its engines and DMA queues; null where nothing is known about them */
  device_profile: string | null;
  launch_ns: number | null;
  program_ns: number | null;
  estimated_ns: number | null;
  queue_ns: number | null;
  bytes_read: number | null;
  bytes_written: number | null;
  bytes_at_hbm_peak_ns: number | null;
  flops: number | null;
  neff: string | null;
  instructions: number | null;
  dma_transfers: number | null;
  shapes: string | null;
  dtypes: string | null;
  module: string | null;
  source: string | null;
  step: number | string | null;
  physical_cores: number | null;
  provenance: { launch?: string; program?: string };
}

export interface EventDetails extends EventCard {
  execution: Execution | null;
  gap_before: Gap | null;
  attributes: Record<string, unknown>;
  made_by: string;
  markdown: string;
}

export type ChainEvent = EventCard & { wait_ns: number | null; wait_reason: string | null };

export interface Chain {
  cause: string;
  events: ChainEvent[];
  links: { from: string; to: string; wait_ns: number }[];
  upstream: string[];
  downstream: string[];
}

export interface OperatorRow {
  name: string;
  calls: number;
  self_cpu_ns: number;
  device_time_ns: number;
  launch_ns: number;
  program_ns: number;
  estimated_ns: number;
  /** part of program_ns that depends on data, timed at its bound */
  bound_ns: number;
  executions: number;
  /** of total device time; null without any */
  share: number | null;
  events: string | null;
}

export interface Operators {
  rows: OperatorRow[];
  total: OperatorRow;
  reason: { title: string; lines: string[] } | null;
}

export interface Overview {
  tracks: { kind: "framework" | "device"; busy: number[]; name_id: number[] }[];
}

export interface IngestReport {
  in_file: number;
  stored: number;
  repaired: number;
  skipped: number;
  dropped: number | null;
  rows: { kind: string; count: number; offset: number | string | null; action: string; message: string }[];
}

export interface ComparedExecution {
  event_id: string;
  op: string;
  start: number;
  duration_ns: number;
  /** null where the format does not split launch cost and program */
  launch_ns: number | null;
  program_ns: number | null;
  gap_before_ns: number;
}

export interface ComparedProfile {
  id: string;
  name: string;
  launch_status: string;
  device_time_ns: number;
  span_ns: number;
  self_cpu_ns: number;
  executions: number;
  launch_ns: number;
  program_ns: number;
  estimated_ns: number;
  gaps_ns: number;
  bytes_moved: number | null;
  bytes_at_hbm_peak_ns: number | null;
  ratio: number | null;
  executions_list: ComparedExecution[];
  terms: { name: string; text: string; detail: string; delta_ns: number }[];
  delta_span_ns: number;
  /** what explains the difference to the base, "" for the base */
  sentence?: string;
  ops: OperatorRow[];
}

export interface Roofline {
  target: string;
  peak_flops: number;
  hbm_bytes_per_second: number;
  points: { profile: string; name: string; flops_per_byte: number; flops_per_second: number; bound: string }[];
}

export interface Comparison {
  base: string;
  warnings: string[];
  sentence: string;
  profiles: ComparedProfile[];
  roofline: Roofline | null;
}

/** One analysis as `GET …/analyses/{name}` answers; the rows are those of its SQL file. */
export interface Analysis {
  analysis: string;
  range: string;
  share_of: string;
  facts: string[];
  reason: string;
  rows: Record<string, string | number | boolean | null>[];
  at_peak?: Record<string, string | number | boolean | null>[];
  curve?: CurveRow[];
}

/** `GET …/roofline`: each executable against the hardware's peaks; times are sums over its executions. */
export interface Roofline {
  reason: string;
  range: { text: string; step: number };
  roofs: {
    flops_per_second: number;
    flops_dtype: string;
    bytes_per_second: number;
    ridge: number;
    unit: string;
    source: string;
  };
  launch_bound_above: number;
  device_time_ns: number;
  rows: RooflineRow[];
}

export interface RooflineRow {
  name: string;
  neff: string;
  executions: number;
  device_time_ns: number;
  program_ns: number;
  estimated_ns: number;
  intensity: number | null;
  achieved_flops_per_second: number | null;
  roof: "" | "compute" | "memory";
  bound: "" | "launch" | "compute" | "memory";
  reached: number | null;
  launch_share: number | null;
  engines: Record<string, number>;
  hfu: number | null;
  mfu: number | null;
  mbu: number | null;
  text: string;
}

export interface CurveRow {
  rank: number;
  place: string;
  series: string;
  start_ts: number;
  peak_bytes: number;
  last_bytes: number;
}

export interface SplitRow {
  step: number;
  rank: number;
  category: string;
  time_ns: number;
  span_ns: number;
  share: number | null;
}

export interface InsightRow {
  rule: string;
  gain_ns: number;
  share: number | null;
  span_ns: number;
  count: number;
  formula: string;
  evidence: { event_id: string; name: string; ns: number }[];
}
