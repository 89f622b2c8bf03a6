"""``seamark demo``: kill a writer, flip a bit, send in a second writer, and lose nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console

KILLS = 3
SAVES_BEFORE_A_KILL = 4


@dataclass
class Proof:
    """What the demo has seen, to be judged at the end."""

    saves_acknowledged: int = 0
    kills: int = 0
    lost: int = 0
    wrong_bytes: int = 0
    damage_found: bool = False
    second_writer_told: bool = False

    @property
    def holds(self) -> bool:
        """Whether everything that was promised was kept."""
        return not (self.lost or self.wrong_bytes) and self.damage_found and self.second_writer_told


@click.command("demo")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="Where the demo keeps its files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the proof as JSON.")
def command(folder: Path, as_json: bool) -> None:
    """See Seamark at work in a folder of its own."""
    from seamark.cli.output import stderr, stdout

    checkpoints = folder / "checkpoints"
    _clear(checkpoints)
    console = stderr() if as_json else stdout()
    proof = Proof()
    for _ in range(KILLS):
        _run_and_kill(checkpoints, proof, console)
        _recover(checkpoints, proof, console)
    _flip_a_bit(checkpoints, proof, console)
    _second_writer(checkpoints, proof, console)
    if as_json:
        click.echo(json.dumps({**asdict(proof), "holds": proof.holds}))
    else:
        _print_proof(proof, checkpoints, console)
    if not proof.holds:
        sys.exit(1)


def _clear(checkpoints: Path) -> None:
    """Remove what an earlier demo left, and only that."""
    from seamark.errors import RefusedError
    from seamark.store import open_store

    if not checkpoints.exists():
        return
    if open_store(checkpoints).owner().pipeline != "demo":
        raise RefusedError(
            f"{checkpoints} exists and is not of an earlier demo",
            hint="Choose another folder with --dir.",
        )
    shutil.rmtree(checkpoints)


def _run_and_kill(checkpoints: Path, proof: Proof, console: Console) -> None:
    """Let a real process save, and kill it in the middle of a save."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "seamark.cli.demo_writer", str(checkpoints)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    saved = 0
    for line in writer.stdout:
        what, checkpoint_id, *figures = line.split()
        if what == "saved":
            saved += 1
            proof.saves_acknowledged += 1
            seconds, size = float(figures[0]), int(figures[1])
            console.print(
                f"checkpoint {checkpoint_id:>3}  {size / 2**20:.1f} MiB  saved and committed in "
                f"{seconds * 1000:.1f} ms"
            )
        elif saved == SAVES_BEFORE_A_KILL:
            time.sleep(0.002 * (proof.kills + 1))  # another place in the save each time
            os.kill(writer.pid, signal.SIGKILL)
            proof.kills += 1
            console.print(f"checkpoint {checkpoint_id:>3}  killed with SIGKILL while saving")
            break
    writer.wait()
    writer.stdout.close()


def _recover(checkpoints: Path, proof: Proof, console: Console) -> None:
    from seamark.cli.demo_writer import state_of
    from seamark.store import open_store

    store = open_store(checkpoints)
    report = store.recover_latest_validated()
    chosen = report.chosen_id or 0
    if chosen < proof.saves_acknowledged:
        proof.lost += proof.saves_acknowledged - chosen
    manifest = store.load_by_id(chosen)
    right = manifest is not None and store.load_state_data(chosen) == state_of(manifest.epoch)
    proof.wrong_bytes += not right
    # a save that was decided before the kill counts as one that happened
    proof.saves_acknowledged = max(proof.saves_acknowledged, chosen)
    console.print(f"\n[bold]Recovery[/bold]{report.elapsed * 1000:>60.1f} ms")
    state = "state as it should be" if right else "[red]state is WRONG[/red]"
    console.print(f"  chosen      checkpoint {chosen} · verified (SHA-256), {state}")
    if manifest and not manifest.sink_commit_statuses["bars"].is_committed:
        console.print("  to finish   sink bars: decided, not committed when the process died")
    console.print()


def _flip_a_bit(checkpoints: Path, proof: Proof, console: Console) -> None:
    from seamark.store import open_store

    newest = open_store(checkpoints).list_ids()[-1]
    state = checkpoints / f"checkpoints/checkpoint_{newest:06}/state.bin"
    good = state.read_bytes()
    with state.open("r+b") as file:
        file.seek(len(good) // 2)
        file.write(bytes([good[len(good) // 2] ^ 1]))
    report = open_store(checkpoints).recover_latest_validated()
    proof.damage_found = [skipped for skipped, _ in report.skipped] == [newest]
    console.print("[bold]One bit flipped in the newest state[/bold]")
    for checkpoint_id, why in report.skipped:
        console.print(f"  {checkpoint_id:>3}  skipped  {why[:58]}…")
    console.print(f"  {report.chosen_id:>3}  chosen\n")
    state.write_bytes(good)


def _second_writer(checkpoints: Path, proof: Proof, console: Console) -> None:
    from seamark.errors import FencedError
    from seamark.manifest import CheckpointManifest
    from seamark.store import open_store

    with open_store(checkpoints) as first, open_store(checkpoints) as second:
        first.claim()
        second.claim()
        console.print("[bold]A second writer takes over[/bold]")
        try:
            first.save(CheckpointManifest.new(first.next_id(), epoch=1))
        except FencedError as error:
            proof.second_writer_told = True
            console.print(f"  the first one is told: {error.what}\n")


def _print_proof(proof: Proof, checkpoints: Path, console: Console) -> None:
    console.print(
        f"[bold]Proof[/bold]   {proof.saves_acknowledged} checkpoints · {proof.kills} kills · "
        f"{proof.lost} lost · {proof.wrong_bytes} with wrong bytes"
    )
    verdict = "[green]yes[/green]" if proof.holds else "[red]no[/red]"
    console.print(f"Nothing lost, all damage found, one writer at a time: {verdict}.\n")
    console.print(f"Checkpoints: {checkpoints}     Try: ls -R {checkpoints}")
