"""Makes the rows of the dataset's table of figures out of those that the program wrote, of many runs at once.

A figure is what hosts are compared by: one histogram of one target of a device, or one metric. Its name is the same on
each host; the row also has the device's address and the CPU. Histograms of several CPUs make a row for each CPU, and
one for all of them together, whose `cpu` is null.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pciescope_fleet.dataset.program import Problem
from pciescope_fleet.dataset.rows import Run
from pciescope_fleet.dataset.schema import FIGURES, FORM
from pciescope_fleet.histogram import MOST_SAMPLES, PERCENTILES, Histograms, Numbers

CONTROLS = {"calibration", "ceiling"}  # Histograms that accompany a figure and are not figures.

JUDGED_METRICS = {"speed", "active_speed", "rate", "samples_per_s", "cpu_per_gb"}
"""Metrics that hosts are compared by; the others are kept.

`pciescope compare` also takes the parts of a duration (`dma`, `copy`, ...) and shares. These tell where time went, and
each would be one more test that may be a false alarm.
"""

TEXTS = [
    *("run", "file", "test", "verb", "backend", "origin", "order", "device", "device_name", "model", "driver", "link"),
    *("bridges", "pmu", "path", "kind", "figure", "name", "unit"),
]
NUMBERS = [
    *("record", "batch", "gap_ns", "irqs_off", "quantum_ns", "device_node", "device_id", "cpu", "group", "value"),
    *("count", "min", "max"),
]
BUCKETS = ["buckets.list.element.low_ps", "buckets.list.element.count"]

ROWS, BATCH_BUCKETS = 200_000, 4_000_000  # At so many rows or buckets of whole runs these are computed together.


class Codes:
    """A column of texts: each row's number in a list, or -1."""

    def __init__(self, codes: Numbers, texts: Sequence[str | None]) -> None:
        self.codes, self.texts = codes, list(texts)

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Codes:
        """A column of a table that was read as a dictionary."""
        found = column.unify_dictionaries().combine_chunks()
        if isinstance(found, pa.ChunkedArray):
            found = found.chunk(0) if found.num_chunks else pa.array([], column.type)
        codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(codes, found.dictionary.to_pylist())

    def __getitem__(self, rows: Numbers) -> pa.Array:
        codes = self.codes[rows]
        return pa.array([*self.texts, None], pa.string()).take(pa.array(np.where(codes < 0, len(self.texts), codes)))

    def at(self, row: int) -> str | None:
        """The text of one row."""
        return self.texts[self.codes[row]] if self.codes[row] >= 0 else None

    def mapped(self, function: Callable[[str], Any]) -> npt.NDArray[Any]:
        """A value of each row's text, which is empty where there is none."""
        return np.array([*(function(text or "") for text in self.texts), function("")])[self.codes]

    def else_(self, other: Codes) -> Codes:
        """These, or the others where there are none."""
        codes = np.where(other.codes >= 0, other.codes + len(self.texts), -1)
        return Codes(np.where(self.codes >= 0, self.codes, codes), self.texts + other.texts)


def numbered(*columns: npt.NDArray[Any]) -> tuple[Numbers, Numbers]:
    """Numbers of rows, equal where all columns agree, from 0 in the order of first rows; and the first row of each."""
    number = pd.factorize(columns[0])[0]
    for column in columns[1:]:
        place, values = pd.factorize(column)
        number = pd.factorize(number * (len(values) + 1) + place)[0]  # The place of none is -1.
    first = np.zeros(number.max(initial=-1) + 1, np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return number.astype(np.int64), first


@dataclass
class Batch:
    """Rows of whole runs, as the program wrote them."""

    table: pa.Table
    runs: list[Run]
    run: Numbers  # Of each row the place of its run.


def batches(path: Path, taken: dict[tuple[str, str], Run]) -> Iterator[Batch]:
    """The rows of these runs, which are named by file and run. A run is in one batch."""
    runs, place = list(taken.values()), {key: number for number, key in enumerate(taken)}
    last = np.array([run.row["last_record"] for run in runs], np.int64)
    is_done = np.zeros(len(runs), bool)
    if not runs:
        return
    with pq.ParquetFile(path, read_dictionary=TEXTS) as file:
        waiting: list[pa.Table] = []
        for group in range(file.num_row_groups):
            found = file.read_row_group(group, columns=[*TEXTS, *NUMBERS, *BUCKETS])
            waiting.append(found)
            is_end = group + 1 == file.num_row_groups
            if not is_end and sum(map(len, waiting)) < ROWS and sum(map(_buckets, waiting)) < BATCH_BUCKETS:
                continue
            table = pa.concat_tables(waiting)
            files, names = Codes.of(table["file"]), Codes.of(table["run"])
            number, first = numbered(files.codes, names.codes)
            keys = [(files.at(row) or "", names.at(row) or "") for row in first]
            run = np.array([place.get(key, -1) for key in keys], np.int64)[number]
            is_whole = (run >= 0) & (is_end | (last[run] <= found["record"][-1].as_py()))
            waiting = [_chosen(table, (run >= 0) & ~is_whole)]
            run = run[is_whole]
            own, number = np.unique(run, return_inverse=True)
            is_done[own] = True
            yield Batch(_chosen(table, is_whole), [runs[each] for each in own], number)
    left = [run for run, done in zip(runs, is_done, strict=True) if not done]
    if left:
        yield Batch(pa.table({}), left, np.zeros(0, np.int64))


def _buckets(table: pa.Table) -> int:
    return pc.sum(pc.list_value_length(table["buckets"])).as_py() or 0


def _chosen(table: pa.Table, is_chosen: npt.NDArray[np.bool_]) -> pa.Table:
    rows = np.flatnonzero(is_chosen)
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return table.slice(rows[0], len(rows))
    return table.take(pa.array(rows))


def figures(batch: Batch) -> pa.Table:
    """The rows of the dataset's table. Sets the `content` of the runs."""
    found = _Found(batch) if len(batch.run) else None
    if found is None or not len(found.row):
        set_content(batch.runs, np.zeros(0, np.int64), np.zeros(0, np.uint64))
        return FIGURES.empty_table()
    pieces = [*found.histograms(), found.metrics()]
    row, group = (np.concatenate([piece[name] for piece in pieces]) for name in ("row", "group"))
    columns = found.common(row, group)
    for field in FIGURES:
        if field.name not in columns:
            parts = [_column(piece.get(field.name), len(piece["row"]), field.type) for piece in pieces]
            columns[field.name] = pa.chunked_array(parts, field.type)
    return pa.table([columns[field.name].cast(field.type) for field in FIGURES], schema=FIGURES)


def _column(values: Any, size: int, kind: pa.DataType) -> pa.Array:
    if values is None or isinstance(values, pa.Array):
        return pa.nulls(size, kind) if values is None else values
    return pa.array(values, from_pandas=True).cast(kind)


def _floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy())


class _Found:
    """Rows of a batch in the order of their figures.

    Rows of a group agree in run, device and figure; rows of a part also in the CPU.
    """

    def __init__(self, batch: Batch) -> None:
        table, self.runs = batch.table, batch.runs
        self.texts = {name: Codes.of(table[name]) for name in TEXTS}
        self.numbers = {name: _floats(table[name]) for name in NUMBERS}
        texts, numbers = self.texts, self.numbers
        self.buckets = _buckets_of(table["buckets"], numbers)
        self.device = texts["device"].else_(texts["path"]).else_(texts["pmu"])
        is_counted = texts["test"].mapped(lambda text: text == "counters")
        cpu = np.where(is_counted | np.isnan(numbers["cpu"]), -1, numbers["cpu"]).astype(np.int64)
        is_histogram = texts["kind"].mapped(lambda text: text == "histogram")
        is_whole = (numbers["count"] < MOST_SAMPLES) & (self.buckets.totals == numbers["count"])
        for run, count in zip(*np.unique(batch.run[is_histogram & ~is_whole], return_counts=True), strict=True):
            why = f"run {self.runs[run].run}: {count} histograms have a count that is not the sum of their buckets"
            self.runs[run].problems.append(Problem(self.runs[run].source, None, why))
        is_histogram &= is_whole
        is_metric = texts["kind"].mapped(lambda text: text == "metric") & np.isfinite(numbers["value"])
        row = np.flatnonzero(is_histogram | is_metric)
        group, _ = numbered(batch.run[row], self.device.codes[row], texts["figure"].codes[row])
        part, _ = numbered(group, cpu[row])
        order = np.lexsort((part, group))
        self.row, self.group = row[order], group[order]
        # Parts are numbered anew, in the order of their groups.
        self.part = np.cumsum(np.diff(part[order], prepend=part[order][:1]) != 0)
        self.is_histogram, self.run = is_histogram[self.row], batch.run
        self.first_of_group = self.row[np.diff(self.group, prepend=-1) > 0]
        is_first = np.diff(self.part, prepend=-1) > 0
        self.first_of_part, self.group_of_part = self.row[is_first], self.group[is_first]
        self.cpu_of_part = cpu[self.first_of_part]
        models: dict[int, set[str]] = {}
        for first in numbered(batch.run, texts["model"].codes)[1]:
            if (model := texts["model"].at(first)) is not None:
                models.setdefault(batch.run[first], set()).add(model)
        for run, own in models.items():
            self.runs[run].models = " + ".join(sorted(own))

    def histograms(self) -> Iterator[dict[str, Any]]:
        """The rows of all CPUs together, and those of each where there are several."""
        measured = np.flatnonzero(self.is_histogram)
        part, owner = np.unique(self.part[measured], return_inverse=True)
        of_parts = self.buckets.take(self.row[measured]).merged(owner)
        group, owner = np.unique(self.group_of_part[part], return_inverse=True)
        cpus = np.bincount(owner, minlength=len(group))
        whole = of_parts.merged(owner)
        columns = self._columns(whole, self.first_of_group[group], group)
        for name, percent in PERCENTILES.items():
            columns[f"{name}_down"], columns[f"{name}_up"] = whole.errors(percent)
        row = self.first_of_part[part]
        ticks_ps = np.nan_to_num(self.numbers["quantum_ns"][row]) * 1000
        ticks_ps /= np.maximum(np.nan_to_num(self.numbers["batch"][row]), 1)
        starts, bins, shares = of_parts.forms(owner, len(group), ticks_ps)
        pieces = [pa.array(bins.astype(np.int16)), pa.array(shares.astype(np.float32))]
        has_none = np.append(np.diff(starts) == 0, False)
        columns["form"] = pa.ListArray.from_arrays(
            pa.array(starts.astype(np.int32), mask=has_none),
            pa.StructArray.from_arrays(pieces, fields=list(FORM.value_type)),
        )
        yield {**columns, "cpus": cpus}
        several = np.flatnonzero(cpus[owner] > 1)
        part = part[several]
        of_parts = of_parts.take(several)
        columns = self._columns(of_parts, self.first_of_part[part], self.group_of_part[part])
        columns["p50_down"], columns["p50_up"] = of_parts.errors(PERCENTILES["p50"])
        cpu = self.cpu_of_part[part]
        yield {**columns, "cpu": pa.array(cpu, pa.int32(), mask=cpu < 0), "cpus": np.ones(len(part), np.int32)}

    def _columns(self, of: Histograms, row: Numbers, group: Numbers) -> dict[str, Any]:
        starts = pa.array(of.starts.astype(np.int32))
        return {
            "row": row,
            "group": group,
            "judged": ~self.texts["name"].mapped(CONTROLS.__contains__)[row],
            "count": of.totals,
            **{name: of.percentiles_ns(percent) for name, percent in PERCENTILES.items()},
            "bucket_low_ps": pa.ListArray.from_arrays(starts, pa.array(of.lows)),
            "bucket_count": pa.ListArray.from_arrays(starts, pa.array(of.counts)),
        }

    def metrics(self) -> dict[str, Any]:
        """The rows of metrics: each the median of what the records of a figure have."""
        place = np.flatnonzero(~self.is_histogram)
        value = self.numbers["value"][self.row[place]]
        group, first, count = np.unique(self.group[place], return_index=True, return_counts=True)
        value = value[np.lexsort((value, self.group[place]))]
        middle = (value[first + (count - 1) // 2] + value[first + count // 2]) / 2
        row = self.first_of_group[group]
        is_judged = self.texts["name"].mapped(JUDGED_METRICS.__contains__)[row] & (middle > 0)
        cpus = np.bincount(self.group_of_part)[group]
        return {"row": row, "group": group, "judged": is_judged, "cpus": cpus, "count": count, "value": middle}

    def common(self, row: Numbers, group: Numbers) -> dict[str, Any]:
        """What rows say of their run, of the device, and of the method, which has the CPUs of the whole group."""
        texts, numbers, run = self.texts, self.numbers, self.run
        columns = {
            name: texts[name][row] for name in ("verb", "backend", "device_name", "driver", "link", "figure", "unit")
        }
        columns["device"] = pc.fill_null(self.device[row], "")
        for name in ("batch", "quantum_ns"):
            columns[name] = pa.array(numbers[name][row], from_pandas=True)
        of_machine = {name: [run.fact(name) for run in self.runs] for name in ("cpu_model", "kernel")}
        of_machine["topology"] = [run.topology for run in self.runs]
        for name in ("host_key", "host", "run", "time", "date"):
            of_machine[name] = [run.identity()[name] for run in self.runs]
        for name, told in of_machine.items():
            values = pa.array(told, FIGURES.field(name).type)
            columns[name] = values.take(pa.array(run[row]))
        columns["origin"] = self._each(Run.origin_of, "origin")[row]
        columns["model"] = self._each(Run.model_of, "model", "group")[row]
        columns["firmware"] = self._each(Run.firmware_of, "device")[row]
        columns["slot"] = self._each(Run.slot_of, "device", "bridges")[row]
        hops = np.where(np.isnan(numbers["device_id"]), np.nan, texts["bridges"].mapped(lambda text: len(text.split())))
        columns["hops"] = pa.array(hops[row], from_pandas=True)
        how = self._each(lambda _, *values: method_words(*values), "order", "gap_ns", "irqs_off")
        cpus = self._cpus()
        number, first = numbered(how.codes[row], cpus.codes[group])
        methods = [", ".join(filter(None, (how.at(row[each]), cpus.at(group[each])))) or None for each in first]
        columns["method"] = Codes(number, methods)[np.arange(len(row))]
        kind = [codes.mapped(_digest)[row] for codes in (self.device, texts["figure"], texts["backend"])]
        kind += [np.nan_to_num(numbers["batch"][row]).astype(np.uint64), Codes(number, methods).mapped(_digest)]
        together = np.zeros(len(row), np.uint64)
        for each in kind:
            together = together * np.uint64(0x9E3779B97F4A7C15) + each
        set_content(self.runs, run[row], together)
        return columns

    def _each(self, function: Callable[..., str | None], *names: str) -> Codes:
        """What a function says of the run and of these columns, for each row."""
        keys = [self.texts[name].codes if name in self.texts else self.numbers[name] for name in names]
        number, first = numbered(self.run, *keys)

        def value(row: int, name: str) -> str | float | None:
            if name in self.texts:
                return self.texts[name].at(row)
            return None if np.isnan(self.numbers[name][row]) else float(self.numbers[name][row])

        return Codes(
            number, [function(self.runs[self.run[row]], *(value(row, name) for name in names)) for row in first]
        )

    def _cpus(self) -> Codes:
        """From which CPUs each group is, in words."""
        cpu = self.cpu_of_part
        # Groups of the same CPUs have the same sum of these.
        mixed = np.where(
            cpu < 0, 0, (cpu.astype(np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15) ^ (cpu * cpu).astype(np.uint64)
        )
        begins = np.flatnonzero(np.diff(self.group_of_part, prepend=-1))
        ends = np.append(begins[1:], len(cpu))
        run = self.run[self.first_of_group]
        node = np.nan_to_num(self.numbers["device_node"][self.first_of_group], nan=-1).astype(np.int64)
        sums = np.add.reduceat(mixed, begins).view(np.int64)
        number, first = numbered(run, node, sums, ends - begins)
        words = []
        for group in first:
            measured = {int(each) for each in cpu[begins[group] : ends[group]] if each >= 0}
            words.append(self.runs[run[group]].asked.words(measured, None if node[group] < 0 else int(node[group])))
        return Codes(number, words)


def _buckets_of(column: pa.ChunkedArray, numbers: dict[str, npt.NDArray[np.float64]]) -> Histograms:
    """The histograms of rows; those of other rows are empty."""
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    flat = pc.list_flatten(column).combine_chunks()
    ends = (np.rint(np.nan_to_num(numbers[name]) * 1000).astype(np.int64) for name in ("min", "max"))
    lows, counts = (flat.field(name).cast(pa.int64(), safe=False).to_numpy() for name in ("low_ps", "count"))
    return Histograms(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), lows, counts, *ends)


def method_words(order: str | None, gap_ns: float | None, irqs_off: float | None) -> str | None:
    """What else of the method makes another figure: the order of the CPUs, the pause, whether interrupts were off."""
    parts = [order] if order else []
    if gap_ns:
        parts.append(f"gap {int(gap_ns)} ns")
    if irqs_off is not None:
        parts.append(f"interrupts {'off' if irqs_off else 'on'}")
    return ", ".join(parts) or None


def _digest(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))


def set_content(runs: Sequence[Run], run: Numbers, kinds: npt.NDArray[np.uint64]) -> None:
    """Notes in each run a digest of what it measured, and by which method: runs with the same one follow each other."""
    order = np.lexsort((kinds, run))
    run, kinds = run[order], kinds[order]
    bounds = np.searchsorted(run, np.arange(len(runs) + 1))
    for number, each in enumerate(runs):
        own = np.unique(kinds[bounds[number] : bounds[number + 1]])
        each.content = hashlib.sha256(own.tobytes()).hexdigest()[:16]
