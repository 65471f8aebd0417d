"""`neuronscope library`: the processed profiles: list, tag, rename, delete."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from neuronscope.cli.options import DataPath, Json
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.store import Going

__all__ = ["library"]

library = typer.Typer(help="List, tag, rename and delete processed profiles.", no_args_is_help=True)
Which = Annotated[str, typer.Argument(metavar="PROFILE", help="Its id, or its name where only one has it.")]


@library.command("list")
def list_(
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only those with this tag.")] = None,
    recent: Annotated[bool, typer.Option("--recent", help="Last opened first instead of oldest first.")] = False,
    as_json: Json = False,
    data_path: DataPath = None,
) -> None:
    """List the library's profiles: id, name, when last opened (UTC), tags, source."""
    from neuronscope.readers.wording import iso_time, printable
    from neuronscope.store import Store

    store = Store(data_path)
    listed = [(profile, store.notes(profile)) for profile in store.list()]
    listed = [(profile, notes) for profile, notes in listed if tag is None or tag in notes.tags]
    if recent:
        listed.sort(key=lambda both: -both[1].opened_ns)
    if as_json:
        rows = [
            {
                "id": profile.id,
                "name": profile.name,
                "tags": list(notes.tags),
                "created_ns": profile.created_ns,
                "opened_ns": notes.opened_ns or None,
                "format": profile.result.format,
                "stored": profile.result.stored,
                "source": printable(profile.source),
            }
            for profile, notes in listed
        ]
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    for profile, notes in listed:
        opened = iso_time(notes.opened_ns)[:16].replace("T", " ") if notes.opened_ns else "never opened"
        tags = "".join(f"  #{tag}" for tag in notes.tags)
        typer.echo(f"{profile.id}  {profile.name}  {opened}{tags}  {printable(profile.source)}")
    if not listed:
        typer.echo(f"no profile{' with this tag' if tag else ''} in {store.root}")


@library.command("tag")
def tag_(
    profile: Which,
    add: Annotated[list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="A tag to take off.")
    ] = None,
    data_path: DataPath = None,
) -> None:
    """Add tags to a profile, take them off, and print those it has."""
    from neuronscope.store import Store

    store = Store(data_path)
    notes = store.tag(store.find(profile), add or (), remove or ())
    typer.echo(" ".join(f"#{tag}" for tag in notes.tags) or "no tags")


@library.command("rename")
def rename(
    profile: Which,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    data_path: DataPath = None,
) -> None:
    """Give a profile another name."""
    from neuronscope.store import Store

    store = Store(data_path)
    typer.echo(f"{profile}: now {store.rename(store.find(profile), name).name}")


@library.command("delete")
def delete(
    profiles: Annotated[list[str], typer.Argument(metavar="PROFILE...", help="Ids, or names that only one has.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    data_path: DataPath = None,
) -> None:
    """Delete processed profiles and what was uploaded for them, after saying what goes; originals elsewhere stay."""
    from neuronscope.readers.wording import printable
    from neuronscope.store import Store

    store = Store(data_path)
    for profile in [store.find(text) for text in profiles]:
        goes = store.what_goes(profile)
        kept = "" if any(profile.source.is_relative_to(one.path) for one in goes[1:]) else printable(profile.source)
        _say(profile.id, goes, kept)
        if not yes:
            _ask()
        store.delete(profile.id)
        typer.echo(f"deleted {profile.id}")


def _say(identity: str, goes: list[Going], kept: str) -> None:
    typer.echo(f"{identity}: this goes, with its tags:")
    for one in goes:
        typer.echo(f"  {one.path}  ({one.size_bytes:,} bytes)")
    if kept:
        typer.echo(f"  the original stays: {kept}")


def _ask() -> None:
    if not sys.stdin.isatty():
        raise NeuronscopeError("nothing deleted: --yes deletes without asking")
    typer.confirm("Delete it?", abort=True)
