
neuronscope
trace_info"ê
neuronscope-emulatorgolden"golden*trn220123456789abcdef:i-emulated00c0ffee@™ HPZDEVICEZRUNTIMEZCPU_UTILZHOST_MEMORY`Û‡±üÅğÖëh»¢îıÅğÖë‚measuredŠ
execution_gap_nsìYŠ
launch_cost_nsè¿Š
launch_latency_nsà]