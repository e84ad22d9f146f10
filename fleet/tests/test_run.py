"""`run` without a cluster: names, the line for a host's shell, what became of hosts."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from pciescope_fleet import hosts, slurm
from pciescope_fleet.answers import Folder
from pciescope_fleet.errors import FleetError
from pciescope_fleet.task import NOTHING_OF_THE_CLASS, Task, behind_sudo
from pciescope_fleet.units import seconds


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7],gpu12", ["n1", "n2", "n3", "n7", "gpu12"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("a, b a", ["a", "b"]),
        ("node-1.rack2.example", ["node-1.rack2.example"]),
    ],
)
def test_lists_of_hosts_are_read_as_slurm_reads_them(text: str, names: list[str]) -> None:
    assert hosts.expand(text) == names


@pytest.mark.parametrize(
    "text", ["", ",", "n[", "n[]", "n[3-1]", "n[a-b]", "n1;x", "../n", "-n", "n$(x)", "n[1-999999]", "n]"]
)
def test_what_is_no_list_of_hosts_is_refused(text: str) -> None:
    with pytest.raises(FleetError):
        hosts.expand(text)


def test_a_file_of_hosts(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# rack 1\nn[1-2] # the old ones\n\nn9\n")
    assert hosts.expand(f"@{tmp_path}/list") == ["n1", "n2", "n9"]
    with pytest.raises(FleetError, match="cannot be read"):
        hosts.expand(f"@{tmp_path}/none")


SINFO = """\
n1|idle|none|main*
n2|idle|none|main*
n2|idle|none|gpu
n3|down|Not responding|gpu
n4|idle|none|gpu
"""
"""What sinfo prints of two partitions, of which `main` is the default."""


def sinfo(monkeypatch: pytest.MonkeyPatch, told: str = SINFO) -> None:
    """sinfo as a user's partition and Slurm's format have it: a line for each node and partition."""

    def command(*words: str) -> str:
        [format_] = [word.removeprefix("--format=") for word in words if word.startswith("--format=")]
        wanted = words[words.index("--partition") + 1] if "--partition" in words else None
        lines = []
        for line in told.splitlines():
            fields = dict(zip(("%N", "%T", "%E", "%P"), line.split("|"), strict=True))
            if wanted in (None, fields["%P"].removesuffix("*")):
                lines.append("|".join(fields[each] for each in format_.split("|")))
        return "".join(f"{line}\n" for line in lines)

    monkeypatch.setattr(slurm, "command", command)


def test_without_a_partition_the_nodes_of_the_default_one_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    sinfo(monkeypatch)
    assert list(slurm.nodes(None, None)) == ["n1", "n2"]
    assert slurm.nodes("gpu", None) == {"n2": None, "n3": "Slurm: the node is down: Not responding", "n4": None}
    assert list(slurm.nodes("gpu", "n[2,4]")) == ["n2", "n4"]
    with pytest.raises(FleetError, match="the default partition main has no node n4") as refused:
        slurm.nodes(None, "n[1,4]")
    assert refused.value.hint == "--partition gpu"
    with pytest.raises(FleetError, match="the partition gpu has no node n1"):
        slurm.nodes("gpu", "n1")
    with pytest.raises(FleetError, match="Slurm has no node n9"):
        slurm.nodes(None, "n9")
    # slurm-drain asks for all.
    assert list(slurm.all_nodes()) == ["n1", "n2", "n3", "n4"]
    sinfo(monkeypatch, SINFO.replace("*", ""))
    with pytest.raises(FleetError, match="Slurm has no default partition") as refused:
        slurm.nodes(None, None)
    assert refused.value.hint == "--partition main (or gpu)"


def shell(line: str, host: str) -> subprocess.CompletedProcess[str]:
    """What a host's shell makes of a line."""
    return subprocess.run(["sh", "-c", f"host={host}; {line}"], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("word", ["a b", "it's", "$HOME", "`x`", "$(x)", "a\nb", "*", "{}", '"', "\\", ""])
def test_no_word_is_changed_on_its_way_to_the_program(word: str) -> None:
    told = shell(Task(["printf", "<%s>"], [word, "{host}", "x{host}'y"], 10).line("$host"), "n7")
    assert told.stdout == f"<{word}><n7><xn7'y><--json>"


def test_a_line_ends_at_its_time_with_a_code_that_says_so(tmp_path: Path) -> None:
    # It does not heed the wish to end, so it is killed.
    task = Task(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", "--"], [], 1)
    told = shell(task.line("$host"), "n1")
    assert told.returncode == 137
    (tmp_path / "n1.end").write_text("137 6\n")
    (tmp_path / "n2.end").write_text("137 0\n")
    folder = Folder(tmp_path, task, ["n1", "n2"])
    assert folder.answer("n1").why == "did not end within 1 s"
    assert folder.answer("n2").why == "killed by signal 9 after 0 s"


@pytest.mark.parametrize(
    ("program", "before"),
    [
        (["pciescope"], 0),
        (["sudo", "pciescope"], 1),
        (["sudo", "-n", "/usr/bin/pciescope"], 2),
        (["/usr/bin/sudo", "-nu", "root", "pciescope"], 3),
        (["sudo", "-n", "-u", "root", "A=b", "pciescope", "-v"], 5),
        (["sudo", "--user=root", "--", "pciescope"], 3),
        (["sudo", "-uroot", "--group", "wheel", "pciescope"], 4),
        (["doas", "-n", "pciescope"], 2),
        (["sudo", "-u"], 1),
        (["env", "sudo=1", "pciescope"], 0),
    ],
)
def test_where_the_program_begins_behind_sudo(program: list[str], before: int) -> None:
    assert behind_sudo(program) == before


@pytest.mark.parametrize("function_class", [None, "nvme"])
def test_the_bound_of_time_is_a_process_of_root_where_the_program_is(
    tmp_path: Path, function_class: str | None
) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    sudo.chmod(0o755)
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0/class").write_text("0x010802\n")
    line = Task([str(sudo), "-n", "pciescope"], ["doctor"], 60, function_class).line("$host")
    told = shell(line.replace("/sys/bus/pci/devices", str(tmp_path)), "n1")
    # The clock may strike between the two looks at it.
    assert re.sub("<59>", "<60>", told.stdout) == "<-n><timeout><-k><5><60><pciescope><doctor><--json>"


def test_a_host_without_a_function_of_the_class_is_told_from_one_that_failed(tmp_path: Path) -> None:
    told = shell(Task(["echo"], ["{bdf}"], 10, "ffffff").line("$host"), "n1")
    assert (told.returncode, told.stdout) == (NOTHING_OF_THE_CLASS, "")
    (tmp_path / "n1.end").write_text(f"{NOTHING_OF_THE_CLASS} 0\n")
    answer = Folder(tmp_path, Task(["x"], ["y"], 1, "ffffff"), ["n1"]).answer("n1")
    assert (answer.is_whole, answer.why) == (False, "has no function of the class ffffff")


@pytest.mark.parametrize(
    ("end", "records", "said", "is_whole", "why"),
    [
        ("0 3", '{"a":1}\n', "", True, None),
        ("1 3", '{"a":1}\n', "pciescope: link slow\nhint: look\n", True, "a check failed: pciescope: link slow"),
        ("0 3", "", "", False, "ended with exit code 0, and no record of it is here"),
        ("2 3", "", "pciescope: no\x1b[2J device\n", False, "exit code 2: pciescope: no?[2J device"),
        ("0 3", '{"a":1}\n{"b', "", False, "1 lines of its records are no records"),
        ("0 3", "[" * 100_000 + "\n", "", False, "1 lines of its records are no records"),
        ("139 3", '{"a":1}\n', "", False, "killed by signal 11 after 3 s"),
        ("127 0", "", "", False, "x is not there"),
        ("what", "", "", False, None),
    ],
)
def test_how_a_host_ended_is_told_in_words(
    tmp_path: Path, end: str, records: str, said: str, is_whole: bool, why: str | None
) -> None:
    for ending, text in ((".end", end), (".jsonl", records), (".err", said)):
        (tmp_path / f"n1{ending}").write_text(text)
    answer = Folder(tmp_path, Task(["x"], ["y"], 60), ["n1"]).answer("n1")
    assert answer.is_whole == is_whole
    assert answer.why == why or (why is None and "cannot be read" in str(answer.why))


def test_a_folder_goes_on_with_its_own_command_alone(tmp_path: Path) -> None:
    first = Folder(tmp_path, Task(["x"], ["latency", "mmio"], 60), ["n1", "n2"])
    assert first.prepare() == ["n1", "n2"]
    (tmp_path / "n1.end").write_text("0 1\n")
    (tmp_path / "n1.jsonl").write_text("{}\n")
    assert Folder(tmp_path, Task(["y"], ["latency", "mmio"], 5), ["n1", "n2", "n3"]).prepare() == ["n2", "n3"]
    with pytest.raises(FleetError, match="another command: latency mmio"):
        Folder(tmp_path, Task(["x"], ["doctor"], 60), ["n1"]).prepare()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(FleetError, match="cannot be read"):
        first.prepare()


def test_times_are_written_as_in_the_main_program() -> None:
    assert [seconds(text) for text in ("90", "90s", "1.5min", "1h")] == [90, 90, 90, 3600]
    for bad in ("", "x", "0", "1d", "-1s", "200h"):
        with pytest.raises(Exception, match="time"):
            seconds(bad)


def test_a_command_runs_for_each_function_of_its_class_within_one_time(tmp_path: Path) -> None:
    for bdf, code in (("0000:01:00.0", "0x010802"), ("0000:02:00.0", "0x020000"), ("0000:03:00.0", "0x010802")):
        (tmp_path / bdf).mkdir()
        (tmp_path / bdf / "class").write_text(f"{code}\n")

    def run(script: str, function_class: str, time: int = 30) -> tuple[int, str]:
        line = Task(["sh", "-c", script, "x"], ["{bdf}"], time, function_class).line("$host")
        told = shell(line.replace("/sys/bus/pci/devices", str(tmp_path)), "n1")
        return told.returncode, told.stdout

    assert run("echo $1 $2", "nvme") == (0, "0000:01:00.0 --json\n0000:03:00.0 --json\n")
    assert run("echo $1", "02") == (0, "0000:02:00.0\n")
    # The worst of them is how the host ended.
    assert run("case $1 in *:01:*) exit 2 ;; *) exit 1 ;; esac", "nvme") == (2, "")
    assert run("case $1 in *:01:*) exit 0 ;; *) exit 1 ;; esac", "nvme") == (1, "")
    # Both together have two seconds: the second has what the first left, and at least one.
    assert run("echo $1; exec sleep 30", "nvme", 2) == (124, "0000:01:00.0\n0000:03:00.0\n")
    with pytest.raises(FleetError, match="no such class"):
        run("", "disk")


class Queue:
    """Slurm's queue as `squeue` prints it, a text each 100 seconds; a `None` is a controller that does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, texts: Sequence[str | None]) -> None:
        self.now, self.texts, self.cancelled = 0.0, iter(texts), list[str]()
        monkeypatch.setattr(slurm, "command", self.command)
        monkeypatch.setattr(slurm, "cancel", self.cancelled.extend)
        monkeypatch.setattr(slurm, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def command(self, *words: str) -> str:
        if words[0] != "squeue":
            raise FleetError("the test is of the queue alone")
        text = next(self.texts)
        if text is None:
            raise FleetError("squeue: Unable to contact slurm controller")
        return text

    def sleep(self, _: float) -> None:
        self.now += 100


def watched(folder: Path, wait_s: float) -> dict[str, str]:
    """Why hosts are silent once the run's tasks are out of the queue."""
    run = slurm.Run(Folder(folder, Task(["x"], ["y"], 60), ["n1", "n2"]), None, 1, wait_s)
    run.took("7", ["n1", "n2"], 1)
    run.held.clear()
    run.watch()
    return run.folder.silent


def test_a_controller_that_is_away_for_minutes_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = "7_0|RUNNING|n1\n"
    queue = Queue(monkeypatch, [None, runs, None, None, runs, None, None, runs, ""])
    assert watched(tmp_path, 60) == {}
    assert queue.cancelled == []
    Queue(monkeypatch, [runs, *[None] * 9])
    with pytest.raises(FleetError, match="Unable to contact"):
        watched(tmp_path, 60)


def test_a_task_that_waits_for_others_of_its_run_does_not_wait_for_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = "7_0|RUNNING|n1\n7_1|PENDING|(JobArrayTaskLimit)\n"
    busy = "7_1|PENDING|(Resources)\n"
    queue = Queue(monkeypatch, [held] * 9 + [busy, busy, "7_1|RUNNING|n2\n", ""])
    assert watched(tmp_path, 250) == {}
    assert queue.cancelled == []
    queue = Queue(monkeypatch, [held] * 9 + [busy] * 4 + [""])
    assert watched(tmp_path, 250) == {"n2": "did not start within 250 s: Resources"}
    assert queue.cancelled == ["7_1"]


def test_a_task_that_slurm_cannot_end_does_not_hold_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process on n1 waits in the kernel: Slurm shows its task as ending for hours."""
    both, stuck = "7_0|COMPLETING|n1\n7_1|RUNNING|n2\n", "7_0|COMPLETING|n1\n"
    queue = Queue(monkeypatch, [both] * 9 + [stuck, "end of the test"])
    assert watched(tmp_path, 60) == {}
    assert next(queue.texts) == "end of the test"
    # One that has only begun to end is waited for.
    queue = Queue(monkeypatch, [both, stuck, stuck, stuck, stuck, "end of the test"])
    assert watched(tmp_path, 60) == {}
    assert next(queue.texts) == "end of the test"
    # Nor does --at-once wait for it.
    behind = stuck + "7_1|PENDING|(JobArrayTaskLimit)\n"
    queue = Queue(monkeypatch, [behind] * 5 + ["end of the test"])
    assert watched(tmp_path, 60) == {"n2": "Slurm does not end job 7_0, and --at-once waits for it"}
    assert queue.cancelled == ["7_1"]
    assert next(queue.texts) == "end of the test"
    # Nobody waits for one that has left its answer.
    (tmp_path / "n1.end").write_text("0 9\n")
    queue = Queue(monkeypatch, [stuck, "end of the test"])
    assert watched(tmp_path, 60) == {}
    assert next(queue.texts) == "end of the test"
    told = slurm.why("7", 0, {"JobState": "COMPLETING", "Reason": "None"}, tmp_path)
    assert told == "Slurm cannot end job 7_0: a process on the node does not end"


@dataclass
class FakeTask:
    """A task of an array in `FakeSlurm`."""

    name: str
    throttle: int
    state: str = "PENDING"
    host: str = ""
    is_held: bool = True
    until: float = 0.0
    """When it ends; once it has, when it did."""


class FakeSlurm:
    """Arrays on nodes of their own clock, with what Slurm bounds: an array, the queue, its memory of what ended."""

    room, forgets_s, takes_s = 10_000, 300.0, 20.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, hosts: int, largest: int = 40) -> None:
        self.now, self.largest, self.arrays = 0.0, largest, dict[str, list[FakeTask]]()
        self.folder = Folder(path, Task(["x"], ["y"], 600), [f"n{number}" for number in range(1, hosts + 1)])
        self.fate: dict[str, str] = {}
        """How the task of a host ends; else well."""
        self.takes: dict[str, float] = {}
        self.ran, self.asked, self.placed, self.cancelled = list[str](), list[str](), list[str](), list[str]()
        self.busiest = self.longest = 0
        """The most tasks on nodes, and in the queue."""
        self.breaks: Callable[[tuple[str, ...]], None] = lambda _: None
        """Raises what goes wrong with a command."""
        self.told = 0
        monkeypatch.setattr(slurm, "command", self.command)
        monkeypatch.setattr(slurm, "cancel", self.cancel)
        monkeypatch.setattr(slurm, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))

    def run(self, at_once: int | None, wait_s: float = 3600) -> list[str | None]:
        """A run, and why hosts did not answer."""
        slurm.Run(self.folder, None, at_once, wait_s).do(self.folder.prepare())
        return [self.folder.answer(host).why for host in self.folder.hosts]

    def command(self, *words: str, given: str | None = None) -> str:
        self.breaks(words)
        match words:
            case ("sbatch", *options):
                return self.submit(next(each for each in options if each.startswith("--array=0-")))
            case ("scontrol",):
                for job, place, host in re.findall(r"JobId=(\d+)_(\d+) ReqNodeList=(\S+)", given or ""):
                    self.arrays[job][int(place)].host = host
                    self.placed.append(host)
            case ("scontrol", "release", job):
                for task in self.arrays[job]:
                    task.is_held = False
            case ("scontrol", "show", "config"):
                return f"MaxArraySize            = {self.largest + 1}\n"
            case ("scontrol", *_, job):
                self.asked.append(job)
                known = [task for task in self.arrays[job] if self.is_known(task)]
                if not known:
                    raise FleetError("Invalid job id specified")
                return "".join(
                    f"ArrayTaskId={task.name.split('_')[1]} ReqNodeList={task.host} JobState={task.state} Reason=R\n"
                    for task in known
                )
            case ("squeue", *_, jobs, _):
                lines = [
                    f"{task.name}|{task.state}|({'JobArrayTaskLimit' if self.is_throttled(task) else 'Resources'})\n"
                    for job in jobs.split(",")
                    for task in self.arrays[job]
                    if self.is_queued(task)
                ]
                return "".join(lines)
        return ""

    def submit(self, array: str) -> str:
        size, _, throttle = array.removeprefix("--array=0-").partition("%")
        tasks = [task for each in self.arrays.values() for task in each]
        if sum(map(self.is_known, tasks)) + int(size) + 1 > self.room:
            raise FleetError("sbatch --parsable: Slurm temporarily unable to accept job")
        job = str(len(self.arrays) + 1)
        self.arrays[job] = [FakeTask(f"{job}_{place}", int(throttle or 0)) for place in range(int(size) + 1)]
        self.longest = max(self.longest, sum(map(self.is_queued, tasks)) + int(size) + 1)
        return job

    def cancel(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self.cancelled.append(job)
            for task in (task for each in self.arrays.values() for task in each):
                if job in (task.name, task.name.split("_")[0]) and self.is_queued(task):
                    task.state, task.until = "CANCELLED", self.now

    def is_queued(self, task: FakeTask) -> bool:
        return task.state in ("PENDING", "RUNNING", "COMPLETING")

    def is_known(self, task: FakeTask) -> bool:
        return self.is_queued(task) or self.now - task.until < self.forgets_s

    def is_throttled(self, task: FakeTask) -> bool:
        at_work = [one for one in self.arrays[task.name.split("_")[0]] if one.state in ("RUNNING", "COMPLETING")]
        return task.state == "PENDING" and 0 < task.throttle <= len(at_work)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        tasks = [task for each in self.arrays.values() for task in each if self.is_queued(task)]
        for task in tasks:
            if task.state == "RUNNING" and task.until <= self.now:
                task.state, task.until = self.fate.get(task.host, "COMPLETED"), self.now
                if task.state == "COMPLETED":
                    self.folder.file(task.host, ".jsonl").write_text("{}\n")
                    self.folder.file(task.host, ".end").write_text("0 9\n")
        for task in tasks:
            if task.state == "PENDING" and not task.is_held and not self.is_throttled(task):
                task.state, task.until = "RUNNING", self.now + self.takes.get(task.host, self.takes_s)
                self.ran.append(task.host)
        self.busiest = max(self.busiest, sum(task.state in ("RUNNING", "COMPLETING") for task in tasks))


def test_at_once_is_for_all_arrays_of_a_run_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at_once in (1, 35):
        fake = FakeSlurm(monkeypatch, tmp_path / str(at_once), 390)
        fake.takes_s = 4
        assert fake.run(at_once) == [None] * 390
        assert sorted(fake.ran) == sorted(fake.folder.hosts)
        assert fake.busiest == at_once
        assert fake.longest <= 4 * 40


def test_what_one_array_holds_is_one_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSlurm(monkeypatch, tmp_path, 40)
    assert fake.run(20) == [None] * 40
    assert [tasks[0].throttle for tasks in fake.arrays.values()] == [20]
    assert [len(each) for each in slurm.arrays(["n"] * 10_000, 1000, 4)] == [834] * 11 + [826]
    assert [len(each) for each in slurm.arrays(["n"] * 4, 3, 4)] == [1] * 4


def test_a_run_that_is_larger_than_the_queue_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that ended take room, too, for five minutes: here there are never more than 100."""
    fake = FakeSlurm(monkeypatch, tmp_path, 390)
    fake.room = 100
    assert fake.run(None) == [None] * 390
    assert sorted(fake.ran) == sorted(fake.folder.hosts)
    # What sbatch may have left behind in a refusal, and nothing else.
    assert all(each.startswith("--name=pciescope-fleet-") for each in fake.cancelled)
    assert len(set(fake.cancelled)) == len(fake.cancelled) < fake.now / slurm.AGAIN_S + 1


def test_hosts_for_which_there_is_never_room_are_named_and_asked_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeSlurm(monkeypatch, tmp_path, 60)
    fake.room, fake.forgets_s = 20, 1e9
    (tmp_path / "n60.end").write_text("2 1\n")
    told = fake.run(None, wait_s=900)
    assert told[:15] == [None] * 15
    assert len(set(told[15:])) == 1
    said = r"Slurm took no task for it within 90\d s: sbatch --parsable: Slurm temporarily unable to accept job"
    assert re.fullmatch(said, str(told[59]))
    assert (tmp_path / "earlier/n60.1.end").exists()
    # However short --wait is, Slurm has the time to forget what ended.
    again = FakeSlurm(monkeypatch, tmp_path, 60)
    again.room = 20
    assert again.run(None, wait_s=5) == [None] * 60
    assert sorted(fake.ran + again.ran) == sorted(fake.folder.hosts)
    # The very first array is refused at once.
    full = FakeSlurm(monkeypatch, tmp_path / "full", 60)
    full.room = 0
    with pytest.raises(FleetError, match="unable to accept"):
        full.run(None)
    assert full.now == 0


def test_ctrl_c_takes_all_arrays_out_of_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ctrl_c(words: tuple[str, ...]) -> None:
        if words[0] == typed and fake.now >= 6:
            raise KeyboardInterrupt

    for typed in ("squeue", "sbatch"):
        fake = FakeSlurm(monkeypatch, tmp_path / typed, 390)
        # One of the first arrays still runs when the next is submitted.
        fake.takes_s, fake.takes, fake.breaks = 4, {"n1": 1000.0}, ctrl_c
        with pytest.raises(KeyboardInterrupt):
            fake.run(None)
        assert not any(fake.is_queued(task) for tasks in fake.arrays.values() for task in tasks)
        assert any(each.startswith("--name=") for each in fake.cancelled) == (typed == "sbatch")


def test_a_controller_that_goes_away_while_an_array_is_submitted_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(words: tuple[str, ...]) -> None:
        """It does not answer for a minute, when the first of the later arrays is to be placed or released."""
        if words[: len(step)] == step and fake.now >= 20 and fake.now < fake.takes["away"]:
            raise FleetError("Unable to contact slurm controller")

    for step in (("scontrol",), ("scontrol", "release"), ("sbatch",)):
        fake = FakeSlurm(monkeypatch, tmp_path / "-".join(step), 390)
        fake.takes["away"], fake.breaks = 80, away
        assert fake.run(None) == [None] * 390
        assert sorted(fake.ran) == sorted(fake.folder.hosts)
        # An update of tasks that may run already makes Slurm forget how many may.
        assert len(fake.placed) == 390
    fake = FakeSlurm(monkeypatch, tmp_path / "long", 390)
    fake.takes["away"], fake.breaks, step = 1e9, away, ("scontrol",)
    with pytest.raises(FleetError, match="Unable to contact"):
        fake.run(None)


def test_a_task_that_does_not_end_takes_its_node_from_the_arrays_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeSlurm(monkeypatch, tmp_path / "two", 100)
    fake.fate = {"n1": "COMPLETING", "n60": "COMPLETING"}
    told = fake.run(16)
    assert fake.busiest == 16
    assert told[0] == "Slurm cannot end job 1_0: a process on the node does not end, R"
    assert [host for host, why in zip(fake.folder.hosts, told, strict=True) if why] == ["n1", "n60"]
    # Few at once are not spread over arrays: one such task would hold a whole array.
    fake = FakeSlurm(monkeypatch, tmp_path / "few", 100)
    fake.fate = {"n1": "COMPLETING"}
    assert [host for host, why in zip(fake.folder.hosts, fake.run(4), strict=True) if why] == ["n1"]
    assert fake.busiest == 4
    # Where it is the only one that may be busy, nobody else can be.
    fake = FakeSlurm(monkeypatch, tmp_path / "one", 100)
    fake.fate = {"n34": "COMPLETING"}
    told = fake.run(1)
    assert told[:33] == [None] * 33
    assert set(told[34:]) == {"Slurm does not end job 1_33, and --at-once waits for it"}


def test_why_a_host_failed_is_asked_before_slurm_forgets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSlurm(monkeypatch, tmp_path, 120, 60)
    # Most fail, one after the other, and the last one works for hours.
    fake.fate = {f"n{number}": "NODE_FAIL" for number in range(1, 100)}
    fake.takes = {host: 2.0 * place for place, host in enumerate(fake.folder.hosts)} | {"n120": 2000.0}
    told = fake.run(None)
    assert told[:2] == [f"the node failed during the run (job 1_{place}, R)" for place in (0, 1)]
    assert all("the node failed" in str(why) for why in told[:99])
    assert told[99:] == [None] * 21
    # One question serves many hosts: four arrays fail for a minute each.
    assert len(fake.asked) < 40


def test_a_release_whose_answer_is_lost_loses_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm did release the fifth array, and its tasks end before it is asked again."""
    fake = FakeSlurm(monkeypatch, tmp_path, 390)
    fake.takes_s = 4
    works, lost = fake.command, list[str]()

    def command(*words: str, given: str | None = None) -> str:
        told = works(*words, given=given)
        if words[:3] == ("scontrol", "release", "5") and not lost:
            lost.append(words[2])
            for _ in range(10):
                fake.sleep(2)
            raise FleetError("Socket timed out on send/recv operation")
        return told

    for forgets_s in (300.0, 1.0):
        fake.forgets_s = forgets_s
        monkeypatch.setattr(slurm, "command", command)
        assert fake.run(None) == [None] * 390
        assert (len(fake.ran), lost) == (390, ["5"])
        fake = FakeSlurm(monkeypatch, tmp_path / "again", 390)
        works, lost = fake.command, []


def test_a_task_that_does_not_end_holds_no_others_of_an_array_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's scheduler runs every four seconds. Until then the queue says of tasks that they are held back."""

    class Slow(FakeSlurm):
        behind: frozenset[str] = frozenset()

        def is_throttled(self, task: FakeTask) -> bool:
            return task.name in self.behind or super().is_throttled(task)

        def sleep(self, seconds: float) -> None:
            if (self.now + seconds) % 4 == 0:
                self.behind = frozenset()
            super().sleep(seconds)
            tasks = [task for each in self.arrays.values() for task in each]
            self.behind = frozenset(task.name for task in tasks if task.state == "PENDING" and not task.is_held)

    fake = Slow(monkeypatch, tmp_path, 300, largest=300)
    fake.takes_s = 18
    fake.fate["n1"] = "COMPLETING"
    assert [number for number, why in enumerate(fake.run(8), 1) if why] == [1]


def test_a_host_whose_task_has_just_ended_is_not_judged_with_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files come six seconds later, through a slow file system; Slurm is asked for the other host meanwhile."""

    class Late(FakeSlurm):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            end, hidden = self.folder.file("n5", ".end"), self.folder.file("n5", ".late")
            if end.exists() and not hasattr(self, "comes"):
                end.rename(hidden)
                self.comes = self.now + 6
            if hidden.exists() and self.now >= self.comes:
                hidden.rename(end)

    fake = Late(monkeypatch, tmp_path, 5)
    fake.fate["n1"] = "NODE_FAIL"
    fake.takes_s, fake.takes = 2, {"n1": 4.0, "n5": 16.0}
    told = fake.run(None)
    assert told[1:] == [None] * 4
    assert "the node failed" in str(told[0])


def test_a_node_that_slurm_does_not_take_loses_its_host_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSlurm(monkeypatch, tmp_path, 390)
    works = fake.command

    def command(*words: str, given: str | None = None) -> str:
        told = works(*words, given=given)
        for task in (task for each in fake.arrays.values() for task in each):
            task.host = "" if task.host in ("n1", "n200") else task.host
        return told

    monkeypatch.setattr(slurm, "command", command)
    told = fake.run(None)
    assert {number: why for number, why in enumerate(told, 1) if why} == {
        1: "Slurm does not take this node for job 1_0",
        200: "Slurm does not take this node for job 7_1",
    }
    assert len(fake.ran) == 388


def test_the_end_of_an_earlier_task_is_not_that_of_the_next(tmp_path: Path) -> None:
    """The run was killed, its task went on and ended after the next run had put its files aside."""
    (tmp_path / "n1.end").write_text("0 9\n")
    file = tmp_path / "task.sh"
    program = ["sh", "-c", "echo '{}'; sleep 1", "x"]
    file.write_text(slurm.script(Task(program, ["y"], 60), tmp_path))
    running = subprocess.Popen(["sh", str(file)], env={"SLURMD_NODENAME": "n1", "PATH": "/usr/bin:/bin"})
    folder = Folder(tmp_path, Task(["x"], ["y"], 60), ["n1"])
    until = time.monotonic() + 60
    while folder.answer("n1").records == 0 and time.monotonic() < until:
        time.sleep(0.05)
    # The node dies.
    running.kill()
    running.wait()
    answer = folder.answer("n1")
    assert (answer.is_whole, answer.why, answer.records) == (False, "no answer", 1)
