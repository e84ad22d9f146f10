"""`run` on a real Slurm: eight nodes with synthetic machines of their own; two are faulty, one hangs, one dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Slurm, hears_ctrl_c, wait_for

pytestmark = pytest.mark.slow

PCIESCOPE = os.environ.get("PCIESCOPE", str(Path(__file__).parents[2] / "target/release/pciescope"))

FAULTS = {"n3": ",delay=100ns", "n5": ",downtrained", "n7": ",hang-after=500", "n8": ",die-after=500"}
"""What is planted on which node."""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    # Arrays of three at the most, so that a run on all nodes has several.
    cluster = Slurm(8, "MaxArraySize=4")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def program(tmp_path: Path) -> str:
    """pciescope on a machine that the node's name makes, with the node's fault."""
    cases = "".join(f"{node}) fault={fault} ;;\n" for node, fault in FAULTS.items())
    script = tmp_path / "program"
    script.write_text(
        f"#!/bin/sh\nfault=\ncase $SLURMD_NODENAME in\n{cases}esac\n"
        # Whoever hangs or dies can be mended; a slow machine stays slow.
        f"if [ -e '{tmp_path}/mended' ]; then case $fault in *-after=*) fault= ;; esac; fi\n"
        f"set -- '{PCIESCOPE}' latency mmio --count 400 --json --backend\n"
        # A whole run is written before the one that does not end.
        'case $fault in *-after=*) "$@" "fake:host=$SLURMD_NODENAME" ;; esac\n'
        'exec "$@" "fake:host=$SLURMD_NODENAME$fault"\n'
    )
    script.chmod(0o755)
    return str(script)


def fleet(slurm: Slurm, *typed: str) -> subprocess.CompletedProcess[str]:
    """The command, as a user of the cluster types it."""
    return subprocess.run(
        [sys.executable, "-m", "pciescope_fleet", *typed],
        env=slurm.environment(), capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip


def run(slurm: Slurm, *typed: str) -> subprocess.CompletedProcess[str]:
    """A run."""
    return fleet(slurm, "run", *typed)


def answers(told: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """What `run --json` said of each host."""
    assert told.returncode in (0, 1), told.stderr
    return {one["host"]: one for one in map(json.loads, told.stdout.splitlines())}


def lines_of(file: Path) -> list[dict[str, object]]:
    """The records of a file; the last line may be torn."""
    records = []
    for line in file.read_text().splitlines():
        with contextlib.suppress(ValueError):
            records.append(json.loads(line))
    return records


def host_of(records: list[dict[str, object]]) -> object:
    """The host that a run's first record names."""
    environment = records[0]["environment"]
    assert isinstance(environment, dict)
    return environment["host"]["name"]


def test_each_node_measures_itself_and_those_that_did_not_answer_are_named(
    slurm: Slurm, program: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    typed = ("--dir", str(folder), "--program", program, "--timeout", "15s", "--json", "--", "latency", "mmio")
    told = answers(run(slurm, *typed))
    assert list(told) == slurm.names
    whole = [host for host, one in told.items() if one["is_whole"]]
    assert whole == ["n1", "n2", "n3", "n4", "n5", "n6"]
    assert told["n7"]["why"] == "did not end within 15 s"
    assert str(told["n8"]["why"]).startswith("killed by signal 9 after ")
    # Each file is of its node: the machine is made of the node's name, and says so.
    for host in whole:
        assert host_of(lines_of(folder / f"{host}.jsonl")) == host
    # Nothing is lost: what the hung and the killed wrote before is there, and counted: a whole run, and a first line.
    for host in ("n7", "n8"):
        assert told[host]["records"] == told["n1"]["records"] + 1
        assert len(lines_of(folder / f"{host}.jsonl")) == len(lines_of(folder / "n1.jsonl")) + 1

    # A second run asks those alone, and keeps what they had left.
    (tmp_path / "mended").touch()
    before = {host: (folder / f"{host}.end").stat().st_mtime_ns for host in whole}
    again = run(slurm, *typed)
    assert again.returncode == 0, again.stdout
    assert all(one["is_whole"] for one in answers(again).values())
    assert {host: (folder / f"{host}.end").stat().st_mtime_ns for host in whole} == before
    assert (folder / "earlier" / "n7.1.jsonl").exists()
    assert (folder / "earlier" / "n8.1.end").read_text().startswith("137 ")

    # Judged, the two planted machines are found and no other.
    files = sorted(map(str, folder.glob("*.jsonl")))
    taken = fleet(slurm, "ingest", *files, str(tmp_path / "dataset"))
    assert taken.returncode == 0, taken.stdout + taken.stderr
    judged = fleet(slurm, "outliers", "--json", str(tmp_path / "dataset"))
    assert judged.returncode == 1, judged.stderr
    findings = json.loads(judged.stdout)["findings"]
    found = {str(host).partition("~")[0] for finding in findings for host in finding["hosts"]}
    assert found == {"n3", "n5"}, findings
    (tmp_path / "found.json").write_text(judged.stdout)
    # No node is drained for what no hardware measured, unless one says so.
    assert fleet(slurm, "slurm-drain", str(tmp_path / "found.json")).returncode == 0
    commands = fleet(slurm, "slurm-drain", "--any-origin", str(tmp_path / "found.json")).stdout
    assert sorted(re.findall(r"NodeName=(\w+)", commands)) == ["n3", "n5"]


def test_a_node_that_dies_during_the_run_is_named(slurm: Slurm, tmp_path: Path) -> None:
    script, folder = tmp_path / "program", tmp_path / "run"
    script.write_text(
        f"#!/bin/sh\n'{PCIESCOPE}' latency mmio --count 10 --json --backend fake\n"
        f"if [ $SLURMD_NODENAME = n2 ]; then touch '{tmp_path}/reached'; sleep 300; fi\n"
    )
    script.chmod(0o755)
    typed = ["--dir", str(folder), "--nodes", "n[1-3]", "--program", str(script), "--json", "--", "latency", "mmio"]
    running = subprocess.Popen(
        [sys.executable, "-m", "pciescope_fleet", "run", *typed],
        env=slurm.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for("the task on n2", (tmp_path / "reached").exists)
    # As by a power cut: the daemon and all that runs below it end at once.
    daemon = slurm.running.pop("n2")
    kill_with_job(daemon, slurm, "n2")
    try:
        out, _ = running.communicate(timeout=300)
        told = {one["host"]: one for one in map(json.loads, out.splitlines())}
        assert running.returncode == 1
        assert [host for host, one in told.items() if one["is_whole"]] == ["n1", "n3"]
        assert str(told["n2"]["why"]).startswith("the node failed during the run"), told["n2"]
        assert told["n2"]["records"] == len(lines_of(folder / "n2.jsonl")) > 0
        # A node that is down is not asked, and said to be so.
        again = run(slurm, *typed)
        assert "down" in str(answers(again)["n2"]["why"])
    finally:
        slurm.start_node("n2")
        wait_for("n2", lambda: slurm.states().get("n2") == "idle")


def kill_with_job(daemon: subprocess.Popen[bytes], slurm: Slurm, node: str) -> None:
    """Kills a node's daemon and what runs for it."""
    told = subprocess.check_output(["ps", "-eo", "pid=,args="], text=True)
    # Slurm's own process first: it would tell the controller that its job was killed. Numbers of processes start anew.
    lines = sorted(told.splitlines(), key=lambda line: "slurmstepd:" not in line)
    daemon.kill()
    daemon.wait()
    for line in lines:
        pid, args = line.strip().split(maxsplit=1)
        if args.startswith("slurmstepd:") or f"spool-{node}/" in args:
            environment = Path(f"/proc/{pid}/environ")
            with contextlib.suppress(OSError):
                if str(slurm.folder).encode() in environment.read_bytes() and has_node(pid, node):
                    os.kill(int(pid), signal.SIGKILL)


def has_node(pid: str, node: str) -> bool:
    """Whether a process or its children are of a node."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any(
        f"SLURMD_NODENAME={node}\0".encode() in Path(f"/proc/{child}/environ").read_bytes() for child in children
    )


def test_a_drained_node_is_not_asked_and_named_with_its_reason(slurm: Slurm, program: str, tmp_path: Path) -> None:
    slurm.command("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=new riser")
    try:
        typed = ["--dir", str(tmp_path / "run"), "--nodes", "n1,n4", "--program", program, "--json"]
        told = answers(run(slurm, *typed, "--", "latency", "mmio"))
    finally:
        slurm.command("scontrol", "update", "NodeName=n4", "State=RESUME")
    assert told["n1"]["is_whole"]
    assert told["n4"]["why"] == "Slurm: the node is drained: new riser"


def test_a_busy_node_is_waited_for_and_then_named(slurm: Slurm, program: str, tmp_path: Path) -> None:
    job = slurm.command(
        "sbatch", "--parsable", "-w", "n1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300"
    ).strip()
    try:
        wait_for("the other job", lambda: "RUNNING" in slurm.command("squeue", "-h", "-j", job, "-o", "%T"))
        typed = ["--dir", str(tmp_path / "run"), "--nodes", "n1,n2", "--wait", "5s", "--program", program, "--json"]
        told = answers(run(slurm, *typed, "--", "latency", "mmio"))
        assert told["n2"]["is_whole"]
        assert str(told["n1"]["why"]).startswith("did not start within 5 s")
        assert slurm.command("squeue", "-h", "-o", "%i").split() == [job]
    finally:
        slurm.command("scancel", job)


def test_ctrl_c_takes_everything_out_of_the_queue(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "program"
    script.write_text(f"#!/bin/sh\ntouch '{tmp_path}/reached'\nsleep 300\n")
    script.chmod(0o755)
    typed = ["run", "--dir", str(tmp_path / "run"), "--program", str(script), "--", "x"]
    running = subprocess.Popen(
        [sys.executable, "-m", "pciescope_fleet", *typed], env=slurm.environment(), preexec_fn=hears_ctrl_c
    )
    try:
        wait_for("a task", (tmp_path / "reached").exists)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        wait_for("an empty queue", lambda: not slurm.command("squeue", "-h").strip())
        wait_for("idle nodes", lambda: set(slurm.states().values()) == {"idle"})
    finally:
        running.kill()
        slurm.command("scancel", "--me")


def test_at_once_is_for_all_arrays_together(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "program"
    script.write_text(f"#!/bin/sh\necho + >>'{tmp_path}/log'\nsleep 2\necho - >>'{tmp_path}/log'\necho '{{}}'\n")
    script.chmod(0o755)
    folder = tmp_path / "run"
    told = run(slurm, "--dir", str(folder), "--at-once", "2", "--program", str(script), "--json", "--", "x")
    assert all(one["is_whole"] for one in answers(told).values()), told.stdout
    log = (tmp_path / "log").read_text().split()
    busy = [log[:place].count("+") - log[:place].count("-") for place in range(len(log) + 1)]
    assert (log.count("+"), max(busy)) == (8, 2)
    assert len({file.name.partition("_")[0] for file in (folder / "job").glob("*.out")}) == 3


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["--nodes", "n1,n99"], "Slurm has no node n99"),
        (["--partition", "nowhere"], "the partition nowhere has no node"),
        (["--nodes", "n[1-"], "no name of a host"),
        (["--nodes", "n1;rm"], "no name of a host"),
        (["--sbatch=--no-such-option"], "sbatch"),
    ],
)
def test_refuses_what_slurm_does_not_know(slurm: Slurm, tmp_path: Path, typed: list[str], text: str) -> None:
    told = run(slurm, "--dir", str(tmp_path / "run"), *typed, "--", "doctor")
    assert told.returncode == 2
    assert text in told.stderr, told.stderr
    assert not slurm.command("squeue", "-h").strip()


def test_a_folder_of_another_command_and_a_folder_in_use_are_refused(
    slurm: Slurm, program: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    first = subprocess.Popen(
        [sys.executable, "-m", "pciescope_fleet", "run", "--dir", str(folder), "--nodes", "n1", "--program", program,
         "--timeout", "60s", "--", "latency", "mmio"],
        env=slurm.environment(), stdout=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for("the folder", (folder / "run.json").exists)
    if first.poll() is None:
        told = run(slurm, "--dir", str(folder), "--nodes", "n1", "--program", program, "--", "latency", "mmio")
        assert told.returncode == 2
        assert "another run is at work" in told.stderr
    assert first.wait(120) == 0
    told = run(slurm, "--dir", str(folder), "--nodes", "n1", "--program", program, "--", "latency", "path")
    assert told.returncode == 2
    assert "holds the records of another command: latency mmio" in told.stderr
