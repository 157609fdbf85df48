"""All benchmarks in one run: prints a table and writes benchmarks/latest.json.

    .venv/bin/python benchmarks/run.py [NAME ...]      e.g. `startup`, `mx`; none means all

A benchmark is a file `bench_NAME.py` with one function `rows() -> list[dict]` whose dicts are the
fields of a benchmark row.  Exit code 1 when a row of required.txt is missing; a missed goal stays
visible in the table but does not fail the run, because a slow machine is not a fault.
"""

import datetime
import importlib
import os
import platform
import subprocess
import sys
from pathlib import Path

import gossamer
from gossamer.records.benchmark import Benchmark, BenchmarkRow, Machine
from gossamer.records.envelope import write

HERE = Path(__file__).resolve().parent


def machine() -> Machine:
    try:
        from gossamer._native import cpu_features

        isa = tuple(cpu_features())
    except ImportError:
        isa = ()
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((s.split(":")[1].strip() for s in cpuinfo.splitlines() if s.startswith("model name")), "")
    meminfo = Path("/proc/meminfo").read_text() if Path("/proc/meminfo").exists() else "MemTotal: 0 kB"
    return Machine(
        cpu=model or platform.processor() or platform.machine(),
        num_cores=os.cpu_count() or 1,
        memory_bytes=int(meminfo.split()[1]) * 1024,
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        isa=isa,
    )


def commit() -> str | None:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def collect(names: list[str]) -> list[BenchmarkRow]:
    found = []
    for path in sorted(HERE.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        if not names or name in names:
            print(f"running {name} ...", file=sys.stderr, flush=True)
            found += [BenchmarkRow(**row) for row in importlib.import_module(path.stem).rows()]
    return found


def show(rows: list[BenchmarkRow]) -> None:
    print(f"{'name':<28}{'ours':>12}{'peer':>12}{'ratio':>8}{'goal':>7}  unit")
    for r in rows:
        peer = "-" if r.peer is None else f"{r.peer:.4g}"
        ratio = "-" if r.ratio is None else f"{r.ratio:.2f}"
        missed = "  MISSED" if r.goal is not None and (r.ratio is None or r.ratio < r.goal) else ""
        print(f"{r.name:<28}{r.ours:>12.4g}{peer:>12}{ratio:>8}{r.goal or 0:>7.2g}  {r.unit}{missed}")
    print()
    for r in rows:
        print(f"{r.name}: {r.conditions}")


def main() -> None:
    names = sys.argv[1:]
    rows = collect(names)
    show(rows)
    required = {line for line in (HERE / "required.txt").read_text().split() if line}
    missing = sorted(required - {r.name for r in rows})
    if names:
        print("latest.json is written by full runs only", file=sys.stderr)
        return
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = Benchmark(
        created=now,
        gossamer_version=gossamer.__version__,
        machine=machine(),
        rows=tuple(rows),
        commit=commit(),
    )
    write(record, HERE / "latest.json")
    if missing:
        sys.exit(f"rows of benchmarks/required.txt are missing: {', '.join(missing)}")


if __name__ == "__main__":
    main()
