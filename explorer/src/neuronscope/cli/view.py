"""`neuronscope view`: read profiles, say what is in them, show them in the browser or write them out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuronscope.cli.export import OutputFile, OutputFormat, PrimaryGroup, SecondaryGroup
from neuronscope.cli.options import (
    DataPath,
    FrameworkSources,
    Host,
    Names,
    NkiSources,
    Port,
    ReadOnly,
    UploadLimit,
)
from neuronscope.cli.vendor import ApiPort, Force, MemoryTracker, PerfettoFlows, Terminology, without_buffers
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.grouping import Grouping
    from neuronscope.analysis.profile import Profile

__all__ = ["view"]


def view(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH...]", help="Trace files or session folders; NAME=PATH names one."),
    ] = None,
    session_dir: Annotated[
        list[str] | None, typer.Option("--session-dir", "-d", metavar="DIR", help="A session folder, like PATH.")
    ] = None,
    neff: Annotated[
        Path | None, typer.Option("--neff", "-n", metavar="FILE", help="The executable of --session-file.")
    ] = None,
    session_file: Annotated[
        Path | None, typer.Option("--session-file", "-s", metavar="FILE", help="One device profile (NTFF).")
    ] = None,
    name: Names = None,
    display_name: Annotated[
        str | None, typer.Option("--display-name", metavar="NAME", help="Name of the one profile; as --name.")
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 3001,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in this machine's browser.")] = False,
    no_serve: Annotated[
        bool, typer.Option("--no-serve", "--ingest-only", help="Read and print, start no server.")
    ] = False,
    form: Annotated[
        OutputFormat | None,
        typer.Option("--output-format", help="Write the profile in this format instead of showing it."),
    ] = None,
    output_file: OutputFile = None,
    ignore_device_profile: Annotated[
        bool, typer.Option("--ignore-device-profile", help="Leave out instructions, DMA and on-chip memory.")
    ] = False,
    ignore_system_profile: Annotated[
        bool, typer.Option("--ignore-system-profile", help="Leave out the host's rows; executions stay.")
    ] = False,
    cores: Annotated[
        str | None,
        typer.Option("--system-trace-filter-neuron-core", metavar="0,1,…", help="Only these logical NeuronCores."),
    ] = None,
    event_types: Annotated[
        str | None,
        typer.Option(
            "--system-trace-filter-event-type",
            metavar="A,B,…",
            help="Only these runtime and hardware events: names, hardware, software, ^name for all but one.",
        ),
    ] = None,
    instances: Annotated[
        str | None,
        typer.Option("--system-trace-filter-instance-id", metavar="A,B,…", help="Only these instances."),
    ] = None,
    primary_group: PrimaryGroup = None,
    secondary_group: SecondaryGroup = None,
    data_path: DataPath = None,
    read_only: ReadOnly = False,
    upload_limit: UploadLimit = 64,
    framework_sources: FrameworkSources = None,
    nki_sources: NkiSources = None,
    feature: Annotated[
        list[str] | None,
        typer.Option("-F", metavar="ignore-nc-buf-usage=true", help="Leave out SBUF and PSUM usage over time."),
    ] = None,
    _force: Force = False,
    _memory_tracker: MemoryTracker = False,
    _perfetto_flows: PerfettoFlows = False,
    _terminology: Terminology = None,
    _api_port: ApiPort = None,
) -> None:
    """Read profiles, print what was found and their largest facts, and serve the page until Ctrl-C."""
    from neuronscope.analysis.filter import filtered
    from neuronscope.analysis.grouping import grouping_of
    from neuronscope.cli.opening import open_profiles
    from neuronscope.server.sources import Sources

    sources = Sources(framework_sources, nki_sources)
    arguments = [*(paths or []), *(session_dir or [])]
    if session_file is not None:
        arguments.append(_device_profile(session_file, neff))
    elif neff is not None:
        raise NeuronscopeError("--neff names the executable of a device profile: give it with --session-file FILE.ntff")
    if not arguments:
        raise NeuronscopeError("nothing to view: give a PATH, --session-dir DIR, or --neff FILE --session-file FILE")
    if display_name is not None and len(arguments) > 1:
        raise NeuronscopeError(f"--display-name names one profile, {len(arguments)} are given; use --name A,B,…")
    left_out = without_buffers(feature)
    profiles = [
        filtered(
            profile,
            cores=_numbers(cores),
            event_types=_parts(event_types),
            instances=_parts(instances),
            system=not ignore_system_profile,
            device=not ignore_device_profile,
            buffers=not left_out,
        )
        for profile in open_profiles(arguments, name, data_path, display_name)
    ]
    grouping = grouping_of(primary_group, secondary_group)
    if form is not None:
        _write_out(profiles, form, output_file, grouping)
        return
    if grouping is not None:
        raise NeuronscopeError("--system-trace-primary-group and -secondary-group need --output-format perfetto")
    if output_file is not None:
        raise NeuronscopeError("--output-file needs --output-format")
    _print(profiles)
    if not no_serve:
        from neuronscope.cli.serve import Library, serve_profiles

        library = None if read_only else Library(data_path, upload_limit)
        serve_profiles(profiles, host, port, open_browser, library, sources)


def _print(profiles: list[Profile]) -> None:
    from neuronscope.cli.printing import found_lines

    for profile in profiles:
        for line in found_lines(profile):
            typer.echo(line)
        typer.echo("")


def _write_out(profiles: list[Profile], form: OutputFormat, target: Path | None, grouping: Grouping | None) -> None:
    from neuronscope.cli.export import write_out

    if len(profiles) > 1:
        raise NeuronscopeError(f"--output-format writes one profile, {len(profiles)} are given")
    write_out(profiles[0], form, target, grouping)


def _device_profile(session_file: Path, neff: Path | None) -> str:
    """The NTFF's path, once it is known that the NEFF is one of its executables."""
    if neff is not None:
        from neuronscope.formats import container
        from neuronscope.formats import neff as neff_format

        digest = neff_format.read(neff).hash
        profile = container.read(session_file)
        if profile.kind != "ntff":
            raise NeuronscopeError(f"{session_file}: a {profile.kind} file, not a device profile (NTFF)")
        held = sorted(set(profile.tables["programs"]["neff"].to_pylist()))
        if digest not in held:
            listed = ", ".join(held) or "none"
            raise NeuronscopeError(f"{session_file}: holds no profile of {neff} (hash {digest}); it has: {listed}")
    return str(session_file)


def _parts(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str | None) -> list[int] | None:
    """`0,2-4` as numbers.

    Raises:
        NeuronscopeError: something else.
    """
    found: list[int] = []
    for part in _parts(text) or []:
        first, _, last = part.partition("-")
        try:
            found += range(int(first), int(last or first) + 1)
        except ValueError:
            raise NeuronscopeError(
                f"--system-trace-filter-neuron-core {text}: give numbers and ranges, as in 0,2-4"
            ) from None
    return None if text is None else found
