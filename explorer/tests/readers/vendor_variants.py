# ruff: noqa: E501, E702 - rows of JSON stay on their line
# fmt: off
"""Traces as the tools of each vendor and framework write them.

Each line: what it is, the file's content, its name, and what is right, written down before it was tried: events in the
file `n`, stored `st`, repaired `rep`, skipped `skip`, device slices `dev`, device time `t` and busy time in ns, operators
the device work belongs to `op`; a pair is a range; `fail`: nothing can be kept (None: that is all right too).
"""

from __future__ import annotations

import gzip
import json

from variant_events import BASE, FULL, TEXTS, Variants, call, data, doc, kernel, op, raw, slice_

VARIANTS = Variants()
add = VARIANTS.add


# vendors
# CUDA FULL set
cuda=[slice_("PyTorch Profiler (0)",90,900,"Trace",pid="Spans",tid="PyTorch Profiler"),
 slice_("ProfilerStep#3",95,400,"user_annotation"),op("aten::linear",100,50,1,**{"Sequence number":7,"Fwd thread id":0,"Input Dims":[[2,3]],"Record function id":0}),op("aten::addmm",102,40,2),
 call(110,7,**{"External id":2,"cbid":211}),kernel("ampere_sgemm",200,10,7,**{"External id":2,"registers per thread":122,"grid":[1,1,1],"block":[128,1,1],"est. achieved occupancy %":0}),
 call(150,8,"cudaMemcpyAsync",**{"External id":2}),kernel("Memcpy HtoD (Pageable -> Device)",220,3,8,cat="gpu_memcpy",bytes=64,**{"memory bandwidth (GB/s)":0.02}),
 call(160,9,"cudaMemsetAsync"),kernel("Memset (Device)",230,2,9,cat="gpu_memset",bytes=64),
 kernel("ProfilerStep#3",190,50,0,cat="gpu_user_annotation"),
 {"ph":"s","id":7,"pid":1,"tid":1,"ts":110,"cat":"ac2g","name":"ac2g"},{"ph":"f","id":7,"pid":0,"tid":7,"ts":200,"cat":"ac2g","name":"ac2g","bp":"e"},
 {"ph":"i","s":"t","name":"[memory]","cat":"cpu_instant_event","pid":1,"tid":1,"ts":105,"args":{"Total Reserved":0,"Total Allocated":512,"Bytes":512,"Addr":1,"Device Id":0,"Device Type":1}},
 {"ph":"M","name":"process_name","pid":0,"tid":0,"ts":90,"args":{"name":"python"}},{"ph":"M","name":"process_labels","pid":0,"tid":0,"ts":90,"args":{"labels":"GPU 0"}},
 {"name":"Iteration Start: PyTorch Profiler","ph":"i","s":"g","pid":"Traces","tid":"Trace PyTorch Profiler","ts":90},
 {"name":"Record Window End","ph":"i","s":"g","pid":"","tid":"","ts":990}]
add("CUDA kineto FULL", doc(cuda,deviceProperties=[{"id":0,"name":"NVIDIA H100"}],distributedInfo={"backend":"nccl","rank":5,"world_size":8},with_stack=1),n=18,st=18,rep=0,dev=3,t=15000,ranks=[5],procs=1,op=["aten::addmm",""])
add("CUDA 1.8 old", doc([slice_("aten::mm",100,50,"Operator",**{"External id":"1"}),slice_("cudaLaunchKernel",110,5,"Runtime",**{"external id":"1","correlation":7,"cbid":211}),slice_("k",200,10,"Kernel",pid=0,tid="stream 7",**{"queued":0,"device":0,"context":1,"stream":7,"correlation":7,"external id":"1"}),slice_("Memcpy DtoH",220,5,"Memcpy",pid=0,tid="stream 7",**{"device":0,"stream":7,"correlation":9,"bytes":4})]),n=4,st=4,dev=2,t=15000)
add("CUDA ConcurrentKernel", doc([op(),call(),kernel(cat="Concurrent_Kernel")]),n=3,dev=1,t=10000,op="aten::mm")
add("CUDA 12 graphs + driver cuLaunchKernelEx", doc([op(),call(110,1,"cuLaunchKernelEx",cat="cuda_driver"),kernel()]),n=3,dev=1,op="aten::mm")
add("triton kernel from cuda_driver", doc([op("triton_poi_fused"),call(110,1,"cuLaunchKernel",cat="cuda_driver",**{"External id":1}),kernel("triton_poi_fused_0")]),n=3,dev=1,op="triton_poi_fused")
add("CUDA occupancy counters", doc([*BASE,{"ph":"C","name":"GPU 0 SM utilization","pid":0,"ts":100,"args":{"value":3.5}}]),n=4,st=4,dev=1)
add("CUPTI range profiler", doc([*BASE,slice_("__cupti_profiler__",100,5,"cuda_profiler_range",pid=0,tid=0,smsp__inst=1.0)]),n=4,st=4,dev=1,t=10000)
# ROCm
add("ROCm kineto", doc([op(),call(110,1,"hipLaunchKernel",ptr="0x1"),kernel("Cijk_",200,10,1,**{"kernel":"x","queue":2})]),n=3,dev=1,op="aten::mm")
add("ROCm hipExtModuleLaunchKernel", doc([op(),call(110,1,"hipExtModuleLaunchKernel"),kernel()]),n=3,dev=1,op="aten::mm")
add("ROCm old tid string device 2", doc([op(),call(110,1,"hipLaunchKernel"),slice_("k",200,10,"kernel",pid=2,tid=0,device=2,stream="0",correlation=1)]),n=3,dev=1)
add("ROCm memcpy CopyDeviceToHost", doc([op(),call(110,1,"hipMemcpyWithStream"),kernel("Memcpy DtoH (Device -> Host)",cat="gpu_memcpy",kind="CopyDeviceToHost",size=512,src="0x1",dst="0x2")]),n=3,dev=1,t=10000)
add("rocprof v1 chrome json", json.dumps({"traceEvents":[{"args":{"name":"0 CPU HIP API"},"ph":"M","pid":2,"name":"process_name","sort_index":0},{"args":{"name":"1 GPU0"},"ph":"M","pid":6,"name":"process_name","sort_index":4},
 {"ph":"X","name":"hipLaunchKernel","pid":2,"tid":77,"ts":"100","dur":"5","args":{"BeginNs":"100000","EndNs":"105000","pid":"9","tid":"77","args":"( kernel(k))"}},
 {"ph":"X","name":"axpy(float*)","pid":6,"tid":0,"ts":"120","dur":"10","args":{"BeginNs":"120000","EndNs":"130000","dev-id":"0","queue-id":"0","stream-id":"0","DurationNs":"10000"}},
 {"ts":100,"ph":"s","cat":"DataFlow","id":1,"pid":2,"tid":77,"name":"dep"},{"ts":120,"ph":"t","cat":"DataFlow","id":1,"pid":6,"tid":0,"name":"dep"},{}]}),n=7,st=7,dev=1,t=10000)
add("roctracer json otherData", json.dumps({"otherData":{"version":"6"},"traceEvents":[{"ph":"X","name":"hipMalloc","pid":2,"tid":1,"ts":1,"dur":2,"args":{}}]}),n=1,st=1)
# XPU
add("XPU kineto", doc([op(),call(110,1,"urEnqueueKernelLaunch",cat="xpu_runtime"),kernel("gemm_kernel",200,10,1,**{"appended":1,"submitted":2,"context":"0x"})]),n=3,dev=1,op="aten::mm")
add("XPU driver sycl", doc([op(),call(110,1,"piEnqueueKernelLaunch",cat="xpu_driver"),kernel()]),n=3,dev=1,op="aten::mm")
add("XPU memcpy", doc([op(),call(110,1,"urEnqueueUSMMemcpy",cat="xpu_runtime"),kernel("Memcpy M2D",cat="gpu_memcpy")]),n=3,dev=1,t=10000)
add("XPU queue string", doc([op(),call(110,1,"urEnqueueKernelLaunchWithArgsExp",cat="xpu_runtime"),slice_("k",200,10,"kernel",pid=0,tid=0,**{"device":0,"sycl queue":"0x55","correlation":1})]),n=3,dev=1,op="aten::mm")
add("XPU IPEX old cat", doc([op(),call(110,1,"zeCommandListAppendLaunchKernel",cat="Runtime"),kernel(cat="Kernel")]),n=3,dev=1,op="aten::mm")
# Ascend
npu=[{"ph":"M","name":"process_name","pid":1,"args":{"name":"Python"}},{"ph":"M","name":"process_name","pid":20,"args":{"name":"CANN"}},{"ph":"M","name":"process_name","pid":30,"args":{"name":"Ascend Hardware"}},{"ph":"M","name":"process_labels","pid":30,"args":{"labels":"NPU"}},{"ph":"M","name":"thread_name","pid":30,"tid":2,"args":{"name":"Stream 2"}},
 {"ph":"X","name":"aten::add","pid":1,"tid":5,"ts":"1695022871000000.100","dur":50.5,"cat":"cpu_op","args":{}},
 {"ph":"X","name":"AscendCL@aclnnAdd","pid":20,"tid":5,"ts":"1695022871000010.100","dur":5,"args":{}},
 {"ph":"X","name":"Add_kernel","pid":30,"tid":2,"ts":"1695022871000100.250","dur":10.125,"args":{"Model Id":4294967295,"Task Type":"AI_VECTOR_CORE","Stream Id":2,"Task Id":3,"connection_id":12}},
 {"ph":"X","name":"EVENT_WAIT","pid":30,"tid":2,"ts":"1695022871000090.250","dur":5,"args":{"Task Type":"EVENT_WAIT"}},
 {"ph":"s","bp":"e","name":"async_npu","id":"1695","pid":1,"tid":5,"ts":"1695022871000010.000","cat":"async_npu"},{"ph":"f","bp":"e","name":"async_npu","id":"1695","pid":30,"tid":2,"ts":"1695022871000100.250","cat":"async_npu"}]
add("Ascend npu", json.dumps(npu),n=11,st=11,dev=(1,2))
add("Ascend no python", json.dumps(npu[1:5]+npu[6:9]),n=7,st=7,dev=(1,2))
add("Ascend AI core freq counters", json.dumps([*npu, {"ph": "C", "name": "AI Core Freq", "pid": 40, "ts": "1695022871000100.1", "args": {"MHz": 1800}}]),n=12,st=12)
add("Ascend overlap analysis", json.dumps([*npu, {"ph": "M", "name": "process_name", "pid": 50, "args": {"name": "Overlap Analysis"}}, {"ph": "X", "name": "Computing", "pid": 50, "tid": 0, "ts": "1695022871000100.250", "dur": 10.125}, {"ph": "X", "name": "Free", "pid": 50, "tid": 3, "ts": "1695022871000110", "dur": 10}]),n=14,dev=(1,2))
add("Ascend communication", json.dumps([*npu, {"ph": "M", "name": "process_name", "pid": 60, "args": {"name": "Communication"}}, {"ph": "X", "name": "hcom_allReduce__1", "pid": 60, "tid": 1, "ts": "1695022871000200", "dur": 30, "args": {}}]),n=13,st=13)
# HPU
add("HPU", doc([slice_("aten::mm",100,50,**{"External id":1}),slice_("recipe launch",110,20,"hpu_op",**{"External id":1}),slice_("TPC add",200,10,"kernel",pid=0,tid=3,device=0,stream=3,correlation=0),slice_("MME gemm",205,10,"kernel",pid=0,tid=4,device=0,stream=4,correlation=0)]),n=4,st=4,dev=2,t=20000)
add("HPU habana plain", json.dumps({"traceEvents":[{"ph":"X","name":"TPC","pid":"HW","tid":"TPC 0","ts":1,"dur":2},{"ph":"X","name":"MME","pid":"HW","tid":"MME 0","ts":2,"dur":2}]}),n=2,st=2)
# MTIA
add("MTIA", doc([op(),call(110,1,"mtiaLaunchKernel",cat="mtia_runtime"),slice_("fbgemm",200,10,"mtia_ccp_events",pid=0,tid=1,device=0,stream=1,correlation=1),slice_("insight",200,50,"mtia_insight",pid=0,tid=1,device=0)]),n=4,st=4,dev=1,t=10000)
# PrivateUse1
add("PrivateUse1", doc([op(),slice_("pu1_launch",110,5,"privateuse1_runtime",correlation=1),slice_("pu1 drv",112,3,"privateuse1_driver",correlation=1,device=0,stream=0),kernel()]),n=4,st=4,dev=1,t=10000)
add("custom backend cats", doc([op(),slice_("launchX",110,5,"maca_runtime",correlation=1),kernel("k",cat="kernel")]),n=3,dev=1,op="aten::mm")
add("musa", doc([op(),slice_("musaLaunchKernel",110,5,"musa_runtime",correlation=1),kernel()]),n=3,dev=1,op="aten::mm")
add("unknown device category", doc([op(),call(),kernel(cat="spyre_kernel")]),n=3,dev=1,t=10000)
add("unknown device memcpy", doc([op(),call(),kernel(cat="tpu_memcpy")]),n=3,dev=1,t=10000)
# CPU only
add("CPU only", doc([slice_("ProfilerStep#1",1,300,"user_annotation"),op(),op("aten::relu",160,9,2),slice_("m.py(3): f",99,80,"python_function",**{"Python id":1,"Python parent id":None})]),n=4,st=4,dev=0,t=0,procs=1)
add("torch autograd chrome export (no kineto)", json.dumps([{"name":"aten::mm","ph":"X","ts":100.5,"dur":20,"tid":1,"pid":"CPU functions","args":{}},{"name":"aten::mm","ph":"s","ts":100.5,"tid":1,"pid":"CPU functions","id":1,"cat":"cpu_to_cuda","args":{}},{"name":"aten::mm","ph":"f","ts":130,"tid":7,"pid":"CUDA functions","id":1,"cat":"cpu_to_cuda","args":{}},{"name":"gemm","ph":"X","ts":130,"dur":10,"tid":7,"pid":"CUDA functions","args":{}}]),n=4,st=4,dev=1,t=10000)
add("execution trace json", json.dumps({"schema":"1.1.1-chakra.0.0.4","pid":1,"nodes":[{"id":1,"name":"[pytorch|profiler|execution_trace|process]"}]}),fail=True)
add("memory snapshot json", json.dumps({"segments":[],"device_traces":[[]]}),fail=True)
add("memory timeline json", json.dumps([[1,2,3],[[1,2],[3,4]]]),fail=True)
add("speedscope", json.dumps({"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[],"shared":{"frames":[]}}),fail=True)
add("perf script json / cpuprofile", json.dumps({"nodes":[],"startTime":1,"endTime":2,"samples":[],"timeDeltas":[]}),fail=True)
add("har", json.dumps({"log":{"entries":[]}}),fail=True)
add("tensorboard step stats", json.dumps({"stepStats":[]}),fail=True)
# JAX
jax={"displayTimeUnit":"ns","metadata":{"highres-ticks":True},"traceEvents":[{"ph":"M","pid":3,"name":"process_name","args":{"name":"/device:TPU:0"}},{"ph":"M","pid":3,"name":"process_sort_index","args":{"sort_index":3}},{"ph":"M","pid":3,"tid":1,"name":"thread_name","args":{"name":"Steps"}},{"ph":"M","pid":3,"tid":3,"name":"thread_name","args":{"name":"XLA Ops"}},{"ph":"M","pid":701,"name":"process_name","args":{"name":"/host:CPU"}},
 {"ph":"X","pid":3,"tid":3,"ts":10.5,"dur":3.25,"name":"fusion.1","args":{"long_name":"%f","tf_op":"jit(f)/mul"}},{"ph":"X","pid":701,"tid":1,"ts":1,"dur":5,"name":"PjitFunction(f)"},{}]}
add("JAX", json.dumps(jax),n=8,st=8)
add("JAX GPU streams", json.dumps({**jax,"traceEvents":[*jax["traceEvents"][:-1], {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0 NVIDIA"}}, {"ph": "M", "pid": 1, "tid": 14, "name": "thread_name", "args": {"name": "Stream #14(Compute)"}}, {"ph": "X", "pid": 1, "tid": 14, "ts": 20, "dur": 4, "name": "gemm", "args": {"correlation_id": "7"}}]}),n=10,st=10)
add("TF timeline", json.dumps({"traceEvents":[{"name":"process_name","ph":"M","pid":0,"args":{"name":"/job:localhost/device:GPU:0"}},{"name":"MatMul","cat":"Op","ph":"X","pid":0,"tid":0,"ts":1700000000000000,"dur":5,"args":{"name":"m","op":"MatMul"}},{"cat":"Tensor","ph":"O","id":1,"pid":0,"ts":1700000000000000,"name":"t","args":{"snapshot":{"a":1}}},{"cat":"Tensor","ph":"N","id":1,"pid":0,"ts":1700000000000000,"name":"t"},{"cat":"Tensor","ph":"D","id":1,"pid":0,"ts":1700000000000009,"name":"t"}]}),n=5,st=5)
add("chrome browser", json.dumps({"traceEvents":[{"args":{"name":"CrRendererMain"},"cat":"__metadata","name":"thread_name","ph":"M","pid":1,"tid":2,"ts":0},{"args":{"data":{"x":1}},"cat":"devtools.timeline","dur":5,"name":"RunTask","ph":"X","pid":1,"tdur":4,"tid":2,"ts":5000,"tts":100},{"cat":"blink","id2":{"local":"0x1"},"name":"A","ph":"b","pid":1,"tid":2,"ts":5000,"scope":"s"},{"cat":"blink","id2":{"local":"0x1"},"name":"A","ph":"e","pid":1,"tid":2,"ts":5010,"scope":"s"},{"cat":"x","name":"Profile","id":"0x1","ph":"P","pid":1,"tid":2,"ts":5000,"args":{}},{"bind_id":"0x9","flow_out":True,"cat":"x","name":"post","ph":"X","dur":1,"pid":1,"tid":2,"ts":5003,"args":{}}],"metadata":{"source":"DevTools"}}),n=6,st=6)
add("viztracer", json.dumps({"traceEvents":[{"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"MainProcess"}},{"pid":1,"tid":1,"ts":100.5,"ph":"X","cat":"fee","dur":2.1,"name":"f (a.py:1)"}],"viztracer_metadata":{"version":"1"},"file_info":{"files":{},"functions":{}}}),n=2,st=2)
add("perfetto export ui", json.dumps({"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":2,"pid":1,"tid":1}],"systemTraceEvents":"# tracer: nop","controllerTraceDataKey":"x"}),n=1,st=1)
add("clang ftime-trace", json.dumps({"traceEvents":[{"pid":1,"tid":2,"ph":"X","ts":1,"dur":5,"name":"ExecuteCompiler"},{"cat":"","pid":1,"tid":2,"ts":0,"ph":"M","name":"process_name","args":{"name":"clang"}}],"beginningOfTime":1700000000000000}),n=2,st=2)
add("nccl inspector/ flight recorder json", json.dumps({"version":"2.4","entries":[{"profiling_name":"nccl:all_reduce"}]}),fail=True)
# distributedInfo odd
add("distinfo rank string", doc(BASE,distributedInfo={"rank":"3","world_size":"8"}),n=3,ranks=[3])
add("distinfo rank -1", doc(BASE,distributedInfo={"rank":-1}),n=3,ranks=[])
add("distinfo null", doc(BASE,distributedInfo=None),n=3,ranks=[])
add("distinfo list", doc(BASE,distributedInfo=[1]),n=3,ranks=[])
add("distinfo after events", '{"traceEvents":['+",".join(TEXTS)+'],"distributedInfo":{"rank":4,"world_size":8}}',n=3,ranks=[4])
add("deviceProperties null", doc(BASE,deviceProperties=None),n=3,dev=1)
add("deviceProperties names null", doc(BASE,deviceProperties=[{"id":0,"name":None},3]),n=3,dev=1)
# misc
add("unsorted events", doc([kernel(),call(),op()]),n=3,dev=1,op="aten::mm")
add("duplicate keys in event", raw(TEXTS[0],TEXTS[1],TEXTS[2][:-1]+',"dur": 20}'),n=3,st=3,dev=1,t=(10000,20000))
add("uppercase ph", doc([{**op(),"ph":"x"},call(),kernel()]),n=3,st=2,skip=1)
add("extra nesting traceEvents object", json.dumps({"traceEvents":{"a":1}}),fail=True)
add("traceEvents null", json.dumps({"traceEvents":None}),fail=True)
add("wrapped in data", json.dumps({"data":{"traceEvents":BASE}}),n=3,st=3,dev=1)
add("empty object", "{}",fail=True); add("empty array","[]",fail=True); add("scalar","5",fail=True); add("string",'"traceEvents"',fail=True)
add("utf16", FULL.encode("utf-16"),n=3,st=3,dev=1); add("utf16be nobom", FULL.encode("utf-16-be"),n=3,st=3,dev=1); add("utf32",FULL.encode("utf-32"),n=3,st=3,dev=1); add("bom+gz",gzip.compress(b"\xef\xbb\xbf"+data(FULL)),n=3,st=3,dev=1)
add("comma-led ndjson", "\n,".join(TEXTS),n=3,st=3,dev=1)
add("leading whitespace/newlines", "\n\n  \t"+FULL,n=3,st=3,dev=1)
add("pretty printed", json.dumps(json.loads(FULL),indent=4),n=3,st=3,dev=1)
add("one event per file", TEXTS[2],n=1,st=1,dev=1,t=10000)
add("args missing everywhere", doc([{k:x for k,x in e.items() if k!="args"} for e in BASE]),n=3,st=3,dev=1,t=10000)
add("kernel w/o device/stream args, pid str", doc([op(),{"ph":"X","cat":"kernel","name":"k","pid":"GPU 0","tid":"stream 7","ts":200,"dur":10}]),n=2,st=2,dev=1,t=10000)
add("negative stream/device", doc([op(),call(),kernel(device=-1,stream=-1)]),n=3,st=3,dev=1,t=10000)
add("device 2^31", doc([op(),call(),kernel(device=2**31)]),n=3,st=3,dev=1,t=10000)
add("stream pointer id", doc([op(),call(),kernel(stream=94237498237498)]),n=3,st=3,dev=1,t=10000)
