"""Runs pciescope readout and its peers by turns and prints the medians of rate and CPU time."""

import json
import os
import statistics
import subprocess
import sys

PROGRAM, FILE, MIB, ROUNDS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
BYTES = MIB << 20
# Name, our -B, fio's options, block, requests in flight, how often the file is read in a run, threads.
CASES = [
    ("read, page cache", "read", ["psync", "0"], "256k", 1, 16, 1),
    ("read, page cache", "read", ["psync", "0"], "1M", 1, 16, 1),
    ("read, page cache", "read", ["psync", "0"], "1M", 1, 16, 2),
    ("mmap, page cache", "mmap", ["mmap", "0"], "256k", 1, 16, 1),
    ("mmap, page cache", "mmap", ["mmap", "0"], "1M", 1, 16, 2),
    ("direct, disk", "direct", ["psync", "1"], "1M", 1, 4, 1),
    ("io_uring, disk", "io_uring", ["io_uring", "1"], "256k", 8, 4, 1),
    ("io_uring, disk", "io_uring", ["io_uring", "1"], "1M", 4, 4, 2),
]


def prepare(name):
    """The file is in the page cache, or none of it is."""
    with open(FILE, "rb", buffering=0) as file:
        if "disk" in name:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.read(1 << 20):
                pass


def records(arguments):
    """The rows of a run of ours."""
    done = subprocess.run([PROGRAM, "readout", *arguments, "--check", "none", "-j"], check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [row for row in rows if row["test"] == "readout"]


def value(row, name):
    return row["metrics"][name]["value"]


def middle(row):
    """The median repeat in ms."""
    return row["histograms"]["duration"]["p50_ns"] / 1e6


def cpu(row):
    """CPU time of a repeat in ms."""
    return (value(row, "cpu_user") + value(row, "cpu_system")) / value(row, "repeats") / 1e6


def ours(case):
    _, way, _, block, depth, loops, threads = case
    rows = records([FILE] * threads + ["-S", str(BYTES // 2), "-N", str(loops), "-B", way, "--block", block, "--depth", str(depth)])
    start = min(row["interval"]["start_ns"] for row in rows)
    end = max(row["interval"]["end_ns"] for row in rows)
    used = sum(value(row, "cpu_user") + value(row, "cpu_system") for row in rows) / 1e9
    moved = BYTES * loops * threads
    return moved / (end - start) * 1e3, used / (moved / 1e9)


def fio(case):
    _, _, (engine, direct), block, depth, loops, threads = case
    command = [
        "fio", "--name=peer", f"--filename={FILE}", "--rw=read", f"--size={BYTES}", f"--bs={block}", f"--ioengine={engine}",
        f"--direct={direct}", f"--iodepth={depth}", f"--loops={loops}", f"--numjobs={threads}", "--thread", "--invalidate=0",
        "--gtod_reduce=1", "--output-format=json",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    jobs = json.loads(done.stdout[done.stdout.index("{"):])["jobs"]
    moved = sum(job["read"]["io_bytes"] for job in jobs)
    assert moved == BYTES * loops * threads, (moved, command)
    longest = max(job["read"]["runtime"] for job in jobs) / 1e3
    used = sum((job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3 for job in jobs)
    return moved / longest / 1e6, used / (moved / 1e9)


def against_fio():
    print(f"readout: {MIB} MiB, medians of {ROUNDS} rounds by turns; rate in MB/s, CPU in s/GB")
    print("| way | block | in flight | threads | rate | fio | ratio | CPU | fio | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        prepare(case[0])
        try:
            rounds = [(ours(case), fio(case)) if turn % 2 else tuple(reversed((fio(case), ours(case)))) for turn in range(ROUNDS)]
        except subprocess.CalledProcessError as error:
            said = (error.stderr or "").strip().splitlines()
            print(f"| {case[0]} | {case[3]} | - | - | not measured: {said[0] if said else error} |")
            continue
        (rate, used), (rate_fio, used_fio) = [
            [statistics.median(one[who][what] for one in rounds) for what in (0, 1)] for who in (0, 1)
        ]
        print(
            f"| {case[0]} | {case[3]} | {case[4]} | {case[6]} | {rate:.0f} | {rate_fio:.0f} | {rate / rate_fio:.2f} "
            f"| {used:.4f} | {used_fio:.4f} | {used / used_fio:.2f} |",
            flush=True,
        )


def fused():
    print()
    prepare("page cache")
    print("readout: one read and conversion in ms, all read and then converted, and fused; medians over the rounds of the runs' medians")
    print("| samples | way | function | read | convert | together | fused | ratio | CPU together | fused | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for samples, repeats in (("3M", 20), ("30M", 10)):
        if int(samples[:-1]) * 2_000_000 > BYTES:
            continue
        for way in ("read", "mmap"):
            for function in ("cast", "sca", "umn2double"):
                rounds = []
                for _ in range(ROUNDS):
                    common = [FILE, "-S", samples, "-N", str(repeats), "-B", way, "-A", function]
                    steps, (one,) = records(common), records([*common, "--fuse"])
                    read, convert = (middle(row) for row in steps)
                    rounds.append((read, convert, read + convert, middle(one), sum(cpu(row) for row in steps), cpu(one)))
                read, convert, both, one, cpu_both, cpu_one = (statistics.median(column) for column in zip(*rounds))
                print(
                    f"| {samples} | {way} | {function} | {read:.2f} | {convert:.2f} | {both:.2f} | {one:.2f} | {one / both:.2f} "
                    f"| {cpu_both:.2f} | {cpu_one:.2f} | {cpu_one / cpu_both:.2f} |",
                    flush=True,
                )


against_fio()
fused()
