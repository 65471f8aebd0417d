-- is_collective: whether a kernel or operator of this name talks to other devices.
--
-- By the names that NCCL, RCCL, MSCCL, oneCCL, HCCL, NVSHMEM, Gloo, the Neuron runtime (cc_…), torch's c10d operators and
-- hand-written all-reduce kernels have. A copy between devices is no collective.
CREATE OR REPLACE MACRO is_collective(name) AS regexp_matches(
    name,
    '(?i)nccl|rccl|msccl|oneccl|hccl|hcom_|nvshmem|gloo:|c10d|^cc_running|all_?reduce|all_?gather|reduce_?scatter'
    '|all_?to_?all|send_?recv|cross_device_reduce'
);
