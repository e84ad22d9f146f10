"""A standalone cluster of Apache Spark on this machine: a master and its workers, as processes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def cluster(workers: int = 2) -> Iterator[str]:
    """A master of Spark and its workers, as processes on this machine; the master's address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as work:
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": work,
                       "PYSPARK_PYTHON": sys.executable, "SPARK_LOG_DIR": work}  # fmt: skip
        address = f"spark://127.0.0.1:{port}"
        start = [str(home / "bin" / "spark-class")]
        master = [
            *start,
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        ]
        worker = [*start, "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "3g", "--work-dir", work,
                  "--webui-port", "0", address]  # fmt: skip
        with (Path(work) / "log").open("w") as log:
            processes = [
                subprocess.Popen(line, env=environment, stdout=log, stderr=log)
                for line in [master, *[worker] * workers]
            ]
            try:
                deadline = time.monotonic() + 300
                while (Path(work) / "log").read_text().count("Successfully registered with master") < workers:
                    if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
                        raise RuntimeError(f"no cluster: {(Path(work) / 'log').read_text()[-2000:]}")
                    time.sleep(0.5)
                yield address
            finally:
                for process in reversed(processes):
                    process.terminate()
                    process.wait(60)
