"""A real Slurm on this machine: its controller, and several nodes that are daemons here. Loopback only."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch")


class Slurm:
    """The cluster; it starts with `start` and leaves nothing behind after `stop`."""

    calls: Path
    """Where a test notes what Slurm called, if it does."""

    def __init__(self, nodes: int, settings: str = "") -> None:
        missing = [program for program in NEEDED if shutil.which(program, path=search_path()) is None]
        assert not missing, f"{', '.join(missing)} missing; run: tools/setup cluster"
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        # Unix sockets have short paths.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(nodes + 1)
        self.ports = dict(zip(self.names, ports[1:], strict=True))
        user = os.environ.get("USER") or subprocess.check_output(["id", "-un"], text=True).strip()
        lines = "".join(
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN\n"
            for name, port in self.ports.items()
        )
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(f"""
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SchedulerParameters=bf_interval=1,batch_sched_delay=0
ReturnToService=2
SlurmdTimeout=10
KillWait=2
{settings}
{lines}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")

    def environment(self) -> dict[str, str]:
        """For whoever talks to it."""
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": search_path()}

    def start(self) -> None:
        """Starts all, and waits until every node is idle."""
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        at = {
            name: f"--{name}={self.folder}/munge.{name.partition('-')[0]}"
            for name in ("key-file", "pid-file", "log-file", "seed-file")
        }
        self.launch("munged", "munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *at.values())
        wait_for("munged", (self.folder / "munge.socket").exists)
        self.launch("slurmctld", "slurmctld", "-D", "-i")
        for name in self.names:
            self.start_node(name)
        wait_for("the nodes", lambda: self.states() == dict.fromkeys(self.names, "idle"))

    def start_node(self, name: str) -> None:
        """Starts the daemon of a node."""
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        self.launch(name, "slurmd", "-D", "-N", name)

    def launch(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                words, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )

    def command(self, *words: str) -> str:
        """What a command of Slurm's prints."""
        return subprocess.run(words, env=self.environment(), check=True, capture_output=True, text=True).stdout

    def states(self) -> dict[str, str]:
        """Every node's state; empty while the controller does not answer."""
        told = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%N %T"], env=self.environment(), capture_output=True, text=True, check=False
        )
        return dict(line.split() for line in told.stdout.splitlines()) if told.returncode == 0 else {}

    def stop(self) -> None:
        """Ends all, with what runs on the nodes."""
        subprocess.run(
            ["scancel", "--state=RUNNING"], env=self.environment(), capture_output=True, check=False, timeout=60
        )
        for running in reversed(self.running.values()):
            running.send_signal(signal.SIGTERM)
        for running in self.running.values():
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
        shutil.rmtree(self.folder)


def search_path() -> str:
    """Where programs are: daemons stand where the path of a user does not lead."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(what: str, is_there: object, seconds: float = 120) -> None:
    """Waits until something is so."""
    assert callable(is_there)
    until = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < until, f"{what}: not there after {seconds} s"
        time.sleep(0.1)


def hears_ctrl_c() -> None:
    """For `preexec_fn`: what a shell runs in the background ignores SIGINT, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
