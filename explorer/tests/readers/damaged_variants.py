# ruff: noqa: E501, E701 - rows of JSON stay on their line
# fmt: off
"""Traces damaged in ways people report: several of each kind.

Each line: what it is, the file's content, its name, and what is right, written down before it was tried: events in the
file `n`, stored `st`, repaired `rep`, skipped `skip`, device slices `dev`, device time `t` and busy time in ns, operators
the device work belongs to `op`; a pair is a range; `fail`: nothing can be kept (None: that is all right too).
"""

from __future__ import annotations

import gzip
import json

from variant_events import BASE, FULL, TEXTS, Variants, call, data, doc, half, kernel, op, raw, slice_

VARIANTS = Variants()
add = VARIANTS.add


# bad UTF-8
add("latin1 name", data(raw(*TEXTS)).replace(b"gemm",b"g\xe9mm"), n=3,st=3,rep=1,dev=1,t=10000)
add("latin1 in args", data(raw(json.dumps(op(note="@")),*TEXTS[1:])).replace(b"@",b"\xff\xfe"), n=3,st=3,rep=1,dev=1,t=10000)
add("cut utf8 seq at end of name", data(raw(*TEXTS)).replace(b"gemm",b"g\xf0\x9f\x92"), n=3,st=3,rep=1,dev=1)
add("overlong", data(raw(*TEXTS)).replace(b"gemm",b"g\xc0\xafm"), n=3,st=3,rep=1,dev=1)
add("surrogate bytes (CESU-8)", data(raw(*TEXTS)).replace(b"gemm",b"g\xed\xa0\xbd\xed\xb8\x80"), n=3,st=3,rep=1,dev=1)
add("gbk name", data(raw(*TEXTS)).replace(b"gemm","算子".encode("gbk")), n=3,st=3,rep=1,dev=1)
add("bad utf8 in key", data(raw(json.dumps(op(note=1)),*TEXTS[1:])).replace(b"note",b"no\xfft"), n=3,st=3,rep=1,dev=1)
add("bad utf8 in header", data(doc(BASE,host_name="h@")).replace(b"@",b"\xff"), n=3,st=3,dev=1)
add("bad utf8 in category", data(raw(*TEXTS)).replace(b'"cpu_op"',b'"cpu\xffop"'), n=3,st=3,rep=1,dev=1)
add("lone surrogate escape", raw(*TEXTS).replace("gemm","g\\ud800m"), n=3,st=3,dev=1)
add("every event bad utf8 x3000", data(raw(*[json.dumps(op(f"o@{i}",100+i,1,i)) for i in range(3000)],*TEXTS[1:])).replace(b"@",b"\xe9"), n=3002,st=3002,rep=3000,dev=1)

# stray quotes
add("quote in kernel name", raw(*TEXTS).replace("gemm",'ge"mm'), n=3,st=3,rep=1,dev=1,t=10000)
add("quoted json in name", raw(*TEXTS).replace("aten::mm",'f({"a": 1, "b": [2, 3]})'), n=3,st=3,rep=1,dev=1,t=10000)
add("quotes in args value", raw(json.dumps(op(note="@")),*TEXTS[1:]).replace("@",'say "x", "y": 1'), n=3,st=3,rep=1,dev=1,t=10000)
add("name ends with quote", raw(*TEXTS).replace("gemm",'gemm"'), n=3,st=3,rep=1,dev=1,t=10000)
add("name begins with quote", raw(*TEXTS).replace("gemm",'"gemm'), n=3,st=3,rep=1,dev=1,t=10000)
add("single quotes python repr", raw(*TEXTS[:2],str(BASE[2])), n=3,st=(2,3),dev=(0,1))
add("c++ literal operator", raw(*TEXTS).replace("gemm",'operator"" _a<"x">'), n=3,st=3,rep=1,dev=1,t=10000)

# backslashes
add("win path C:\\users\\new", raw(*TEXTS).replace("aten::mm",'C:\\users\\new\\t.py(3): f'), n=3,st=3,rep=1,dev=1)
add("trailing backslash", raw(*TEXTS).replace("gemm",'gemm\\'), n=3,st=3,rep=1,dev=1,t=10000,names=["gemm\\"])
add("bad \\u escape", raw(*TEXTS).replace("gemm",'g\\u12mm'), n=3,st=3,rep=1,dev=1)
add("\\x escape", raw(*TEXTS).replace("gemm",'g\\x41mm'), n=3,st=3,rep=1,dev=1)
add("octal escape", raw(*TEXTS).replace("gemm",'g\\033[0m'), n=3,st=3,rep=1,dev=1)
add("UNC path", raw(*TEXTS).replace("aten::mm",'\\\\srv\\share\\x.py'), n=3,st=3,dev=1)

# control bytes
for c in (0,1,8,0x1b,0x1f): add(f"control {c}", data(raw(*TEXTS)).replace(b"gemm",b"g%cmm"%c), n=3,st=3,rep=1,dev=1,t=10000)
add("del 0x7f ok", data(raw(*TEXTS)).replace(b"gemm",b"g\x7fmm"), n=3,st=3,rep=0,dev=1)
add("control in args", data(raw(json.dumps(op(note="@")),*TEXTS[1:])).replace(b"@",b"\x02\x03"), n=3,st=3,rep=1,dev=1)
add("NUL block between events", data(raw(*TEXTS)).replace(b",\n",b",\n"+bytes(4096),1), n=3,st=3,dev=1)
add("NUL block at the end (crash)", data(raw(*TEXTS))[:-2]+bytes(8192), n=3,st=3,dev=1)
add("tab in key", data(raw(json.dumps(op(note=1)),*TEXTS[1:])).replace(b"note",b"no\tt"), n=3,st=3,rep=1,dev=1)
add("newline CR in string", data(raw(*TEXTS)).replace(b"gemm",b"ge\r\nmm"), n=3,st=3,rep=1,dev=1)
add("U+2028", raw(*TEXTS).replace("gemm","ge\u2028mm"), n=3,st=3,rep=0,dev=1)

# NaN/inf words
for w in ("NaN","nan","-nan","inf","-inf","Infinity","-Infinity","None","undefined","1.#INF","1.#QNAN","-1.#IND","True","nil","null"):
    add(f"bare {w} in args", raw(TEXTS[0],TEXTS[1],json.dumps(kernel(bw="@")).replace('"@"',w)), n=3,st=3,rep=0 if w=="null" else 1,dev=1,t=10000)
add("dur nan", raw(TEXTS[0],TEXTS[1],json.dumps(kernel(dur="@")).replace('"@"',"NaN")), n=3,st=3,rep=1,dev=1,t=0)
add("dur inf", raw(TEXTS[0],TEXTS[1],json.dumps(kernel(dur="@")).replace('"@"',"inf")), n=3,st=3,rep=1,dev=1,t=0)
add("ts nan", raw(TEXTS[0],TEXTS[1],json.dumps(kernel(ts="@")).replace('"@"',"NaN")), n=3,st=2,dev=0)
add("dur string nan", doc([*BASE[:2],kernel(dur="nan")]), n=3,st=3,rep=1,dev=1,t=0)
add("dur null", doc([*BASE[:2],kernel(dur=None)]), n=3,st=3,rep=1,dev=1,t=0)
add("correlation nan", raw(TEXTS[0],TEXTS[1],json.dumps(kernel(correlation="@")).replace('"@"',"NaN")), n=3,st=3,rep=1,dev=1,t=10000)
add("nan in header", raw(*TEXTS,head='{"schemaVersion":1,"x":NaN,"traceEvents":['), n=3,st=3,dev=1)
add("nan in distributedInfo", raw(*TEXTS,head='{"distributedInfo":{"rank":3,"x":NaN},"traceEvents":['), n=3,st=3,dev=1,ranks=[3])
add("nan in counter", raw(*TEXTS,'{"ph":"C","name":"c","pid":1,"ts":5,"args":{"v":nan}}'), n=4,st=4,rep=1,dev=1)

# truncated
add("cut inside last", FULL[:-30], n=3,st=(2,3),dev=(0,1))
add("cut after comma", raw(*TEXTS[:2])[:-2]+",", n=2,st=2,dev=0)
add("cut in string", FULL[:FULL.index("gemm")+2], n=3,st=2)
add("cut in key", FULL[:FULL.rindex('"dur"')+3], n=3,st=(2,3))
add("cut after ts of last", FULL[:FULL.rindex('"dur"')], n=3,st=(2,3))
add("cut in number", FULL[:FULL.rindex('"dur"')+8], n=3,st=(2,3))
add("cut mid-utf8", data(raw(*TEXTS[:2],json.dumps(op("naïve"*9))))[:-60], n=3,st=(2,3))
add("only header cut", '{"schemaVersion":1,"deviceProperties":[{"id":0', fail=True)
add("only traceEvents key", '{"schemaVersion":1,"traceEvents":[', fail=True)
add("cut within first event", '{"schemaVersion":1,"traceEvents":[{"ph":"X","na', fail=True)
gz=gzip.compress(data(raw(*[json.dumps(op(f"o{i}",i*10,5,i)) for i in range(5000)],*TEXTS[1:])),mtime=0)
for f in (0.5,0.9,0.99): add(f"gzip cut {f}", gz[:int(len(gz)*f)],"trace.json.gz", st=(100,5002), kinds={"truncated_gzip"})
add("gzip crc missing", gz[:-8],"trace.json.gz", n=5002,st=5002,dev=1,kinds={"truncated_gzip"})
add("gzip crc wrong", gz[:-8]+b"abcd"+gz[-4:],"trace.json.gz", n=5002,st=5002,dev=1,kinds={"damaged_gzip"})
add("gzip bitflip", gz[:len(gz)//2]+bytes([gz[len(gz)//2]^0xff])+gz[len(gz)//2+1:],"trace.json.gz", st=(100,5002))
add("gzip members", gzip.compress(data(FULL[:50]))+gzip.compress(data(FULL[50:])),"trace.json.gz",n=3,st=3,dev=1)
add("gzip member per event", b"".join(gzip.compress(data(p)) for p in ('{"traceEvents":[',TEXTS[0]+",",TEXTS[1]+",",TEXTS[2],"]}")),"trace.json.gz",n=3,st=3,dev=1)
add("gzip 2 docs", gzip.compress(data(FULL))+gzip.compress(data(FULL)),"trace.json.gz",n=6,st=3,dev=1,kinds={"second_document"})
add("gzip second member cut", gzip.compress(data(FULL[:60]))+gzip.compress(data(FULL[60:]))[:-20],"trace.json.gz",n=(1,3),st=(1,3))
add("gzip junk between members", gzip.compress(data(FULL))+b"\0\0\0\0"+gzip.compress(data(" ")),"trace.json.gz",n=3,st=3,dev=1)
add("gz ext but plain", FULL,"trace.json.gz",n=3,st=3,dev=1)
add("json ext but gz", gzip.compress(data(FULL)),"trace.json",n=3,st=3,dev=1)
add("gzip empty member first", gzip.compress(b"")+gzip.compress(data(FULL)),"trace.json.gz",n=3,st=3,dev=1)

# two writers in one file
add("two writers interleaved", raw(TEXTS[0],TEXTS[1][:40]+TEXTS[0],TEXTS[1],TEXTS[2]), n=(4,5),st=(3,4),dev=1,t=10000)
add("two docs appended no newline", FULL+FULL, n=6,st=3,dev=1,kinds={"second_document"})
add("second overwrites first's head", FULL[:40]+FULL, st=(3,4),dev=1)
add("shorter file over longer", raw(*TEXTS[:2])+FULL[len(raw(*TEXTS[:2])):], st=(2,3))
add("doc then ndjson", FULL+"\n"+TEXTS[0]+"\n"+TEXTS[1], n=5,st=3,dev=1)
add("array doc + array doc", "["+",".join(TEXTS)+"]["+TEXTS[0]+"]", n=4,st=3,dev=1,kinds={"second_document"})
add("ndjson", "\n".join(TEXTS), n=3,st=3,dev=1)
add("ndjson with commas", ",\n".join(TEXTS)+",\n", n=3,st=3,dev=1)
add("events then lost bracket", "[\n"+",\n".join(TEXTS)+",\n", n=3,st=3,dev=1)
add("double comma", raw(TEXTS[0]+",",TEXTS[1],TEXTS[2]), n=3,st=3,dev=1)
add("missing comma between events", raw(TEXTS[0]+"\n"+TEXTS[1],TEXTS[2]), n=3,st=3,dev=1)
add("logs in between", raw(TEXTS[0],"[W kineto.cpp:12] warning\n"+TEXTS[1],TEXTS[2]), n=3,st=3,dev=1,t=10000)
add("JSON5 comments", raw("// c\n"+TEXTS[0],"/* x */"+TEXTS[1],TEXTS[2]), n=3,st=3,dev=1)
add("traceEvents twice", '{"traceEvents":['+TEXTS[0]+','+TEXTS[1]+'],"traceEvents":['+TEXTS[2]+']}', n=3,st=3,dev=1)
add("JSON in JS var", "var t = "+FULL+";", fail=None)
add("js callback", "loadTrace("+FULL+")", fail=None)

# huge or string numbers
add("string ts/dur", doc([op(),call(),{**kernel(),"ts":"200.5","dur":"10.25"}]), n=3,st=3,dev=1,t=10250)
add("string ts with spaces", doc([op(),call(),{**kernel(),"ts":" 200.5 ","dur":"10.25 "}]), n=3,st=3,dev=1,t=10250)
add("string correlation/device/stream", doc([op(),call(correlation="1"),kernel(correlation="1",device="0",stream="7")]), n=3,st=3,dev=1,t=10000,op="aten::mm")
add("hex correlation", doc([op(),call(correlation="0x1f"),kernel(correlation="0x1f")]), n=3,st=3,dev=1,t=10000)
add("float correlation", doc([op(),call(correlation=1.0),kernel(correlation=1.0)]), n=3,st=3,dev=1,t=10000,op="aten::mm")
add("corr > 2^53", doc([op(),call(correlation=2**53+1),kernel(correlation=2**53+1),call(120,2**53+2),kernel("other",300,20,2**53+2)]), n=5,st=5,dev=2,t=30000)
add("corr > 2^63", doc([op(),call(correlation=2**64-1),kernel(correlation=2**64-1)]), n=3,st=3,dev=1,t=10000)
add("pid 2^64", doc([op(),call(),{**kernel(),"pid":2**64-1}]), n=3,st=3,dev=1,t=10000)
add("ts 1e15 exp", doc([op(),call(),kernel()]).replace('"ts": 200','"ts": 2.00e2'), n=3,st=3,dev=1,t=10000)
add("20 decimals", doc(BASE).replace('"dur": 10','"dur": 10.12345678901234567890'), n=3,st=3,dev=1,t=10123)
add("long digits zero-padded", doc(BASE).replace('"dur": 10}','"dur": 0010}'), n=3,st=3,rep=(0,1),dev=1,t=10000)
add("int with + sign", doc(BASE).replace('"dur": 10','"dur": +10'), n=3,st=3,rep=1,dev=1,t=10000)
add("thousand digits", doc(BASE).replace('"correlation": 1}','"correlation": '+'9'*1000+'}'), n=3,st=3,dev=1)
add("1e400 args", doc(BASE).replace('"stream": 7','"x": 1e400, "stream": 7'), n=3,st=3,dev=1,t=10000)
add("1MB string arg", doc([op(note="y"*1_000_000),call(),kernel()]), n=3,st=3,dev=1,t=10000)
add("bool values", doc([op(),call(),{**kernel(),"args":{"device":True,"stream":False,"correlation":1}}]), n=3,st=3,dev=1,t=10000)
add("dims deep list", doc([op(**{"Input Dims":[[[1,2],[3,4]],[],[5]],"Input type":["TensorList","Scalar","float"]}),call(),kernel()]), n=3,st=3,dev=1)

# pairs
add("B E nested", doc([*BASE,half("B","a",1),half("B","b",2),half("E","b",3),half("E","a",4)]), n=7,st=7,dev=1)
add("E without name", doc([*BASE,half("B","a",1),half("B","b",2),{"ph":"E","pid":1,"tid":1,"ts":3},{"ph":"E","pid":1,"tid":1,"ts":4}]), n=7,st=7,skip=0)
add("B E same ts", doc([*BASE,half("B","a",5),half("E","a",5)]), n=5,st=5)
add("E before B in file, later ts ok", doc([*BASE,half("E","a",9),half("B","a",5)]), n=5,st=5)
add("B only x3", doc([*BASE]+[half("B","a",i) for i in range(3)]), n=6,st=6,rep=3)
add("E only x3", doc([*BASE]+[half("E","a",i) for i in range(3)]), n=6,st=3,skip=3)
add("B/E on diff threads", doc([*BASE,half("B","a",1),{**half("E","a",2),"tid":2}]), n=5,st=4,rep=1,skip=1)
add("B E with args on both", doc([*BASE,half("B","a",1,args={"x":1}),half("E","a",2,args={"y":2})]), n=5,st=5)
add("async b e n", doc([*BASE,half("b","a",1,id=1,cat="c"),half("n","m",2,id=1,cat="c"),half("e","a",3,id=1,cat="c")]), n=6,st=6)
add("async no cat", doc([*BASE,half("b","a",1,id=1),half("e","a",3,id=1)]), n=5,st=5)
add("async str/int id equal?", doc([*BASE,half("b","a",1,id="1",cat="c"),half("e","a",3,id=1,cat="c")]), n=5,st=5)
add("async hex id", doc([*BASE,half("b","a",1,id="0xff",cat="c"),half("e","a",3,id="0xff",cat="c")]), n=5,st=5)
add("async e name differs", doc([*BASE,half("b","a",1,id=1,cat="c"),half("e","z",3,id=1,cat="c")]), n=5,st=(3,5))
add("legacy S T p F", doc([*BASE,half("S","a",1,id=1,cat="c"),half("T","a",2,id=1,cat="c",args={"step":"x"}),half("F","a",3,id=1,cat="c")]), n=6,st=6)

# durations
add("negative dur kernel", doc([op(),call(),kernel(dur=-3)]), n=3,st=3,rep=1,dev=1,t=0)
add("dur 2^63", doc([op(),call(),kernel(dur=2**63)]), n=3,st=3,rep=1,dev=1,t=0)
add("dur uint64 wrap", doc([op(),call(),kernel(dur=18446744073709551615)]), n=3,st=3,rep=1,dev=1,t=0)
add("dur uint64 wrap small neg", doc([op(),call(),kernel(dur=18446744073709551.5)]), n=3,st=3,rep=1,dev=1,t=0)
add("dur -0.0", doc([op(),call(),kernel(dur=-0.0)]), n=3,st=3,rep=0,dev=1,t=0)
add("ts+dur overflow", doc([op(ts=9223372036854775),call(),kernel()]), n=3,dev=1,t=10000)
add("dur int32 wrap", doc([op(),call(),kernel(dur=-2147483648)]), n=3,st=3,rep=1,dev=1,t=0)
add("all negative ts", doc([op(ts=-100),call(ts=-90),kernel(ts=-50)]), n=3,st=3,dev=1,t=10000)

# zero timestamps
E0=1.7e15
add("kernel ts 0 abs others", doc([op(ts=E0),call(ts=E0+10),kernel(ts=0)]), n=3,st=2,skip=1,dev=0)
add("all ts 0", doc([op(ts=0),call(ts=0),kernel(ts=0)]), n=3,st=3,dev=1,t=10000)
add("string '0' ts", doc([op(ts=E0),call(ts=E0+10),kernel(ts="0")]), n=3,st=2,skip=1,dev=0)
add("ts small 1 among epoch", doc([op(ts=E0),call(ts=E0+10),kernel(ts=1)]), n=3,dev=(0,1))
add("user annotation ts 0 dur huge", doc([op(ts=E0),call(ts=E0+10),kernel(ts=E0+50),slice_("ann",0,E0+100,"user_annotation")]), n=4,dev=1,t=10000)

# ns/us confusion
N0=1_700_000_000_000_000_000
add("all in ns", doc([op(ts=N0,dur=50000),call(ts=N0+10000,dur=5000),kernel(ts=N0+50000,dur=10000)]), n=3,st=3,rep=3,dev=1,t=10000)
add("displayTimeUnit ns is still us", doc(BASE,displayTimeUnit="ns"), n=3,st=3,rep=0,dev=1,t=10000)
add("only kernels in ns", doc([op(ts=N0/1000,dur=50),call(ts=N0/1000+10),kernel(ts=N0+50000,dur=10000)]), n=3,st=3,rep=1,dev=1,t=10000)
add("ms epoch", doc([op(ts=1.7e12,dur=50),call(ts=1.7e12+1),kernel(ts=1.7e12+100)]), n=3,st=3,dev=1,t=10000)
add("baseTimeNanoseconds", doc([op(ts=100.5),call(),kernel()],baseTimeNanoseconds=N0), n=3,st=3,dev=1,t=10000)
add("baseTime string", doc(BASE,baseTimeNanoseconds=str(N0)), n=3,st=3,dev=1,t=10000)
add("baseTime negative", doc(BASE,baseTimeNanoseconds=-5), n=3,st=3,dev=1,t=10000)

# overlap
add("3 overlapping one stream", doc([op(),call(),kernel("a",200,10,1),kernel("b",205,10,1),kernel("c",206,2,1)]), n=5,st=5,dev=3,t=22000,busy=15000)
add("identical kernels", doc([op(),call(),kernel(),kernel()]), n=4,st=4,dev=2,t=20000,busy=10000)
add("overlap across streams", doc([op(),call(),kernel("a",200,10,1),kernel("b",205,10,1,stream=8)]), n=4,st=4,dev=2,t=20000,busy=15000)
add("two devices not united", doc([op(),call(),kernel("a",200,10,1),kernel("b",205,10,1,device=1)]), n=4,st=4,dev=2,t=20000,busy=20000)
add("annotation not device time", doc([*BASE,kernel("ann",190,100,2,cat="gpu_user_annotation")]), n=4,st=4,dev=1,t=10000,busy=10000)
add("sync not device time", doc([*BASE,kernel("Stream Wait Event",190,100,2,cat="cuda_sync")]), n=4,st=4,dev=1,t=10000)

# correlation 0, graphs, overhead
add("corr 0", doc([op(),call(correlation=0),kernel(correlation=0)]), n=3,st=3,dev=1,t=10000)
add("corr -1", doc([op(),call(correlation=-1),kernel(correlation=-1)]), n=3,st=3,dev=1,t=10000)
g=[op("aten::graph",100,5000),call(110,5,"cudaGraphLaunch",50)]+[kernel(f"k{i%7}",300+i,0.5,5) for i in range(3000)]
add("graph 3000 kernels", doc(g), n=3002,st=3002,dev=3000,t=1500000,op="aten::graph",nokinds={"shared_correlation"})
add("hipGraphLaunch", doc([op("aten::graph",100,5000),call(110,5,"hipGraphLaunch",50)]+[kernel(f"k{i}",300+i,0.5,5) for i in range(5)]), n=7,dev=5,op="aten::graph",nokinds={"shared_correlation"})
add("graph kernels with node id", doc([op("aten::graph",100,5000),call(110,5,"cudaGraphLaunch",50)]+[kernel(f"k{i}",300+i,0.5,5,**{"graph node id":i,"graph id":3}) for i in range(5)]), n=7,dev=5,op="aten::graph")
add("cuGraphLaunch driver", doc([op("aten::graph",100,5000),call(110,5,"cuGraphLaunch",50,cat="cuda_driver")]+[kernel(f"k{i}",300+i,0.5,5) for i in range(5)]), n=7,dev=5,op="aten::graph",nokinds={"shared_correlation"})
add("overhead rows", doc([*BASE,slice_("CUPTI Overhead",120,30,"overhead",pid=-1,tid=0),slice_("Buffer Flush",130,30,"overhead",pid=-1,tid=0),slice_("Instrumentation",130,30,"Overhead",pid="overhead",tid=0)]), n=6,st=6,dev=1,t=10000)
add("overhead with device", doc([*BASE,slice_("Command Buffer Full",120,30,"overhead",pid=0,tid=7,device=0,stream=7)]), n=4,st=4,dev=1,t=10000)

# as reported in the issue trackers of kineto, perfetto, HolisticTraceAnalysis, TraceLens, and next to these
add("nperf leading comma","["+",".join(["", *TEXTS])+"]",n=3,st=3,dev=1)
add("bare N/A", raw(TEXTS[0],TEXTS[1],json.dumps(kernel(bw="@")).replace('"@"',"N/A")), n=3,st=3,rep=1,dev=1,t=10000)
add("quotes in metadata name", raw(*TEXTS,'{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"thread "with" quotes"}}'), n=4,st=4,rep=1,dev=1)
add("TPU custom call quotes", raw(*TEXTS).replace("gemm",'custom_call_target="tpu_custom_call"'), n=3,st=3,rep=1,dev=1,t=10000)
add("scala class /\\", '[{"cat":"typecheck","name":"class /\\","ph":"B","pid":"22181-00129","tid":"00129","ts":2132512955500},{"cat":"typecheck","name":"class /\\","ph":"E","pid":"22181-00129","tid":"00129","ts":2132512955562}]', n=2,st=2,rep=2)
add("AMD no args", doc([op(),{"ph":"X","cat":"kernel","name":"k","pid":2,"tid":3,"ts":200,"dur":10,"args":{"External id":1}}]),n=2,st=2,dev=1,t=10000,op="aten::mm")
add("half of kernels at ts 0", doc([op(ts=4.2e12+i*100,external=i+1) for i in range(20)]+[call(ts=4.2e12+i*100+1,correlation=i+1) for i in range(20)]+[kernel(ts=4.2e12+i*100+50,correlation=i+1) for i in range(10)]+[kernel(ts=0,dur=0,correlation=i+1) for i in range(10,20)],baseTimeNanoseconds=1719665544000000000),n=60,st=50,skip=10,dev=10,t=100000)
add("236 years", doc([op(),call(),kernel(dur=236*365*86400*1e6)]),n=3,st=3,rep=1,dev=1,t=0)
add("8 days kernel alone", doc([op(),call(),kernel(dur=8*86400*1e6)]),n=3,st=3,dev=1)
add("rocm overflowing durations", doc([op(),call()]+[kernel(f"k{i}",200+i*10,5,1) for i in range(10)]+[kernel("fmha",245,1.6e6,1)]),n=13,st=13,dev=11)
add("0x01 in name (perfetto 598)", data(raw(*TEXTS)).replace(b"aten::mm",b"\x01|||S(1): <module>"),n=3,st=3,rep=1,dev=1)
add("metadata only", doc([{"ph":"M","name":"process_name","pid":1,"args":{"name":"x"}}]),fail=True)
add("perfetto UI json w/ truncated", FULL[:-1],n=3,st=3,dev=1)
add("str 'ts':'NaN'", doc([op(),call(),{**kernel(),"ts":"NaN"}]),n=3,st=2,skip=1,dev=0)
add("ts list", doc([op(),call(),{**kernel(),"ts":[200]}]),n=3,st=2,skip=1)
add("ts bool", doc([op(),call(),{**kernel(),"ts":True}]),n=3,st=(2,3))
add("name number", doc([op(),call(),{**kernel(),"name":42}]),n=3,st=3,dev=1,names=["42"])
add("name null", doc([op(),call(),{**kernel(),"name":None}]),n=3,st=3,dev=1)
add("name object", doc([op(),call(),{**kernel(),"name":{"a":1}}]),n=3,st=3,dev=1)
add("cat list", doc([op(),call(),{**kernel(),"cat":["kernel"]}]),n=3,st=3)
add("cat comma list", doc([op(),call(),{**kernel(),"cat":"kernel,gpu"}]),n=3,st=3)
add("pid object", doc([op(),call(),{**kernel(),"pid":{"a":1}}]),n=3,st=3,dev=1)
add("tid list", doc([op(),call(),{**kernel(),"tid":[7]}]),n=3,st=3,dev=1)
add("events as dict rows under data key", json.dumps({"schemaVersion":1,"traceEvents":BASE,"extra":[{"traceEvents":[1]}]}),n=3,st=3,dev=1)
add("traceEvents last, big header", json.dumps({"a":["x"*1000]*3000,"traceEvents":BASE}),n=3,st=3,dev=1)
add("header after with own arrays of events", json.dumps({"traceEvents":BASE,"stackFrames":{"1":{"name":"f"}},"samples":[{"ts":1}]}),n=3,st=3,dev=1)
add("sf stack frames kept", json.dumps({"traceEvents":[{**op(),"sf":1},call(),kernel()],"stackFrames":{"1":{"name":"f"}}}),n=3,st=3,dev=1)
add("X with tts/tdur", doc([{**op(),"tts":5,"tdur":3},call(),kernel()]),n=3,st=3,dev=1)
add("X without dur (end)", doc([op(),call(),{k:x for k,x in kernel().items() if k!="dur"}]),n=3,st=3,rep=1,dev=1,t=0)
add("X with end instead of dur", doc([op(),call(),{**{k:x for k,x in kernel().items() if k!="dur"},"end":210}]),n=3,st=3,dev=1)
add("duplicated whole trace in array", json.dumps(BASE+BASE),n=6,st=6,dev=2,t=20000,busy=10000)
add("multi devices 8", doc([op()]+[call(110+i,i+1) for i in range(8)]+[kernel(ts=200,dur=10,correlation=i+1,device=i) for i in range(8)]),n=17,dev=8,t=80000,busy=80000)
add("CJK + emoji", doc([op("算子🦀"),call(),kernel("核🧪")]),n=3,st=3,rep=0,dev=1,names=["算子🦀","核🧪"])
add("escaped unicode", raw(*TEXTS).replace("gemm","\\u7b97\\ud83e\\udd80"),n=3,st=3,rep=0,dev=1,names=["算🦀"])
add("escaped slash", raw(*TEXTS).replace("gemm","a\\/b"),n=3,st=3,rep=0,dev=1,names=["a/b"])
add("empty name", doc([op(""),call(),kernel("")]),n=3,st=3,dev=1)
add("very many names", doc([op(f"n{i}",i,1,i) for i in range(20000)]),n=20000,st=20000)
add("million-deep string of braces in name", doc([op("{"*100000),call(),kernel()]),n=3,st=3,dev=1)
add("bracket in string before events", json.dumps({"x":"[{\"ph\"","traceEvents":BASE}),n=3,st=3,dev=1)
add("kernel named ]}", doc([op(),call(),kernel("]},{\"ph\":")]),n=3,st=3,dev=1,names=["]},{\"ph\":"])
add("CR only line ends", FULL.replace("\n","\r"),n=3,st=3,dev=1)
add("NBSP between", FULL.replace(",\n",",\u00a0\n"),n=3,st=3,dev=1)
add("form feed between", FULL.replace(",\n",",\f\n"),n=3,st=3,dev=1)
add("trailing garbage text", FULL+"\nDone writing trace.\n",n=3,st=3,dev=1,kinds={"trailing_bytes"})
add("leading log text", "INFO: trace follows\n"+FULL,fail=None)
add("truncated after baseTime", '{"baseTimeNanoseconds": 17',fail=True)
add("counter with several series", doc([*BASE,{"ph":"C","name":"mem","pid":1,"ts":5,"args":{"a":1,"b":2}}]),n=4,st=4)
add("two profilers' spans", doc([*BASE,slice_("PyTorch Profiler (0)",1,500,"Trace",pid="Spans",tid="x"),slice_("PyTorch Profiler (1)",600,500,"Trace",pid="Spans",tid="x")]),n=5,st=5,dev=1,procs=1)
add("ProfilerStep non numeric", doc([*BASE,slice_("ProfilerStep#last",90,300,"user_annotation")]),n=4,st=4)
add("ProfilerStep* legacy", doc([*BASE,slice_("ProfilerStep*",90,300,"user_annotation")]),n=4,st=4)
add("steps overlapping two threads", doc([*BASE,slice_("ProfilerStep#1",90,300,"user_annotation"),slice_("ProfilerStep#1",95,300,"user_annotation",tid=2)]),n=5,st=5)
