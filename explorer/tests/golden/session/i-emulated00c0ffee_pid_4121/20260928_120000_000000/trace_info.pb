
neuronscope
trace_info"·
neuronscope-emulatorgolden"golden*trn220123456789abcdef:i-emulated00c0ffee@™ HPZDEVICEZRUNTIMEZCPU_UTILZHOST_MEMORY`Û‡±üÅğÖëh»¢îıÅğÖë‚measuredŠ
execution_gapìYŠ
launch_costè¿Š
launch_latencyà]’
execution_gapmeasured’
launch_cost
calibrated’
launch_latency	estimated