"""Serve the tests' built profiles, to work on the page without one: python explorer/tests/serve_fixture.py [PORT]."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from neuronscope.analysis import Profile
from neuronscope.server.run import bind, serve, url

from conftest import RMSNORM, Work, build

warm_up = [Work(work.op, step=step) for step in (1, 2) for work in RMSNORM]
profiles = [
    Profile("naive", build([*warm_up, *RMSNORM])),
    Profile("fused", build([Work("aten::_fused_rms_norm", program=18_000)])),
    Profile("compiled", build([Work("Torch-Compiled Region: 0/0", program=2_600)])),
]
server = bind("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 3001)
print(url(server), flush=True)
serve(profiles, server)
