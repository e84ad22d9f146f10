"""A dataset on a store that speaks S3: moto's server, on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import sample
from conftest import alike, fleet
from spark_cluster import cluster

pytestmark = pytest.mark.slow

Options = list[str]


@pytest.fixture(scope="module")
def bucket() -> Iterator[Options]:
    """An empty bucket `fleet`; the options that reach it."""
    import logging

    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", **keys)
    client.create_bucket(Bucket="fleet")
    options = {"endpoint_url": f"http://{host}:{port}", "key": "k", "secret": "s"}
    yield [f"--store-option={name}={value}" for name, value in options.items()]
    server.stop()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twelve hosts, the last a tenth slower."""
    folder = tmp_path_factory.mktemp("in")
    return [
        sample.write(folder / f"n{n}.jsonl", sample.run(n, f"n{n}", median=880 if n == 12 else 800 * (1 + n % 3 / 200)))
        for n in range(1, 13)
    ]


def test_the_same_files_give_the_same_findings_as_a_folder(bucket: Options, files: list[Path], tmp_path: Path) -> None:
    told = {}
    for place, options in (("s3://fleet/a", bucket), (str(tmp_path / "d"), [])):
        assert fleet("ingest", *files[:7], place, *options).returncode == 0
        taken = fleet("ingest", *files, place, "-j", "--compact", *options)
        assert taken.returncode == 0, taken.stderr
        assert (json.loads(taken.stdout)["runs"], json.loads(taken.stdout)["known"]) == (5, 7)
        assert json.loads(taken.stdout)["compacted"]["files"] == 2
        judged = fleet("outliers", place, "-j", *options)
        assert judged.returncode == 1, judged.stderr
        told[place] = json.loads(judged.stdout)
    # Sums of rows in another order differ by rounding.
    alike(told["s3://fleet/a"], told[str(tmp_path / "d")])
    assert [finding["hosts"] for finding in told["s3://fleet/a"]["findings"]] == [["n12"]]
    # Also where workers of Spark read the store: they have its options from the program.
    with cluster() as address:
        judged = fleet("outliers", "s3://fleet/a", "-j", "--spark", address, *bucket)
    assert judged.returncode == 1, judged.stderr
    alike(json.loads(judged.stdout), told["s3://fleet/a"])


def test_a_bucket_that_is_not_there_and_a_wrong_address_are_told(bucket: Options, files: list[Path]) -> None:
    for place, options in (
        ("s3://none/a", bucket),
        ("s3://fleet/a", ["--store-option=endpoint_url=http://127.0.0.1:9"]),
    ):
        for verb in (["ingest", files[0], place], ["outliers", place]):
            told = fleet(*verb, *options, "--store-option=key=k", "--store-option=secret=s")
            assert told.returncode == 2, told
            assert "fault of pciescope-fleet" not in told.stderr, told.stderr
            assert place in told.stderr
