"""`run --ssh` through a real ssh server of this machine, at the loopback, that stands for several hosts."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import free_ports, hears_ctrl_c, search_path, wait_for

pytestmark = pytest.mark.slow

PCIESCOPE = os.environ.get("PCIESCOPE", str(Path(__file__).parents[2] / "target/release/pciescope"))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file for ssh in which h1 to h4 are this machine, and h5 is one where nobody listens."""
    server = shutil.which("sshd", path=search_path())
    assert server is not None, "sshd missing; run: tools/setup cluster"
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    port, closed = free_ports(2)
    settings = f"""
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
PidFile {folder}/pid
AuthorizedKeysFile {folder}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""
    (folder / "sshd_config").write_text(settings)
    common = f"HostName 127.0.0.1\nUser {getpass.getuser()}\nIdentityFile {folder}/user\nUserKnownHostsFile /dev/null\n"
    common += "StrictHostKeyChecking no\nLogLevel ERROR\n"
    file = folder / "config"
    file.write_text(f"Host h1 h2 h3 h4\nPort {port}\n{common}\nHost h5\nPort {closed}\n{common}")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen([server, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    probe = ["ssh", "-F", str(file), "-o", "BatchMode=yes", "h1", "true"]
    try:
        wait_for("sshd", lambda: subprocess.run(probe, capture_output=True, check=False).returncode == 0, 60)
        yield file
    finally:
        running.terminate()
        running.wait(30)


def run(config: Path, *typed: str) -> tuple[int, dict[str, dict[str, object]]]:
    told = subprocess.run(
        [sys.executable, "-m", "pciescope_fleet", "run", "--ssh-command", f"ssh -F {config}", "--json", *typed],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert told.returncode in (0, 1), told.stderr
    return told.returncode, {one["host"]: one for one in map(json.loads, told.stdout.splitlines())}


def test_records_come_by_ssh_and_hosts_that_do_not_answer_are_named(config: Path, tmp_path: Path) -> None:
    program = tmp_path / "it's a program"
    program.write_text(f"""#!/bin/sh
# The host's name and --json come last, as they were typed.
case $4 in
*host=h3) fault=,hang-after=100 ;;
*host=h4) fault=,die-after=100 ;;
esac
[ "$5" = --json ] || exit 3
exec '{PCIESCOPE}' "$1" "$2" --json "$3" "$4$fault"
""")
    program.chmod(0o755)
    typed = ["--dir", str(tmp_path / "run"), "--ssh", "h[1-5]", "--program", f'"{program}"', "--timeout", "10s"]
    code, told = run(config, *typed, "--", "latency", "mmio", "--backend", "fake:host={host}")
    assert code == 1
    assert [host for host, one in told.items() if one["is_whole"]] == ["h1", "h2"]
    for host in ("h1", "h2"):
        first = json.loads((tmp_path / f"run/{host}.jsonl").read_text().splitlines()[0])
        assert first["environment"]["host"]["name"] == host
    assert told["h3"]["why"] == "did not end within 10 s"
    assert str(told["h4"]["why"]).startswith("killed by signal 9 after ")
    assert str(told["h5"]["why"]).startswith("ssh failed: ")
    assert "refused" in str(told["h5"]["why"])


def test_ctrl_c_waits_for_no_host(config: Path, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/reached'\nexec sleep 60\n")
    program.chmod(0o755)
    typed = ["run", "--dir", str(tmp_path / "run"), "--ssh", "h[1-4]", "--ssh-command", f"ssh -F {config}"]
    words = [sys.executable, "-m", "pciescope_fleet", *typed, "--program", str(program), "--", "x"]
    running = subprocess.Popen(words, preexec_fn=hears_ctrl_c)
    wait_for("a host", (tmp_path / "reached").exists)
    running.send_signal(signal.SIGINT)
    assert running.wait(20) == 130
