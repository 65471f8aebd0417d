"""Our own Parquet tables beside those of the published schema: provenance, launch split, lanes, gap causes, report.

Times are integer nanoseconds since the Unix epoch (or the trace's own zero); `*_id` columns that name an event are
`SystemProfileEvents.id`. A table without rows is not written.
"""

from __future__ import annotations

from neuronscope.schema.columns import spec

PROFILE_INFO = spec(
    "ProfileInfo",
    "facts about the profile as key and value: format, path, label, emulated, target, target_hash, model_version, "
    "producer, events_in_file, stored, merged, repaired, skipped, device_slices, device_time_ns, device_busy_ns, "
    "processes, dropped (a number, or 'unknown'), exported_from, exported_as, unfinished_executions, "
    "host_model, lnc, device_name, device_cost_ns.*, device_cost_status.*, "
    "program.<neff>.*, notes.*",
    """
    key                string  name of the fact
    value              string  its text
    """,
)

TRACK = spec(
    "Track",
    "one row of the timeline in the Default grouping",
    """
    track_id           int32   dense, drawing order: framework, streams, runtime, hardware
    label              string  full path <instance>/PID:<pid>/<subsystem>/<identifier>
    short              string  <subsystem>/<identifier>
    group_label        string  <instance>/PID:<pid>
    kind               string  framework | stream | runtime | device | copy | engine
    subtitle           string  dispatch · host, measured
    provenance         string  measured | emulated | recorded
    lanes              int32   number of lanes
    physical_core      int32   -1 none
    rank               int32   distributed rank, -1 unknown
    """,
)

NAME = spec(
    "Name",
    "dictionary of slice and operator names",
    """
    name_id            int32   dense from 0
    name               string  the name
    """,
)

SLICE = spec(
    "Slice",
    "the timeline: every stored interval on its track and lane, sorted by (track_id, lane, start_ts)",
    """
    event_id           int64   SystemProfileEvents.id
    track_id           int32   Track.track_id
    lane               int32   nesting depth on host tracks, first free lane on device tracks
    start_ts           int64   start
    end_ts             int64   end
    name_id            int32   Name.name_id of the slice
    op_id              int32   Name.name_id of the operator it belongs to (colour)
    launch_ns          int64   fixed launch cost inside it, 0 unknown or none
    estimated          bool    its duration rests on an estimate
    """,
)

HOST_OP = spec(
    "HostOp",
    "one framework operator call on the host (category cpu_op and compiled regions), for the operator table",
    """
    event_id           int64   SystemProfileEvents.id
    parent_id          int64   enclosing operator call, -1 top level
    name               string  operator name as torch prints it
    thread_id          int64   host thread
    start_ts           int64   start
    end_ts             int64   end
    self_cpu_ns        int64   duration without enclosed operator calls, never negative
    external_id        int64   torch id (args "External id"), -1 none
    step               int64   step number, -1 outside
    rank               int32   distributed rank, -1 unknown
    """,
)

EXECUTION = spec(
    "Execution",
    "one piece of device work, counted once however many physical cores ran it: a NEFF execution, a GPU kernel, a copy",
    """
    execution_id       int64   unique in the profile
    event_id           int64   its (first) hardware event
    op_event_id        int64   HostOp it is attributed to, -1 unlinked
    kind               string  exec | memcpy | memset | host_copy (a neuron runtime copies: no device time)
    name               string  kernel or executable name
    op                 string  operator it is attributed to, empty when unlinked
    overload           string  full schema name where known
    neff               string  executable hash, empty none
    device             int32   device or logical NeuronCore
    stream_id          int64   stream
    process_id         int64   process
    correlation        int64   correlation id, -1 none
    launch_ts          int64   when the host call that launched it began, -1 unknown
    enqueue_ts         int64   when the host had enqueued it, -1 unknown
    start_ts           int64   device start
    end_ts             int64   device end
    duration_ns        int64   end - start; of an execution recorded per physical core the time any of them ran
    launch_ns          int64   fixed launch cost, -1 where the source has no such split
    program_ns         int64   engine and DMA time, -1 where there is no split
    estimated_ns       int64   part that is an estimate
    gap_ns             int64   idle before it on its device, -1 unknown or first
    gap_cause          string  execution_gap | launch_latency | host_late | sync | stream | first | unknown
    bytes_read         int64   device memory bytes read, -1 unknown
    bytes_written      int64   device memory bytes written, -1 unknown
    flops              int64   -1 unknown
    shapes             string  input shapes
    dtypes             string  input dtypes
    module_path        string  nn.Module path; of backward work that of its forward operator
    region             string  record_function ranges around the launch, outermost first: 'forward > attention'
    source             string  file.py:line
    stack              string  Python frames around the launch, outermost first, separated by ';'
    step               int64   step number, -1 outside
    physical_cores     int32   how many hardware events it has
    rank               int32   distributed rank, -1 unknown
    provenance         string  recorded | simulated | estimated | bound: simulated, but the real time depends on data
    """,
)

GAP = spec(
    "Gap",
    "idle time between two executions of one device track",
    """
    gap_id             int64   unique in the profile
    track_id           int32   Track.track_id
    start_ts           int64   end of the previous execution
    end_ts             int64   start of the next
    cause              string  host_late | execution_gap | launch_latency | sync | stream | unknown
    text               string  a sentence: 212 us idle: host late (next launch call began 205 us after)
    previous_event_id  int64   event before
    next_event_id      int64   event after
    rank               int32   distributed rank, -1 unknown
    """,
)

STEP = spec(
    "Step",
    "profiler steps (ProfilerStep#N)",
    """
    number             int64   N
    name               string  ProfilerStep#N
    start_ts           int64   start
    end_ts             int64   end, device work of the step included
    complete           bool    neither cut by the start nor by the end of the recording
    rank               int32   distributed rank, -1 unknown
    """,
)

INGEST_REPORT = spec(
    "IngestReport",
    "what happened to the events of the file, one row per kind",
    """
    kind               string  stored | merged | repaired | skipped | dropped | unmatched_flow | ...
    count              int64   events, -1 unknown
    offset             int64   byte offset of the first one in the (decompressed) file, -1 none
    file               string  file name
    action             string  what was done
    message            string  one line for the user
    """,
)

OTHER_EVENT = spec(
    "OtherEvent",
    "events of a trace file that are neither slice, instant nor arrow: names and labels of processes and threads; ends "
    "of arrows that have arguments, no other end, or no slice to begin at; and the members of the file's head",
    """
    kind               string  metadata | arrow | head
    phase              string  the file's ph: M | s | t | f, empty in the head
    name               string  name; in the head the member's key
    category           string  cat
    process_id         int64   pid as the file has it
    thread_id          int64   tid as the file has it
    ts                 int64   time, -1 none
    identity           string  id as the file has it
    arguments          string  args (in the head the value) as JSON; members without a column are in member 'event'
    rank               int32   distributed rank, -1 unknown
    """,
)

HARDWARE = spec(
    "Hardware",
    "one number of the hardware that an emulated device profile was simulated with, per physical NeuronCore",
    """
    name               string  field of the target file, unit in the name: hbm_bytes_per_second
    value              float64 its value
    status             string  published | measured | derived | calibrated | estimated
    """,
)

OWN_TABLES = (HARDWARE, PROFILE_INFO, TRACK, NAME, SLICE, HOST_OP, EXECUTION, GAP, STEP, OTHER_EVENT, INGEST_REPORT)
