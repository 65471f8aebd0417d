"""The emulator's commands, run through the `neuronscope` command line in this process."""

import io
import json
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from neuroncore.cli._graph_text import parse_graph
from neuroncore.graph import Value
from neuroncore.isa import from_float32, parse_program, to_float32
from neuroncore.runtime import compile_graph
from neuronscope.cli.app import run
from neuronscope.formats import container, neff, tables

MUL = "aten.mul.Tensor bf16[4,512] bf16[4,512]"
MM = "aten.mm bf16[256,512] bf16[512,256] -> bf16[256,256]"


@pytest.fixture
def neuronscope(capsys):
    """Runs a command: (exit code, standard output, standard error)."""

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def executables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("neffs")
    made = {}
    for name, text in (("mul", MUL), ("mm", MM)):
        made[name] = compile_graph(parse_graph(text), "trn2")
        (folder / f"{name}.neff").write_bytes(made[name].neff)
    return folder, made


def test_graph_text():
    graph = parse_graph("x = bf16[4,512]; y = aten.mul.Tensor x 2.0; aten.mean.dim y [-1] true dtype=fp32 -> fp32[4,1]")
    assert [one.shape for one in graph.inputs] == [(4, 512)]
    assert graph.nodes[0].args == (Value(-1, 0), 2.0) and graph.nodes[0].outputs[0].strides == (512, 1)
    assert graph.nodes[1].args == (Value(0, 0), (-1,), True) and graph.nodes[1].kwargs == (("dtype", "fp32"),)
    assert graph.outputs == (Value(1, 0),)
    listed = parse_graph("a = bf16[2,3]; b = bf16[2,3]; aten.cat.default [a,b] 0 -> bf16[4,3]")
    assert listed.nodes[0].args == ((Value(-1, 0), Value(-1, 1)), 0)


def test_ir_prints_each_form(neuronscope):
    code, passes, _ = neuronscope("ir", MUL, "--list")
    assert code == 0 and passes.split()[0] == "decompose" and passes.split()[-1] == "synchronize"
    for name in passes.split():
        code, text, error = neuronscope("ir", MUL, "--after", name)
        assert (code, error) == (0, "") and text.strip()
    assert "%2[4,512] = multiply(%0[4,512], %1[4,512])" in neuronscope("ir", MUL, "--after", "fuse")[1]


def test_ir_of_a_neff_parses_back(neuronscope, executables):
    folder, made = executables
    code, text, _ = neuronscope("ir", folder / "mul.neff")
    assert code == 0 and ';op "aten.mul.Tensor"' in text
    assert parse_program(text) == made["mul"].program


def test_inspect_a_neff(neuronscope, executables):
    folder, made = executables
    facts = json.loads(neuronscope("inspect", folder / "mm.neff", "--json")[1])
    assert (facts["hash"], facts["program_ns"]) == (made["mm"].hash, made["mm"].program_ns)
    assert facts["flops"] == 2 * 256 * 512 * 256
    assert [tensor["name"] for tensor in facts["tensors"]] == ["in0", "in1", "out0"]
    assert sum(engine["instructions"] for engine in facts["engines"].values()) == made["mm"].instructions.num_rows
    assert facts["roofline_ns"] <= facts["program_ns"]
    code, text, _ = neuronscope("inspect", folder / "mm.neff")
    assert code == 0 and "nc_matmul" in text and "aten.mm.default" in text


def test_inspect_shows_a_vendors_neff_without_executing_it(neuronscope, tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        text = json.dumps({"name": "their model"}).encode()
        entry = tarfile.TarInfo("info.json")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    path = tmp_path / "file.neff"
    path.write_bytes(b"\x01" * 1024 + data.getvalue())
    code, text, _ = neuronscope("inspect", path)
    assert code == 0 and "their model" in text and "not executed" in text
    code, _, error = neuronscope("capture", "-n", path, "-s", tmp_path / "out.ntff")
    assert code == 2 and "not a NEFF of this emulator" in error


def test_capture_computes_times_and_writes(neuronscope, executables, tmp_path):
    folder, made = executables
    generator = np.random.default_rng(1)
    left, right = (generator.standard_normal((4, 512)).astype(np.float32) for _ in range(2))
    np.save(tmp_path / "a.npy", left)
    np.save(tmp_path / "b.npy", right)
    ntff, results = tmp_path / "out.ntff", tmp_path / "results"
    code, text, error = neuronscope(
        "capture", "-n", folder / "mul.neff", "-s", ntff, "in0", tmp_path / "a.npy", "in1", tmp_path / "b.npy",
        "--num-exec", "3", "--save-output-npy", results,
    )  # fmt: skip
    assert (code, error) == (0, "") and "3 × 4.00 us" in text
    product = np.load(results / "out0.npy").reshape(4, 512)

    def rounded(value):
        return to_float32(from_float32(value, "bf16"), "bf16")

    assert np.array_equal(product, rounded(rounded(left) * rounded(right)))
    profile = container.read(ntff)
    programs = profile.tables["programs"].to_pylist()
    assert [(row["neff"], row["duration_ns"]) for row in programs] == [(made["mul"].hash, made["mul"].program_ns)]
    starts = profile.tables["program_executions"]["start_ns"].to_pylist()
    assert len(starts) == 3 and starts[1] - starts[0] == starts[2] - starts[1] > made["mul"].program_ns
    ours = profile.tables["instructions"].drop_columns(["source", "op"])
    compiled = made["mul"].instructions.select(ours.column_names).cast(ours.schema)
    assert ours.to_pylist() == compiled.to_pylist()
    assert profile.tables["instructions"].schema.equals(tables.INSTRUCTIONS.schema)
    facts = json.loads(neuronscope("inspect", ntff, "--json")[1])
    assert facts["programs"][0]["executions"] == 3
    assert facts["programs"][0]["dma"]["bytes"] == 3 * 4096
    assert "3 × 4.00 us" in neuronscope("inspect", ntff)[1]


def test_inputs_that_are_not_given_are_zeros(neuronscope, executables, tmp_path):
    folder, _ = executables
    assert (
        neuronscope("capture", "-n", folder / "mul.neff", "-s", tmp_path / "o", "--save-output-npy", tmp_path)[0] == 0
    )
    assert not np.load(tmp_path / "out0.npy").any()


def test_what_if_changes_what_it_says(neuronscope, executables, tmp_path):
    folder, made = executables
    same = json.loads(neuronscope("what-if", folder / "mm.neff", "--target", "trn2", "--json")[1])
    assert same["rows"][0]["before_ns"] == same["rows"][0]["after_ns"] == made["mm"].program_ns
    slow = json.loads(neuronscope("what-if", folder / "mm.neff", "--set", "tensor_clock_hz=x0.5", "--json")[1])
    fast = json.loads(neuronscope("what-if", folder / "mm.neff", "--set", "dma_start_ns=0", "--json")[1])
    assert fast["rows"][0]["after_ns"] < made["mm"].program_ns < slow["rows"][0]["after_ns"]
    code, text, _ = neuronscope("what-if", folder, "--target", "trn3")
    assert code == 0 and "trn3 has no kernel-level publication" in text and "total" in text
    assert "hbm_bytes_per_second = " in neuronscope("what-if", folder, "--list")[1]


def test_what_if_weighs_by_executions_of_a_session(neuronscope, executables, tmp_path):
    _, made = executables
    (tmp_path / "mul.neff").write_bytes(made["mul"].neff)
    (tmp_path / "mm.neff").write_bytes(made["mm"].neff)
    assert neuronscope("capture", "-n", tmp_path / "mul.neff", "-s", tmp_path / "x.ntff")[0] == 0
    session = container.read(tmp_path / "x.ntff").session
    row = {c.name: "" if c.type == "string" else 0 for c in tables.EXECUTIONS.columns}
    rows = [row | {"execution_id": n, "neff": made["mul"].hash} for n in range(5)]
    columns = {c.name: [one[c.name] for one in rows] for c in tables.EXECUTIONS.columns}
    container.write(tmp_path / "ntrace.pb", "ntrace", session, {"executions": columns})
    answer = json.loads(neuronscope("what-if", tmp_path, "--set", "launch_cost_profiled_ns=0", "--json")[1])
    assert {row["neff"]: row["executions"] for row in answer["rows"]} == {made["mul"].hash: 5, made["mm"].hash: 0}
    assert answer["total"]["before_ns"] == answer["total"]["after_ns"] == 5 * made["mul"].program_ns
    assert answer["total"]["launch_delta_ns"] < 0 and answer["total"]["launch_delta_ns"] % 5 == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ir", MUL, "--after", "nothing"], "passes in order: decompose"),
        (["ir", "missing.neff"], "no such file"),
        (["ir", "mul bf16[4]"], "'mul' is no op"),
        (["ir", "aten.mul.Tensor bf16[4] x"], "'x' is neither a tensor"),
        (["ir", "aten.mul.Tensor bf16[4] bf16[3]"], "do not broadcast"),
        (["ir", "aten.relu.default float8[4]"], "'float8[4]' is no tensor"),
        (["ir", "aten.zeros.default [4]"], "say what it gives"),
        (["ir", MUL, "--target", "trn9"], "unknown target 'trn9'"),
        (["ir", "{folder}/mul.neff", "--after", "fuse"], "finished program"),
        (["ir", "aten.mul.Tensor bf16[400000,400000] bf16[400000,400000]"], "of HBM"),
        (["inspect", "{folder}/nothing"], "No such file"),
        (["inspect", "{folder}/notes.txt"], "not a Neuronscope profile file"),
        (["capture", "-n", "{folder}/mul.neff", "-s", "{folder}/o", "in0"], "left over"),
        (
            ["capture", "-n", "{folder}/mul.neff", "-s", "{folder}/o", "in7", "x.npy"],
            "no input 'in7'; inputs: in0, in1",
        ),
        (["capture", "-n", "{folder}/mul.neff", "-s", "{folder}/o", "in0", "{folder}/small.npy"], "has 2,048"),
        (["capture", "-n", "{folder}/mul.neff", "-s", "{folder}/o", "in0", "{folder}/notes.txt"], "not a .npy file"),
        (["capture", "-n", "{folder}/broken.neff", "-s", "{folder}/o"], "damaged or truncated"),
        (["capture", "-n", "{folder}/sort.neff", "-s", "{folder}/o"], "is an estimate"),
        (["what-if", "{folder}/mul.neff"], "nothing to change"),
        (["what-if", "{folder}/mul.neff", "--set", "clock=3"], "has no number 'clock'"),
        (["what-if", "{folder}/mul.neff", "--set", "dma_engines"], "KEY=VALUE"),
        (["what-if", "{folder}/mul.neff", "--set", "dma_engines=0"], "more than zero"),
        (["what-if", "{folder}/mul.neff", "--set", "dma_engines=many"], "is no number"),
        (["what-if", "{folder}/empty", "--target", "trn3"], "no *.neff"),
        (["what-if", "{folder}/odd.neff", "--target", "trn3"], "odd.neff: holds no readable program"),
    ],
)
def test_mistakes_are_one_line(neuronscope, executables, arguments, says):
    folder, made = executables
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "notes.txt").write_text("hello")
    (folder / "broken.neff").write_bytes(made["mul"].neff[:-7])
    (folder / "sort.neff").write_bytes(compile_graph(parse_graph("aten._unknown.default fp32[8]"), "trn2").neff)
    info = {"name": "odd", "target": "trn2"}
    (folder / "odd.neff").write_bytes(neff.pack(info, "# no program\n", []))
    np.save(folder / "small.npy", np.zeros(3, np.float32))
    code, _, error = neuronscope(*(text.format(folder=folder) if "{folder}" in text else text for text in arguments))
    assert code == 2 and says in error and error.startswith("neuronscope: ") and error.count("\n") == 1
    for name in ("broken.neff", "sort.neff", "odd.neff"):
        (folder / name).unlink()


def test_the_commands_need_no_torch():
    code = "import sys; from neuronscope.cli.app import run; run(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "ir", MUL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_capture_says_what_is_wrong_with_inputs(neuronscope, executables, tmp_path):
    folder, _ = executables
    np.save(tmp_path / "turned.npy", np.ones((512, 4), np.float32))
    np.savez(tmp_path / "two.npz", a=np.ones(3))
    (tmp_path / "text.npy").write_text("hello")
    base = ("capture", "-n", folder / "mul.neff", "-s", tmp_path / "o.ntff")
    code, text, _ = neuronscope(*base, "in0", tmp_path / "turned.npy")
    assert code == 0 and "is [512, 4], in0 was compiled as [4, 512]: its elements are taken in order" in text
    for given, said in (
        (("in0", tmp_path / "turned.npy", "in0", tmp_path / "turned.npy"), "given twice"),
        (("in0", tmp_path / "two.npz"), "not a .npy file of numbers"),
        (("in0", tmp_path / "text.npy"), "not a .npy file of numbers"),
        (("--save-output-npy", tmp_path / "text.npy"), "name a folder"),
    ):
        code, _, error = neuronscope(*base, *given)
        assert code == 2 and said in error and len(error.splitlines()) == 1


def test_capture_names_the_op_whose_index_is_too_large(neuronscope, tmp_path):
    made = compile_graph(parse_graph("aten.embedding fp32[20,16] int64[5] -> fp32[5,16]"), "trn2")
    (tmp_path / "e.neff").write_bytes(made.neff)
    np.save(tmp_path / "index.npy", np.array([1, 2, 3, 4, 99]))
    code, _, error = neuronscope(
        "capture", "-n", tmp_path / "e.neff", "-s", tmp_path / "o.ntff", "in1", tmp_path / "index.npy"
    )
    assert code == 2 and "aten.embedding.default" in error and "index 1..99, in0 has rows 0..19" in error


def test_a_product_of_sizes_that_do_not_fit_is_refused(neuronscope):
    code, _, error = neuronscope("ir", "aten.mm bf16[256,512] bf16[511,256] -> bf16[256,256]")
    assert code == 2 and "[256, 512] times [511, 256]" in error


def test_a_damaged_loop_count_is_refused_before_anything_runs(neuronscope, tmp_path):
    made = compile_graph(parse_graph("aten.exp fp32[8192,4096]"), "trn2")
    members = dict(neff.unpack(made.neff).members)
    text = members["program.txt"].decode()
    count = text.split("loop i1 ", 1)[1].split(" ", 1)[0]
    for wrong, said in (("99999999999", "instructions, the commands take up to"), ("5" * 30, "no readable program")):
        damaged = neff.pack(json.loads(members["info.json"]), text.replace(f"loop i1 {count}", f"loop i1 {wrong}"), [])
        (tmp_path / "d.neff").write_bytes(damaged)
        for command in (("inspect",), ("what-if", "--target", "trn1")):
            code, _, error = neuronscope(command[0], tmp_path / "d.neff", *command[1:])
            assert code == 2 and said in error and len(error.splitlines()) == 1


def test_what_if_takes_no_share_beyond_one(neuronscope, executables):
    folder, _ = executables
    code, _, error = neuronscope("what-if", folder / "mm.neff", "--set", "tensor_warmup_rate=5")
    assert code == 2 and "at most 1" in error


def test_ir_of_an_op_with_several_results(neuronscope):
    text = "aten.native_layer_norm.default bf16[256,1024] [1024] bf16[1024] bf16[1024] 1e-5"
    results = "-> bf16[256,1024] fp32[256,1] fp32[256,1]"
    code, printed, _ = neuronscope("ir", f"{text} {results}", "--after", "fuse")
    assert code == 0 and "reduce_variance" in printed and "output out2: fp32[256]" in printed
    code, _, error = neuronscope("ir", text)
    assert code != 0 and "the graph gives 1 results, the op has more" in error


def test_ir_lists_passes_without_an_op(neuronscope):
    code, printed, _ = neuronscope("ir", "--list")
    assert code == 0 and printed.split()[:2] == ["decompose", "split_parts"]
    code, _, error = neuronscope("ir")
    assert code != 0 and "give a NEFF or ops as text" in error
