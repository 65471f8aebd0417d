"""The columns of every bulk table in our profile files: one declaration for writer, reader and docs.

All times are integer nanoseconds since the Unix epoch unless the name says otherwise (``offset_ns``: since the start
of the executable's own timeline). Ids are int64 and unique per (instance, process, session). ``-1`` means "none".
"""

from __future__ import annotations

from neuronscope.schema.columns import TableSpec, spec

__all__ = [
    "ALLOCATIONS",
    "BY_KIND",
    "CPU_UTIL",
    "DETAILS",
    "DMA_TRANSFERS",
    "EVENTS",
    "EXECUTIONS",
    "HARDWARE",
    "HOST_MEM",
    "INSTRUCTIONS",
    "INSTRUCTION_DETAILS",
    "PROGRAMS",
    "PROGRAM_EXECUTIONS",
    "SINCE",
    "TENSORS",
    "WAITS",
    "TableSpec",
]

EXECUTIONS = spec(
    "executions",
    "ntrace.pb: one execution of an executable on a logical NeuronCore, counted once however many cores run it.",
    """
    execution_id       int64   unique id; also the flow id of its whole chain
    kind               string  exec (a NEFF) | memcpy_h2d | memcpy_d2h
    op                 string  aten::mul, or the compiled region's name
    overload           string  aten::mul.Tensor
    neff               string  hash of the executable; empty for copies
    nc_idx             int32   logical NeuronCore, process-local
    stream_id          int32   framework stream
    thread_id          int64   host thread that launched it
    correlation        int32   torch correlation id of the rows in trace.json
    external_id        int64   torch id of the cpu_op that launched it (args "External id"), -1 none
    enqueue_ns         int64   when the host had enqueued it
    start_ns           int64   device start
    end_ns             int64   device end = start + launch_ns + program_ns
    launch_ns          int64   fixed launch cost (calibrated)
    program_ns         int64   engine and DMA time (simulated)
    estimated_ns       int64   part of program_ns that is a bandwidth-bound estimate
    gap_ns             int64   idle time of the core since its previous execution's end, -1 for the first
    gap_cause          string  execution_gap | launch_latency | host_late | sync | stream | first | unknown
    bytes_read         int64   HBM bytes read by the program
    bytes_written      int64   HBM bytes written by the program
    flops              int64   multiply and add counted separately
    shapes             string  input shapes, e.g. [4,512] x [512]
    dtypes             string  input dtypes, e.g. bf16 x bf16
    bound              string  ops of it whose real time depends on data (indices): timed as if all were distinct
    module_path        string  qualified nn.Module path, empty outside modules
    source             string  file.py:line of the user's call
    step               int64   ProfilerStep number, -1 outside steps
    """,
)

EVENTS = spec(
    "events",
    "ntrace.pb: one slice of a runtime call (neuron_rt) or of one physical core's work (neuron_hw).",
    """
    id                 int64   unique event id
    name               string  nrta_execute_schedule, nc_exec_running, dmem_buf_copyin, ...
    source             string  neuron_rt | neuron_hw
    start_ns           int64   start
    end_ns             int64   end
    thread_id          int64   host thread, 0 for hardware
    nc_idx             int32   logical NeuronCore
    pcore_idx          int32   physical core for neuron_hw, -1 for neuron_rt
    execution_id       int64   execution it belongs to, -1 none
    bytes              int64   bytes copied, 0 if none
    """,
)

PROGRAMS = spec(
    "programs",
    "ntff: one executable whose device timeline this file holds.",
    """
    neff               string  hash, as in neff_<hash>_vnc_<n>.neff
    name               string  op or graph name
    target             string  trn2, ...
    duration_ns        int64   length of its timeline (engine and DMA time)
    estimated_ns       int64   part that is an estimate
    instructions       int64   number of instructions executed
    dma_transfers      int64   number of DMA transfers
    bytes_read         int64   HBM bytes read
    bytes_written      int64   HBM bytes written
    flops              int64   flops
    model_flops        int64   of them those of the graph's matrix products, -1 unknown
    """,
)

PROGRAM_EXECUTIONS = spec(
    "program_executions",
    "ntff: when each executable ran.",
    """
    execution_id       int64   as in ntrace.pb
    neff               string  hash
    start_ns           int64   start of the program, launch cost excluded
    nc_idx             int32   logical NeuronCore, process-local
    """,
)

INSTRUCTIONS = spec(
    "instructions",
    "ntff: one executed instruction of an executable's timeline, once per executable.",
    """
    neff               string  hash of the executable
    id                 int64   index inside the executable, unique with neff
    engine             string  Tensor | Vector | Scalar | GpSimd | Sync
    opcode             string  nki.isa name, e.g. tensor_tensor
    operands           string  printed operands
    pc                 int64   program counter on its engine
    offset_ns          int64   start since the program's start
    duration_ns        int64   duration
    wait_ns            int64   time it waited on semaphores when it could have issued
    done_offset_ns     int64   when its result is visible (its semaphores rise); of a DMA: when the data have arrived
    op                 string  ATen op it implements
    source             string  file.py:line, empty if unknown
    flops              int64   flops
    sbuf_read_bytes    int64   bytes
    sbuf_write_bytes   int64   bytes
    psum_read_bytes    int64   bytes
    psum_write_bytes   int64   bytes
    """,
)

DMA_TRANSFERS = spec(
    "dma_transfers",
    "ntff: one DMA transfer of an executable's timeline, once per executable.",
    """
    neff               string  hash of the executable
    id                 int64   index inside the executable, unique with neff
    queue              string  queue name, e.g. qLoad
    queue_idx          int64   queue number
    engines            int32   DMA engines that take part
    offset_ns          int64   first byte, since the program's start
    duration_ns        int64   first byte to last byte
    trigger_offset_ns  int64   when an engine triggered it
    done_offset_ns     int64   when its semaphore became visible
    bytes              int64   bytes moved
    rows               int64   descriptors (partition rows)
    from_memory        string  HBM | SBUF
    to_memory          string  HBM | SBUF
    variable           string  tensor moved
    queue_type         string  input | output | data
    op                 string  ATen op it serves
    """,
)

INSTRUCTION_DETAILS = spec(
    "instruction_details",
    "ntff: what an executable's program says of each instruction; not of rows without one (table loads, estimates).",
    """
    neff               string  hash of the executable
    instruction_id     int64   instructions.id
    transfer_id        int64   dma_transfers.id of the transfer it triggers, -1 none
    dtype              string  element type it computes with or moves; of a matmul the moving side's
    performance_mode   string  2x | 4x where the engine reads several elements per cycle, else empty
    transpose_flops    int64   part of its TensorE work that only turns or copies data, as flops
    signals            string  semaphores that its end raises: name+increment, separated by blanks
    """,
)

WAITS = spec(
    "waits",
    "ntff: one semaphore value that an instruction waits for.",
    """
    neff               string  hash of the executable
    instruction_id     int64   instructions.id
    semaphore          string  name
    value              int64   value that lets it start
    """,
)

ALLOCATIONS = spec(
    "allocations",
    "ntff: one stretch of time in which an on-chip tile holds data: its first write to the last use before the next.",
    """
    neff               string  hash of the executable
    memory             string  SBUF | PSUM
    name               string  the tile's name in the program
    address            int64   first byte within a partition, -1 not allocated
    bytes              int64   bytes per partition
    start_partition    int64   first partition
    partitions         int64   number of partitions
    start_offset_ns    int64   first write begins, since the program's start
    end_offset_ns      int64   last use ends
    instruction_id     int64   instructions.id of the first write
    """,
)

TENSORS = spec(
    "tensors",
    "ntff: one HBM tensor of an executable.",
    """
    neff               string  hash of the executable
    name               string  as in dma_transfers.variable
    kind               string  input | output | inout | temporary
    dtype              string  element type
    shape              string  as the program sees it, e.g. [131072]
    bytes              int64   size
    """,
)

HARDWARE = spec(
    "hardware",
    "ntff: the numbers of the target that the timelines were simulated with, of one physical NeuronCore.",
    """
    name               string  field of the target file, e.g. tensor_clock_hz
    value              float64 its value, unit in the name
    status             string  published | measured | derived | calibrated | estimated
    """,
)

CPU_UTIL = spec(
    "cpu_util",
    "cpu_util.pb: host CPU utilization.",
    """
    timestamp_ns       int64   sample time
    cpu_id             string  core number or "average"
    util_percent       float64 0..100
    """,
)

HOST_MEM = spec(
    "host_mem",
    "host_mem.pb: host memory of the process.",
    """
    timestamp_ns       int64   sample time
    used_bytes         int64   resident set of the process
    total_bytes        int64   memory of the host
    """,
)

#: What an NTFF says of each executable beside its timeline.
DETAILS = (INSTRUCTION_DETAILS, WAITS, ALLOCATIONS, TENSORS)

BY_KIND: dict[str, tuple[TableSpec, ...]] = {
    "trace_info": (),
    "ntrace": (EXECUTIONS, EVENTS),
    "ntff": (
        PROGRAMS,
        PROGRAM_EXECUTIONS,
        INSTRUCTIONS,
        DMA_TRANSFERS,
        *DETAILS,
        HARDWARE,
    ),
    "cpu_util": (CPU_UTIL,),
    "host_mem": (HOST_MEM,),
}

#: Columns that files of an older version lack: (table, column) -> the version they came with. Readers take -1 or "".
SINCE: dict[tuple[str, str], int] = {
    ("executions", "bound"): 2,
    ("instructions", "done_offset_ns"): 2,
    ("programs", "model_flops"): 2,
    ("program_executions", "nc_idx"): 2,
}
