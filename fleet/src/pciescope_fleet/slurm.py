"""Slurm: nodes, an array of jobs with one task a node, what became of each, and draining.

Everything goes by Slurm's own commands. The run's folder must lie where submitting host and nodes see it: a task writes
its files there itself, so that an answer is kept even where Slurm or this program goes away meanwhile.
"""

import contextlib
import re
import secrets
import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pciescope_fleet import hosts
from pciescope_fleet.answers import Folder
from pciescope_fleet.errors import FleetError
from pciescope_fleet.task import GRACE_S, Task
from pciescope_fleet.text import some

POLL_S = 2.0
ARRIVAL_S = 10.0  # So long a file may take from a node through a shared file system.
PATIENCE_S = 300.0
"""So long Slurm may not say what is in its queue: its controller may be starting anew, and the tasks go on."""
THROTTLED = "JobArrayTaskLimit"  # Why a task waits that `--at-once` holds back.
MOST_TASKS = 1000  # Of an array: Slurm's own default for MaxArraySize is 1001.
MOST_ARRAYS = 4
"""In the queue at a time: with Slurm's default for MaxJobCount it takes 10,000 tasks, of all users together."""
FEWEST_AT_ONCE = 8  # Of an array where there are several: few would all be lost to a few tasks that do not end.
FORGOTTEN = "Invalid job id"  # What Slurm says of a job that is over since a while.
AGAIN_S = 30.0  # From one refusal of a further array to the next try.
ROOM_S = 600.0
"""So long at least Slurm may refuse it with no task of ours in the queue: those that ended count for MinJobAge."""
ENDING_S = 300.0  # So long a task may be ending. Slurm waits for as long as a process on the node cannot be killed.
UNFIT = ("down", "drain", "fail", "maint", "power", "unknown", "future", "reboot", "inval")


def command(*words: str, given: str | None = None) -> str:
    """What one of Slurm's commands prints."""
    try:
        done = subprocess.run(
            words, input=given, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=120
        )
    except FileNotFoundError as error:
        hint = "install Slurm's commands here (Debian: slurm-client), or run by ssh alone: --ssh HOSTS"
        raise FleetError(f"there is no {words[0]} on this machine", hint) from error
    except subprocess.TimeoutExpired as error:
        raise FleetError(f"{words[0]} did not answer in 120 s", "scontrol ping") from error
    if done.returncode != 0:
        answer = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise FleetError(f"{' '.join(words[:2])}: {answer}", "scontrol ping")
    return done.stdout


def nodes(partition: str | None, wanted: str | None) -> dict[str, str | None]:
    """The nodes of a partition, or those of a list, each with why it takes no job now.

    Without a partition they are those of the default one, as sbatch submits to it.
    """
    listed = _listed(None)
    if not listed:
        raise FleetError("Slurm has no node", "sinfo")
    by_partition: dict[str, dict[str, str | None]] = {}
    for name, why_not, of in listed:
        by_partition.setdefault(of, {})[name] = why_not
    default = next((of for of in by_partition if of.endswith("*")), None)
    if partition is None and default is None:
        first, *others = by_partition
        also = f" (or {', '.join(others)})" if others else ""
        raise FleetError("Slurm has no default partition", f"--partition {first}{also}")
    # A list of several partitions is one for sinfo and sbatch, too.
    known = by_partition[default or ""] if partition is None else {each[0]: each[1] for each in _listed(partition)}
    where = f"the default partition {(default or '*')[:-1]}" if partition is None else f"the partition {partition}"
    if not known:
        raise FleetError(f"{where} has no node", "sinfo")
    if wanted is None:
        return known
    chosen = hosts.expand(wanted)
    if unknown := [host for host in chosen if host not in known]:
        there = [of.removesuffix("*") for of, names in by_partition.items() if all(name in names for name in unknown)]
        if not any(unknown[0] in each for each in by_partition.values()):
            raise FleetError(f"Slurm has no node {unknown[0]}", "sinfo --Node")
        raise FleetError(
            f"{where} has no node {some(unknown, 5)}", f"--partition {there[0]}" if there else "sinfo --Node"
        )
    return {host: known[host] for host in chosen}


def all_nodes() -> dict[str, str | None]:
    """The nodes of all partitions, each with why it takes no job now."""
    return {name: why_not for name, why_not, _ in _listed(None)}


def _listed(partition: str | None) -> list[tuple[str, str | None, str]]:
    """Each node with why it takes no job now, once for each of its partitions; the default one's name ends in `*`."""
    words = ["sinfo", "--noheader", "--Node", "--format=%N|%T|%P|%E"]
    found: list[tuple[str, str | None, str]] = []
    for line in command(*words, *(["--partition", partition] if partition else [])).splitlines():
        name, state, of, why = [*line.strip().split("|", 3), "", "", ""][:4]
        is_unfit = any(word in state for word in UNFIT) or state.endswith("*")
        said = f": {why}" if why not in ("", "none") else ""
        found.append((name, f"Slurm: the node is {state}{said}" if is_unfit else None, of))
    return found


def script(task: Task, folder: Path) -> str:
    """What each task of the array runs."""
    return f"""#!/bin/sh
host=$SLURMD_NODENAME
cd {shlex.quote(str(folder))} || exit 73
rm -f "$host.end" # of a task whose run was killed, and that ended since then
began=$(date +%s)
sh -c {shlex.quote("host=$1; " + task.line("$host"))} sh "$host" >"$host.jsonl" 2>"$host.err" </dev/null
code=$?
echo "$code $(($(date +%s) - began))" >".$host.end.part" && mv ".$host.end.part" "$host.end"
exit $code
"""


@dataclass
class Run:
    """A run by Slurm."""

    folder: Folder
    partition: str | None
    at_once: int | None  # So many nodes at the same time.
    wait_s: float  # So long a task may wait for its node.
    more: Sequence[str] = ()  # Further options of sbatch.
    left: list[list[str]] = field(default_factory=list)  # The hosts of the arrays to come.
    jobs: dict[str, list[str]] = field(default_factory=dict)
    """The hosts of each array that Slurm took, in the order of its tasks."""
    queued: dict[str, set[str]] = field(default_factory=dict)  # The tasks in the queue of each array that is not over.
    shares: dict[str, int] = field(default_factory=dict)  # How many nodes of `at_once` each array has.
    held: set[str] = field(default_factory=set)  # The arrays that are not released yet.
    stuck: set[str] = field(default_factory=set)  # Tasks that do not end, of arrays that are given up for it.
    unanswered: dict[str, float] = field(default_factory=dict)  # Tasks that left the queue without an answer, and when.
    asked: dict[str, float] = field(default_factory=dict)  # When Slurm was asked about each array.
    refusal: str = ""  # Why Slurm did not take the next array.
    again: float = 0.0  # When it is asked again.

    @property
    def script(self) -> Path:
        """What the tasks run."""
        return self.folder.path.resolve() / "job" / "task.sh"

    @property
    def most_arrays(self) -> int:
        """So many arrays may be in the queue at a time."""
        return MOST_ARRAYS if self.at_once is None else max(min(MOST_ARRAYS, self.at_once // FEWEST_AT_ONCE), 1)

    def do(self, names: Sequence[str]) -> None:
        """Runs the task on these hosts, and returns when each has ended or will not any more."""
        self.script.write_text(script(self.folder.task, self.folder.path.resolve()), encoding="utf-8")
        self.left = arrays(names, min(MOST_TASKS, largest_array()), self.most_arrays)
        try:
            self.fill()
            self.watch()
        except BaseException:
            # None of our jobs stays in the queue, for any reason of the end.
            cancel(self.queued)
            raise
        self.explain()

    def fill(self) -> None:
        """Submits the next arrays as far as there is room for them."""
        for job in list(self.held):
            self.release(job, is_again=True)
        while self.left and len(self.queued) < self.most_arrays and time.monotonic() >= self.again:
            share = self.share()
            if share == 0:
                return
            try:
                job = self.submit(self.left[0], share)
            except FleetError as error:
                # What is wrong with our options the first array tells. Later ones lack room, which comes.
                if not self.jobs:
                    raise
                self.refusal, self.again = error.text, time.monotonic() + AGAIN_S
                return
            self.release(job)

    def share(self) -> int | None:
        """How many nodes of `at_once` the next array gets; 0 where the others have all."""
        if self.at_once is None:
            return None
        free = self.at_once - len(self.stuck) - sum(self.shares[job] for job in self.queued)
        return max(free // min(self.most_arrays - len(self.queued), len(self.left)), 1) if free > 0 else 0

    def submit(self, names: list[str], share: int | None) -> str:
        """Submits the next array, one task a host; Slurm holds it until it is released."""
        minutes = -(-(self.folder.task.seconds + GRACE_S) // 60) + 1
        throttle = f"%{share}" if share else ""
        name = f"pciescope-fleet-{secrets.token_hex(4)}"
        words = [
            "sbatch", "--parsable", "--hold", "--nodes=1", "--ntasks=1", "--exclusive", "--no-requeue",
            f"--array=0-{len(names) - 1}{throttle}", f"--time={minutes}", f"--output={self.script.parent}/%A_%a.out",
            *([f"--partition={self.partition}"] if self.partition else []), *self.more,
            f"--job-name={name}", str(self.script),
        ]  # fmt: skip
        try:
            job = command(*words).strip().split(";")[0]
            self.took(job, names, share)
            self.left = self.left[1:]
        except BaseException:
            # A slow controller may take it after sbatch gave up, and we do not know its number.
            cancel([f"--name={name}"])
            raise
        return job

    def took(self, job: str, names: list[str], share: int | None = None) -> None:
        """Notes an array that Slurm took."""
        self.jobs[job], self.shares[job] = names, share or 0
        self.queued[job] = {f"{job}_{place}" for place in range(len(names))}
        self.held.add(job)

    def release(self, job: str, *, is_again: bool = False) -> None:
        """Lets an array start, each task on its node; again where the controller went away in it."""
        node_of = {task: self._host(task) for task in self.queued.get(job, ())}
        # Not again: Slurm may have released it, and its answer was lost. Then the files are those of its tasks.
        for host in node_of.values() if not is_again else ():
            self.folder.put_aside(host)
        # An array has one list of nodes; each of its tasks gets its own here, before it may start. Not again once it is
        # so: an update while tasks run makes Slurm forget how many may.
        try:
            is_placed = is_again and not misplaced(job, node_of)
        except FleetError as error:
            if FORGOTTEN not in error.text:
                raise
            # It was released, and is over.
            node_of, is_placed = {}, True
        if not is_placed:
            lines = [f"update JobId={task} ReqNodeList={host}" for task, host in node_of.items()]
            command("scontrol", given="\n".join([*lines, "quit"]) + "\n")
            wrong = misplaced(job, node_of)
            if len(wrong) == len(node_of) and len(self.jobs) == 1:
                task = wrong[0]
                raise FleetError(
                    f"job {task}: Slurm does not take node {node_of[task]} for it", f"scontrol show job {job}"
                )
            for task in wrong:
                self.folder.silent[node_of[task]] = f"Slurm does not take this node for job {task}"
            cancel(wrong)
            self.queued[job].difference_update(wrong)
            node_of = {task: host for task, host in node_of.items() if task not in wrong}
        if node_of:
            command("scontrol", "release", job)
        self.held.remove(job)

    def watch(self) -> None:
        """Waits until no task is in the queue nor to come, and cancels those that did not start in time."""
        since: dict[str, float] = {}
        ending: dict[str, float] = {}
        answered = worked = time.monotonic()
        while True:
            try:
                self.fill()
                queue = self.queue()
            except FleetError:
                if time.monotonic() - answered > PATIENCE_S:
                    raise
                time.sleep(POLL_S)
                continue
            now = answered = time.monotonic()
            # A task that has left its answer may end as slowly as it likes.
            queue = {
                task: (state, why)
                for task, (state, why) in queue.items()
                if state != "COMPLETING" or not self.folder.has_ended(self._host(task))
            }
            ending = {task: ending.get(task, now) for task, (state, _) in queue.items() if state == "COMPLETING"}
            self.part(queue, {task for task, began in ending.items() if now - began > ENDING_S}, now)
            self.ask(now)
            if self.queued:
                worked = now
            elif not self.left:
                return
            elif self.share() == 0:
                self.give_up(f"Slurm does not end job {min(self.stuck)}, and --at-once waits for it")
            elif now - worked > max(self.wait_s, ROOM_S):
                self.give_up(f"Slurm took no task for it within {now - worked:.0f} s: {self.refusal}")
            waiting = {task: why for task, (state, why) in queue.items() if state == "PENDING" and THROTTLED not in why}
            since = {task: since.get(task, now) for task in waiting}
            late = [task for task in waiting if now - since[task] > self.wait_s]
            for task in late:
                self.folder.silent[self._host(task)] = (
                    f"did not start within {self.wait_s:.0f} s: {waiting[task].strip('()')}"
                )
            cancel(late)
            time.sleep(POLL_S)

    def part(self, queue: dict[str, tuple[str, str]], stuck: set[str], now: float) -> None:
        """Notes which tasks have left the queue, and which arrays are over."""
        for job, before in list(self.queued.items()):
            here = before & queue.keys()
            blocking = here & stuck
            behind = sorted(task for task in here if THROTTLED in queue[task][1])
            # Slurm may say of tasks that --at-once holds them back a while after others have made room for them.
            is_full = not behind or len(blocking) >= self.shares[job]
            if blocking and is_full and here <= blocking.union(behind):
                # Nothing of it runs any more, and what --at-once holds back would wait for a task that does not end.
                for task in behind:
                    self.folder.silent[self._host(task)] = (
                        f"Slurm does not end job {min(blocking)}, and --at-once waits for it"
                    )
                cancel(behind)
                self.stuck |= blocking
                here = set()
            self.unanswered |= dict.fromkeys(before - here, now)
            self.queued[job] = here
            if not here:
                del self.queued[job]

    def give_up(self, why: str) -> None:
        """Leaves out the hosts of the arrays to come."""
        for host in (host for names in self.left for host in names):
            self.folder.put_aside(host)
            self.folder.silent[host] = why
        self.left = []

    def _host(self, task: str) -> str:
        """The host of a task of an array, by the task's number in the queue."""
        job, place = task.split("_")
        return self.jobs[job][int(place)]

    def queue(self) -> dict[str, tuple[str, str]]:
        """State and reason of the tasks that are in the queue."""
        if not self.queued:
            return {}
        words = ["squeue", "--noheader", "--array", "--jobs", ",".join(self.queued), "--format=%i|%T|%R"]
        try:
            lines = command(*words).splitlines()
        except FleetError as error:
            if FORGOTTEN in error.text:  # all of them are over
                return {}
            raise
        parts = [line.strip().split("|", 2) for line in lines if line.count("|") >= 2]
        return {task: (state, why) for task, state, why in parts if "_" in task}

    def ask(self, now: float) -> None:
        """Asks why tasks left no answer as long as Slurm knows, once their files would have come.

        It is one question an array in 10 s at the most, however many of its tasks fail.
        """
        self.unanswered = {task: since for task, since in self.unanswered.items() if self.is_unexplained(task)}
        due = [task for task, since in self.unanswered.items() if now - since > ARRIVAL_S]
        for job, tasks in by_job(due).items():
            if now - self.asked.get(job, -ARRIVAL_S) < ARRIVAL_S:
                continue
            self.asked[job] = now
            if jobs := shown(job):
                self.note(tasks, jobs)
            else:
                # The controller may be away.
                self.unanswered |= dict.fromkeys(tasks, now)

    def explain(self) -> None:
        """Finds out why the other hosts did not answer."""
        until = time.monotonic() + ARRIVAL_S
        tasks = list(self.unanswered)
        while (tasks := [task for task in tasks if self.is_unexplained(task)]) and time.monotonic() < until:
            time.sleep(0.2)
        for job, unexplained in by_job(tasks).items():
            self.note(unexplained, shown(job))

    def is_unexplained(self, task: str) -> bool:
        """Whether a task's host has left no answer, and it is not known why."""
        host = self._host(task)
        return host not in self.folder.silent and not self.folder.has_ended(host)

    def note(self, tasks: Iterable[str], jobs: list[dict[str, str]]) -> None:
        """Keeps what Slurm says of tasks of a job."""
        by_place = {one.get("ArrayTaskId"): one for one in jobs}
        for task in tasks:
            job, place = task.split("_")
            self.folder.silent[self._host(task)] = why(job, int(place), by_place.get(place), self.folder.path)


def arrays(names: Sequence[str], most: int, at_a_time: int) -> list[list[str]]:
    """The hosts of each array: one where that is enough, else so many that as many as may are always at work."""
    count = 1 if len(names) <= most else at_a_time * -(-len(names) // (most * at_a_time))
    size = -(-len(names) // count)
    return [list(names[start : start + size]) for start in range(0, len(names), size)]


def by_job(tasks: Iterable[str]) -> dict[str, list[str]]:
    """Tasks by the number of their array."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        found.setdefault(task.split("_")[0], []).append(task)
    return found


def misplaced(job: str, node_of: Mapping[str, str]) -> list[str]:
    """The tasks of an array that would not run on their hosts. Raises where Slurm does not tell."""
    nodes = {f"{job}_{one.get('ArrayTaskId')}": one.get("ReqNodeList") for one in asked(job)}
    return [task for task, host in node_of.items() if nodes.get(task) != host]


def why(job: str, place: int, task: dict[str, str] | None, folder: Path) -> str:
    """Why a task of a job left no answer, in words."""
    if task is None:
        return f"Slurm no longer knows job {job}_{place}"
    state, reason, code = task.get("JobState", "?"), task.get("Reason", "None"), task.get("ExitCode", "?")
    said = f", {reason}" if reason not in ("None", state) else ""
    match state:
        case "NODE_FAIL":
            return f"the node failed during the run (job {job}_{place}{said})"
        case "TIMEOUT" | "DEADLINE":
            return f"Slurm ended job {job}_{place} at its limit of {task.get('TimeLimit', '?')}"
        case "COMPLETING":
            return f"Slurm cannot end job {job}_{place}: a process on the node does not end{said}"
        case "COMPLETED":
            return f"job {job}_{place} ended, and its files are not in {folder}: the nodes need to share that folder"
        case _:
            last = last_line(folder / "job" / f"{job}_{place}.out")
            return f"job {job}_{place} is {state}, exit code {code}{said}{last}"


def last_line(path: Path) -> str:
    """The last line that Slurm or the task's shell wrote."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    filled = [line for line in lines if line.strip()]
    return f": {filled[-1][:200]}" if filled else ""


def asked(job: str) -> list[dict[str, str]]:
    """What Slurm says of each task of a job."""
    lines = command("scontrol", "--oneliner", "show", "job", job).splitlines()
    return [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]


def shown(job: str) -> list[dict[str, str]]:
    """The same; nothing where Slurm does not tell, or has forgotten it: MinJobAge is 5 minutes by default."""
    try:
        return asked(job)
    except FleetError:
        return []


def cancel(jobs: Iterable[str]) -> None:
    """Takes jobs out of the queue, as far as they are still there."""
    if all_jobs := list(jobs):
        with contextlib.suppress(FileNotFoundError, subprocess.TimeoutExpired):
            subprocess.run(["scancel", "--quiet", *all_jobs], capture_output=True, check=False, timeout=120)


def largest_array() -> int:
    """The most tasks that an array may have here."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", command("scontrol", "show", "config"), re.MULTILINE)
    return max(int(found[1]) - 1, 1) if found else MOST_TASKS


def drain(node: str, reason: str) -> list[str]:
    """The command that drains a node, for a person to read or for `command`."""
    return ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"]


def is_drained(node: str) -> bool:
    """Whether a node is drained, about to be, or down: its reason then is somebody's.

    A node of a cloud that is switched off (`IDLE+CLOUD+POWERED_DOWN`) is none of these.
    """
    found = re.search(r"\bState=(\S+)", command("scontrol", "--oneliner", "show", "node", node))
    return found is not None and not NOT_USED.isdisjoint(part.strip(MARKS) for part in found[1].upper().split("+"))


NOT_USED = {"DOWN", "DRAIN", "DRAINED", "DRAINING"}
MARKS = "*~#!%$@^-"
"""What Slurm puts behind a state: no answer, switched off, being switched on or off, in maintenance, to be rebooted."""
