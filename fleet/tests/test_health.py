"""`health`: by itself, as Slurm's HealthCheckProgram on a real Slurm, and as a check of NHC; and `slurm-drain`."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Slurm, wait_for
from pciescope_fleet import cli
from pciescope_fleet import slurm as slurm_commands
from pciescope_fleet.cmd.health import reason_of
from pciescope_fleet.consecutive import ConsecutiveCounts
from pciescope_fleet.errors import FleetError
from pciescope_fleet.problems import find, of_compare, of_doctor

HERE = Path(__file__).parents[2]
PCIESCOPE = os.environ.get("PCIESCOPE", str(HERE / "target/release/pciescope"))
PACKAGED = HERE / "packaging/slurm"


def health(*typed: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pciescope_fleet", "health", *typed],
        env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def doctor(state: Path, host: str, *options: str) -> tuple[int, str]:
    """A check of a synthetic machine by `doctor`."""
    told = health("--state", str(state), "--node", "n1", "--program", PCIESCOPE, *options,
                  "--", "doctor", "--backend", f"fake:{host}", "--only", "link-speed,link-width")  # fmt: skip
    return told.returncode, told.stdout + told.stderr


def test_a_problem_counts_once_it_was_seen_so_often_in_a_row(tmp_path: Path) -> None:
    sick, well = "host=n1,downtrained", "host=n1"
    codes = [doctor(tmp_path / "state", host)[0] for host in (sick, sick, well, sick, sick, sick, sick, well)]
    assert codes == [0, 0, 0, 0, 0, 1, 1, 0]


def test_the_problem_is_told_in_a_line(tmp_path: Path) -> None:
    code, told = doctor(tmp_path / "state", "host=n1,downtrained", "--after", "1")
    assert code == 1
    assert told.startswith("pciescope: link-speed 0000:03:00.0: the link of 0000:03:00.0 runs at 16 of 32 GT/s")
    assert told.count("\n") == 1


@pytest.mark.parametrize("option", ["--json", "-j"])
def test_a_check_may_ask_for_json_itself(tmp_path: Path, option: str) -> None:
    words = ["doctor", "--backend", "fake:host=n1,downtrained", "--only", "link-speed", option]
    told = health("--state", str(tmp_path / "s"), "--node", "n1", "--program", PCIESCOPE, "--after", "1", "--", *words)
    assert (told.returncode, told.stderr) == (1, "")


def test_a_limit_of_compare_is_a_problem_and_a_new_measurement_can_come_before(tmp_path: Path) -> None:
    base = tmp_path / "base.jsonl"
    words = [PCIESCOPE, "latency", "mmio", "--count", "2000", "--backend"]
    subprocess.run([*words, "fake:host=n1", "-o", str(base)], check=True, capture_output=True)

    def check(fault: str) -> subprocess.CompletedProcess[str]:
        return health("--state", str(tmp_path / "state"), "--after", "1", "--program", PCIESCOPE,
                      "--measure", f"latency mmio --count 2000 --backend fake:host=n1,seed=2{fault}",
                      "--", "compare", str(base), "{new}", "--fail-if", "p50 > +5%")  # fmt: skip

    assert (check("").returncode, check(",delay=60ns").returncode) == (0, 1)
    assert "latency p50 is" in check(",delay=60ns").stdout


def test_a_limit_that_a_figure_exceeds_which_only_the_new_side_has_is_a_problem(tmp_path: Path) -> None:
    base, new = tmp_path / "base.jsonl", tmp_path / "new.jsonl"
    for verb, path in (("mmio", base), ("path", new)):
        words = [PCIESCOPE, "latency", verb, "--count", "2000", "--backend", "fake", "-o", str(path)]
        subprocess.run(words, check=True, capture_output=True)
    new.write_text(base.read_text() + new.read_text())
    # Register reads take up to 600 ns, configuration reads of the last hop up to 630 ns.
    found = find([PCIESCOPE], ["compare", str(base), str(new), "--fail-if", "p50 > 605ns"], [], 60)
    [(key, text)] = found.items()
    assert key == "p50 > 605ns@0000:03:00.0@latency p50"
    assert re.fullmatch(r"0000:03:00\.0: latency p50 is 6\d\d\.\d+, beyond p50 > 605ns", text)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["--", "latency", "mmio"], "a check is `doctor ...` or `compare"),
        (["--after", "0", "--", "doctor"], "--after 0"),
        (["--program", "/no/such/program", "--", "doctor"], "there is no /no/such/program"),
        (["--program", "sh -c 'sleep 60' x", "--timeout", "1s", "--", "doctor"], "did not end within 1 s"),
        (["--program", "sh -c 'echo no json' x", "--", "doctor"], "printed what is no JSON"),
        (["--program", "false", "--", "doctor"], "ended with 1 and named 0 problems"),
        (["--program", PCIESCOPE, "--", "doctor", "--only", "no-such-check"], "doctor --only no-such-check"),
    ],
)
def test_a_check_that_cannot_look_says_so_and_ends_with_2(tmp_path: Path, typed: list[str], text: str) -> None:
    told = health("--state", str(tmp_path / "state"), *typed)
    assert (told.returncode, told.stdout) == (2, "")
    assert text in told.stderr


def test_measuring_and_checking_share_one_time() -> None:
    with pytest.raises(FleetError, match="compare x --json did not end within 3 s"):
        find(["sh", "-c", "exec sleep 2", "sh"], ["compare", "x"], ["latency", "mmio"], 3)


def test_behind_sudo_the_bound_is_roots_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may not kill a child of root: sudo here is a program that runs its words, and killing fails."""
    sudo = tmp_path / "sudo"
    sudo.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/words\n[ "$1" != -n ] || shift\n"$@"\n')
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 20\n")
    for program in (sudo, slow):
        program.chmod(0o755)

    def kill(_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(subprocess.Popen, "kill", kill)
    began = time.monotonic()
    with pytest.raises(FleetError, match=r"slow doctor --json did not end within 2 s"):
        find([str(sudo), "-n", str(slow)], ["doctor"], [], 2)
    assert time.monotonic() - began < 15
    assert re.fullmatch(
        rf"-n timeout -k 5 [12] {re.escape(str(slow))} doctor --json\n", (tmp_path / "words").read_text()
    )
    # A child that nobody can kill does not hold the check up.
    began = time.monotonic()
    with pytest.raises(FleetError, match=r"slow doctor --json did not end within 1 s"):
        find([str(slow)], ["doctor"], [], 1)
    assert time.monotonic() - began < 15


def test_a_check_that_takes_too_long_can_put_back_what_it_changed(tmp_path: Path) -> None:
    """`--bind` gives a driver back where the program is told to end; a program that does not listen is killed."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\ntrap 'echo restored >{tmp_path}/told; exit 143' TERM\nsleep 60 &\nwait\n")
    deaf = tmp_path / "deaf"
    deaf.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ >{tmp_path}/deaf.pid\nsleep 60\nsleep 60\n")
    for program in (slow, deaf):
        program.chmod(0o755)
        with pytest.raises(FleetError, match="did not end within 1 s"):
            find([str(program)], ["doctor"], [], 1)
    assert (tmp_path / "told").read_text() == "restored\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "deaf.pid").read_text()), 0)


def test_findings_count_that_are_no_notes_and_not_silenced() -> None:
    finding = {"check": "link-width", "severity": "problem", "bdf": "0000:03:00.0", "text": "x4 of x8"}
    records: list[dict[str, Any]] = [
        {"findings": [finding, {**finding, "bdf": "0000:04:00.0", "silenced": True}]},
        {
            "findings": [
                {"check": "smt", "severity": "note", "text": "on"},
                {"check": "aspm", "severity": "warning", "text": "on"},
            ]
        },
        {"test": "doctor"},
    ]
    assert of_doctor(records) == {
        "link-width@0000:03:00.0": "link-width 0000:03:00.0: x4 of x8",
        "aspm@machine": "aspm machine: on",
    }
    assert of_compare([{"type": "summary"}, {"type": "limit", "limit": "p50 > +5%", "exceeded": []}]) == {}
    alone = {"figure": "lost", "name": "value", "device": "0000:03:00.0", "b": 7.0, "p": 0.0}
    limit = {"type": "limit", "limit": "lost > 0", "exceeded": []}
    assert of_compare([{**limit, "only_in_b": [{**alone, "is_proven": False}]}]) == {}
    assert of_compare([{**limit, "only_in_b": [{**alone, "is_proven": True}]}]) == {
        "lost > 0@0000:03:00.0@lost value": "0000:03:00.0: lost value is 7, beyond lost > 0"
    }


def test_a_reason_is_a_line_that_no_shell_reads_otherwise() -> None:
    assert reason_of(["a\n'b' $(c) `d` \x1b[2J; e|f"]) == "pciescope: a b (c) d [2J, e f"
    assert reason_of(["x" * 1000, "y"]) == f"pciescope: {'x' * 200} (and 1 more)"


def test_others_links_and_folders_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    state = tmp_path / "state"
    with ConsecutiveCounts(state, "check") as counter:
        assert counter.count({"a": ""}) == {"a": 1}
    # A link in place of the file, and of the file that is written beside it.
    (state / "check.json").unlink()
    (state / "check.json").symlink_to(victim)
    with ConsecutiveCounts(state, "check") as counter, pytest.raises(FleetError, match="cannot be opened"):
        counter.count({"a": ""})
    (state / "check.json").unlink()
    (state / ".check.json.part").symlink_to(victim)
    with ConsecutiveCounts(state, "check") as counter:
        counter.count({"a": ""})
    assert victim.read_text() == "mine"
    # A pipe in its place does not hold the check up.
    (state / "check.json").unlink()
    os.mkfifo(state / "check.json")
    with ConsecutiveCounts(state, "check") as counter, pytest.raises(FleetError, match="no file of this user"):
        counter.count({"a": ""})
    # The folder is a link, or others may write to it, or it is another's.
    (tmp_path / "link").symlink_to(state)
    with pytest.raises(FleetError, match="cannot be opened"):
        ConsecutiveCounts(tmp_path / "link", "check").__enter__()
    state.chmod(0o777)
    with pytest.raises(FleetError, match="others may write"):
        ConsecutiveCounts(state, "check").__enter__()
    state.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(state, 12345, 12345)
        with pytest.raises(FleetError, match="others may write"):
            ConsecutiveCounts(state, "check").__enter__()


def test_a_state_that_makes_no_sense_begins_anew(tmp_path: Path) -> None:
    for text in ("", "{", "[1]", '{"a": "many"}', "x" * 3_000_000):
        (tmp_path / "check.json").write_text(text)
        tmp_path.chmod(0o700)
        with ConsecutiveCounts(tmp_path, "check") as counter:
            assert counter.count({"a": ""}) == {"a": 1}


def test_checks_at_the_same_time_lose_no_count(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path\n"
    script += "from pciescope_fleet.consecutive import ConsecutiveCounts\n"
    script += f"for _ in range(50):\n with ConsecutiveCounts(Path({str(tmp_path / 'state')!r}), 'c') as counter:\n"
    script += "  counter.count({'a': ''})\n"
    running = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(4)]
    assert [one.wait(120) for one in running] == [0] * 4
    assert json.loads((tmp_path / "state/c.json").read_text()) == {"a": 200}


def nhc(state: Path, fault: str, program: str = PCIESCOPE, before: str = "TIMEOUT=30") -> str:
    """What NHC is told by the check: `die`, `log`, `TIMEOUT` and `ONLINE_NODE`, what it resumes nodes by, are NHC's."""
    doctor = f"doctor --backend fake:host=n1{fault} --only link-speed"
    check = f"--state {state} --after 2 --node n1 --program {shlex.quote(program)} -- {doctor}"
    script = f"""
ONLINE_NODE=resume SECONDS=0 {before}
die() {{ shift; echo "died: $*"; }}
log() {{ echo "logged: $*"; [ -z "$SILENT" ]; }}
pciescope-fleet() {{ {shlex.quote(sys.executable)} -m pciescope_fleet "$@"; }}
. {PACKAGED}/pciescope.nhc
check_pciescope {check} && echo "fine, then $ONLINE_NODE"
"""
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False).stdout


def test_nhc_is_told_of_a_lasting_problem_and_of_no_other(tmp_path: Path) -> None:
    told = [nhc(tmp_path / "state", fault) for fault in ("", ",downtrained", ",downtrained", ",no-such-option")]
    assert told[:2] == ["fine, then resume\n", "fine, then resume\n"]
    # NHC's own `die` ends the check, but not with `nhc -a`.
    assert re.fullmatch(r"died: check_pciescope:  pciescope: link-speed 0000:03:00\.0.*\n", told[2])
    # It could not look: the node stays as it is, neither drained nor resumed.
    assert told[3].startswith("logged: check_pciescope:  not checked:")
    assert told[3].endswith("fine, then :\n")
    assert nhc(tmp_path / "state", ",no-such-option", before="SILENT=1").endswith("fine, then :\n")


@pytest.mark.parametrize(
    ("before", "seconds"), [("TIMEOUT=11", 3), ("TIMEOUT=30 NHC_START_TS=-20", 2), ("TIMEOUT=8", 1), ("TIMEOUT=2", 1)]
)
def test_a_check_ends_before_nhc_drains_the_node_for_its_length(tmp_path: Path, before: str, seconds: int) -> None:
    """NHC has `TIMEOUT` for all of its checks."""
    told = nhc(tmp_path / "state", "", "sh -c 'exec sleep 60' sh", before)
    assert f"did not end within {seconds} s" in told
    assert told.endswith("fine, then :\n")


def test_slurms_program_finds_others_though_slurmd_passes_no_path(tmp_path: Path) -> None:
    """A shell then has a path of its own, and does not export it: Python looks into two folders."""
    (tmp_path / "settings").write_text(f'PATH="{tmp_path}:$PATH"\n')
    (tmp_path / "pciescope-fleet").write_text('#!/usr/bin/env python3\nimport os\nprint(os.environ.get("PATH"))\n')
    (tmp_path / "pciescope-fleet").chmod(0o755)
    env = {"SLURMD_NODENAME": "n1", "PCIESCOPE_FLEET_SETTINGS": str(tmp_path / "settings")}
    told = subprocess.run([PACKAGED / "pciescope-health"], env=env, capture_output=True, text=True, check=True)
    assert told.stdout == f"{tmp_path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Four nodes that Slurm has checked every two seconds. The second has a slow link, by `doctor`; of the fourth
    `compare` finds that reads take longer than in the record of its first day."""
    folder = tmp_path_factory.mktemp("health")
    folder.chmod(0o700)
    settings = folder / "settings"
    measure = "latency mmio --count 2000 --backend fake:host=n4"
    base = folder / "base.jsonl"
    subprocess.run([PCIESCOPE, *measure.split(), "-o", str(base)], check=True, capture_output=True)
    settings.write_text(
        f"HEALTH_OPTIONS='--after 3 --drain --state {folder}/state --program \"{PCIESCOPE}\"'\n"
        'fault=; [ "$SLURMD_NODENAME" != n2 ] || fault=,downtrained\n'
        'HEALTH_CHECK="doctor --backend fake:host=$SLURMD_NODENAME$fault --only link-speed,link-width"\n'
        'if [ "$SLURMD_NODENAME" = n4 ]; then\n'
        f"HEALTH_OPTIONS=\"$HEALTH_OPTIONS --measure '{measure},seed=2,delay=60ns'\"\n"
        f"HEALTH_CHECK=\"compare '{base}' {{new}} --fail-if 'p50 > +5%'\"\nfi\n"
    )
    program, command = folder / "health", folder / "bin" / "pciescope-fleet"
    command.parent.mkdir()
    command.write_text(
        f"#!/bin/sh\necho \"$SLURMD_NODENAME\" >>'{folder}/calls'\n"
        f"export PYTHONPATH={shlex.quote(os.environ.get('PYTHONPATH', ''))}\n"
        f"exec '{sys.executable}' -m pciescope_fleet \"$@\"\n"
    )
    cluster = Slurm(4, f"HealthCheckProgram={program}\nHealthCheckInterval=2\nHealthCheckNodeState=ANY")
    program.write_text(
        f"#!/bin/sh\nexport SLURM_CONF='{cluster.conf}' PCIESCOPE_FLEET_SETTINGS='{settings}'\n"
        f"export PATH='{command.parent}':/usr/sbin:/usr/bin:/sbin:/bin\nexec '{PACKAGED}/pciescope-health'\n"
    )
    for file in (program, command):
        file.chmod(0o755)
    cluster.calls = folder / "calls"
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.slow
def test_slurm_drains_a_node_with_the_finding_as_its_reason_after_three_checks(slurm: Slurm) -> None:
    for node in ("n2", "n4"):
        wait_for("the drained node", lambda node=node: slurm.states().get(node) == "drained")
    calls = slurm.calls.read_text().split()
    assert calls.count("n2") >= 3
    shown = slurm.command("scontrol", "--oneliner", "show", "node", "n2")
    assert "Reason=pciescope: link-speed 0000:03:00.0: the link of 0000:03:00.0 runs at 16 GT/s" in shown
    shown = slurm.command("scontrol", "--oneliner", "show", "node", "n4")
    assert re.search(
        r"Reason=pciescope: 0000:03:00\.0: latency p50 is [0-9.]+ \(\+\d+\.\d%\), beyond p50 > \+5%", shown
    )
    assert slurm.calls.read_text().split().count("n4") >= 3
    # Others are checked as often and stay; and a reason that stands is kept.
    slurm.command("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=new riser")
    before = slurm.calls.read_text().split().count("n2")
    wait_for("two more checks", lambda: slurm.calls.read_text().split().count("n2") >= before + 2)
    time.sleep(1)
    assert slurm.states() == {"n1": "idle", "n2": "drained", "n3": "idle", "n4": "drained"}
    assert "Reason=new riser" in slurm.command("scontrol", "--oneliner", "show", "node", "n2")


def found(hosts: list[str], **more: object) -> dict[str, object]:
    """A finding as `outliers --json` prints it."""
    worst = {"device": "0000:03:00.0", "figure": "latency", "effect": 0.12}
    same = {"time": "2026-11-22T08:00:00Z", "newest": "2026-11-22T08:00:00Z", "replaced_by": None}
    each = [{**worst, **same, "host_key": host, "host": host.partition("~")[0]} for host in hosts]
    return {"hosts": hosts, "origin": "measured", "direction": "slower", "worst_of_hosts": each, **more}


@pytest.mark.parametrize(
    ("nodes", "hosts", "drained", "unknown"),
    [
        (["n1", "n2"], ["n1.cl.example~ab", "n2"], ["n1", "n2"], []),
        (["n1.cl.example", "n2.cl.example"], ["n1", "n2.cl.example"], ["n1.cl.example", "n2.cl.example"], []),
        # The whole name counts first; who else begins like it is another host.
        (["n1", "n1.b"], ["n1.b", "n1.c"], ["n1.b"], ["n1.c"]),
        (["n1"], ["n1.a", "n1.b"], [], ["n1.a", "n1.b"]),
        (["n1.a", "n1.b"], ["n1"], [], ["n1"]),
        (["n1.a"], ["n1.b"], [], ["n1.b"]),
        (["n1"], ["other"], [], ["other"]),
    ],
)
def test_whole_names_of_hosts_find_slurms_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    nodes: list[str], hosts: list[str], drained: list[str], unknown: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(slurm_commands, "all_nodes", lambda: dict.fromkeys(nodes), raising=False)
    monkeypatch.setattr(slurm_commands, "is_drained", lambda _: False)
    (tmp_path / "found.json").write_text(json.dumps({"findings": [found(hosts)]}))
    assert cli.main(["slurm-drain", str(tmp_path / "found.json")]) == 1
    told = capsys.readouterr()
    assert re.findall(r"NodeName=(\S+)", told.out) == drained
    assert re.findall(r"pciescope-fleet: (\S+): Slurm has no such node", told.err) == unknown


def drain(slurm: Slurm, file: Path, findings: list[dict[str, object]], *typed: str) -> subprocess.CompletedProcess[str]:
    file.write_text(json.dumps({"hosts": 100, "findings": findings}))
    return subprocess.run(
        [sys.executable, "-m", "pciescope_fleet", "slurm-drain", str(file), *typed],
        env=slurm.environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "is_drained"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", False),
        ("IDLE+CLOUD+POWERING_DOWN", False),
        ("IDLE", False),
        ("MIXED+PLANNED", False),
        ("IDLE~", False),
        ("IDLE+DRAIN", True),
        ("IDLE+DRAIN+POWERED_DOWN", True),
        ("DOWN*", True),
        ("DOWN*+DRAIN", True),
        ("DRAINED$", True),
        ("DRAINING", True),
    ],
)
def test_a_node_that_is_switched_off_is_not_drained(
    monkeypatch: pytest.MonkeyPatch, state: str, is_drained: bool
) -> None:
    line = f"NodeName=n1 Arch=x86_64 State={state} ThreadsPerCore=2 Reason=x State=\n"
    monkeypatch.setattr(slurm_commands, "command", lambda *_: line)
    assert slurm_commands.is_drained("n1") == is_drained


@pytest.mark.slow
def test_slurm_drain_prints_commands_and_runs_them_only_with_yes(slurm: Slurm, tmp_path: Path) -> None:
    wait_for("the drained node", lambda: slurm.states().get("n2") == "drained")
    findings = [
        found(["n1~3f2a", "n2", "other"]),
        found(["n3"], direction="faster"),
        found(["n3"], origin="synthetic"),
    ]
    told = drain(slurm, tmp_path / "found.json", findings)
    command = "scontrol update NodeName=n1 State=DRAIN 'Reason=pciescope: slower 0000:03:00.0 latency +12.0%'\n"
    assert (told.returncode, told.stdout) == (1, command)
    for text in (
        "other: Slurm has no such node",
        "n2: drained or down already",
        "n3: left alone, faster",
        "synthetic figures",
    ):
        assert text in told.stderr
    assert slurm.states()["n1"] == "idle"
    try:
        many = drain(slurm, tmp_path / "found.json", [found(["n1", "n3"])], "--yes", "--most", "1")
        assert (many.returncode, slurm.states()["n1"]) == (2, "idle")
        assert drain(slurm, tmp_path / "found.json", findings, "--yes").stdout == command
        assert slurm.states() == {"n1": "drained", "n2": "drained", "n3": "idle", "n4": "drained"}
        assert "slower 0000:03:00.0 latency" in slurm.command("scontrol", "--oneliner", "show", "node", "n1")
    finally:
        slurm.command("scontrol", "update", "NodeName=n1", "State=RESUME")
    assert drain(slurm, tmp_path / "found.json", []).returncode == 0
    (tmp_path / "other.json").write_text("[]")
    wrong = subprocess.run([sys.executable, "-m", "pciescope_fleet", "slurm-drain", str(tmp_path / "other.json")],
                           capture_output=True, text=True, check=False)  # fmt: skip
    assert wrong.returncode == 2
    assert "is not what `outliers --json` prints" in wrong.stderr
