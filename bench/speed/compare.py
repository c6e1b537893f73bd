"""R-ADMM on Adult beside what one would use instead: same noise, same recurrence, same certificate,
in one run.

    python bench/speed/compare.py [--json] [--quick] [--repeats 5]

The task: Adult in 002's encoding, 5 nodes on a ring, 30 rounds of private R-ADMM with 002's C, rho,
gamma and eta = 1, alpha = 1.  Rivals run 002's recurrence as a plain loop over rounds and nodes,
for replicate 0 and the noise that it drew, with a local solver of their own: scipy's L-BFGS-B, a
Newton method by hand, and, on one local problem each, CVXPY, and scikit-learn's newton-cholesky
without the linear term, which it cannot express.  All but CVXPY reach a gradient norm of 1e-8 C in
every solve; `difference` is the largest between final models.

Every repetition runs ours and then the rivals, and ratios are medians over repetitions of the
rival's time over ours. `ratio_*` divides by a replicate's share of 50 run together, `*_single` by a
run of one replicate; `ratio_floor` divides our time by the floor of roofline.py, measured in the
same repetition.  We use all threads; in every repetition a rival gets the better of one thread and
the library's default, unless a trial shows one of them to be far slower.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import roofline
from _peers import peers
from _rivals import (
    ALPHA,
    ETA,
    GAMMA,
    LOSS,
    NODES,
    RHO,
    TOL,
    C,
    Loop,
    Solve,
    by_cvxpy,
    lbfgs,
    newton,
    newton_cholesky,
    value_and_gradient,
)
from joblib import parallel_config
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from sottovoce import PrivateClassifier, data
from sottovoce.data.memmap import write_rows
from sottovoce.data.rows import Rows
from sottovoce.data.sweep import Sweep, number_of_cores, one_thread_a_product
from sottovoce.runs.prepare import prepare
from sottovoce.runs.pricing import RunSetting, plan_ledger
from sottovoce.runs.simulate import RunConfig, simulate, simulate_many
from sottovoce.util.typing import Any, Array


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    rounds: int = 30
    replicates: int = 50
    repeats: int = 5
    nodes: int = 1000
    study_rounds: int = 100
    study_replicates: int = 10
    base: int = 8
    quick: bool = False

    @property
    def budget(self) -> float:
        """Seconds for which each part of a floor is tried."""
        return 0.001 if self.quick else 0.02


def processor() -> float:
    """Seconds of processor time that this process and the children that it waited for have used."""
    own, others = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def config(**changes: Any) -> RunConfig:
    """002's R-ADMM; noise is given, so that nothing but `changes` differs between runs."""
    common: dict[str, Any] = {
        "C": C,
        "rho": RHO,
        "eta": ETA,
        "gamma": GAMMA,
        "tol": TOL,
        "epsilon": math.inf,
    }
    return RunConfig.from_dict(common | {"method": "r_admm", "noise": ALPHA} | changes)


def adult(quick: bool) -> tuple[data.Dataset, Rows]:
    """Rows of 5 nodes."""
    dataset = data.load("synthetic:n=1000,d=8" if quick else "adult-002")
    parts = data.partition("iid", dataset.y_train, NODES, 0)
    return dataset, Rows.build_from_parts([(dataset.X_train[p], dataset.y_train[p]) for p in parts])


def timed(task: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and answer."""
    start = time.perf_counter()
    answer = task()
    return time.perf_counter() - start, answer


def limited(threads: int | None) -> Any:
    """One thread for the linear algebra, or what the library does by itself."""
    return nullcontext() if threads is None else threadpool_limits(threads)


def choices(task: Callable[[], Any]) -> list[int | None]:
    """One thread, the default, or both: those within 15 percent of the better, each tried twice,
    in turn.
    """
    seconds: dict[int | None, float] = {}
    for threads in (1, None, 1, None):
        with limited(threads):
            seconds[threads] = min(seconds.get(threads, math.inf), timed(task)[0])
    return [threads for threads, took in seconds.items() if took <= 1.15 * min(seconds.values())]


def better(task: Callable[[], Any], among: list[int | None]) -> tuple[float, Any]:
    """Seconds and answer with the number of threads that suits the task."""
    found = []
    for threads in among:
        with limited(threads):
            found.append(timed(task))
    return min(found, key=lambda pair: pair[0])


def memory(task: Callable[[], Any]) -> float:
    """Peak MiB of arrays that a task holds, beside the rows it was given."""
    tracemalloc.start()
    try:
        task()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


# --- the parts of the comparison


def adult_run(sizes: Sizes) -> dict[str, Any]:
    """Ours, scipy's and Newton's loops, scikit-learn, CVXPY and the floor."""
    dataset, rows = adult(sizes.quick)
    many, one = (config(rounds=sizes.rounds, replicates=r) for r in (sizes.replicates, 1))
    simulate(config(rounds=1), rows)  # warm the libraries
    loop = Loop(rows, simulate(one, rows))
    rivals: dict[str, Solve] = {"scipy": lbfgs, "newton": newton}
    threads = {name: choices(lambda s=solve: loop(s, 1)) for name, solve in rivals.items()}
    certificates = {}
    for name, solve in rivals.items():
        loop(solve, 1)
        certificates[name] = loop.worst / C
    load = roofline.Workload(
        "", NODES, int(rows.n.max()), rows.d, sizes.replicates, (sizes.rounds + 1) // 2
    )
    start = np.zeros(rows.d)
    local = loop.problem(1, 0, np.zeros((NODES, rows.d)), loop.noise.draw_spherical(rows.d, 1)[0])
    a, _, n, _, q = local
    threads["sklearn"] = choices(lambda: newton_cholesky(a, C, n, q, C * TOL))
    keys = (
        "ours",
        "single",
        "matched",
        "matched_single",
        "scipy",
        "newton",
        "sklearn",
        "floor",
        "floor_single",
    )
    seconds: dict[str, list[float]] = {key: [] for key in keys}
    models = {}
    for _ in range(sizes.repeats):
        took, batch = timed(lambda: simulate(many, rows))
        seconds["ours"].append(took)
        seconds["floor"].append(roofline.floor(load, sizes.budget)["seconds"])
        took, ours = timed(lambda: simulate(one, rows))
        seconds["single"].append(took)
        seconds["floor_single"].append(
            roofline.floor(replace(load, replicates=1), sizes.budget)["seconds"]
        )
        seconds["matched"].append(timed(lambda: simulate(replace(many, tol=None), rows))[0])
        took, loose = timed(lambda: simulate(replace(one, tol=None), rows))
        seconds["matched_single"].append(took)
        for name, solve in rivals.items():
            took, models[name] = better(lambda s=solve: loop(s, sizes.rounds), threads[name])
            seconds[name].append(took)
        seconds["sklearn"].append(
            better(lambda: newton_cholesky(a, C, n, q, C * TOL), threads["sklearn"])[0]
        )
    times = {name: np.array(values) for name, values in seconds.items()}
    share, solves = times["ours"] / sizes.replicates, NODES * load.solves
    w = newton_cholesky(a, C, n, q, C * TOL)
    exact = lbfgs(a, C, n, np.zeros(rows.d), q, start, C * TOL)
    answer = {
        f"seconds_{name}": float(np.median(t)) * (solves if name == "sklearn" else 1)
        for name, t in times.items()
    } | {
        "seconds_share": float(np.median(share)),
        "ratio_scipy": float(np.median(times["scipy"] / share)),
        "ratio_scipy_single": float(np.median(times["scipy"] / times["single"])),
        "ratio_newton": float(np.median(times["newton"] / share)),
        "ratio_newton_single": float(np.median(times["newton"] / times["single"])),
        "ratio_sklearn_no_linear_term": float(np.median(times["sklearn"] * solves / share)),
        "ratio_matched": float(np.median(times["ours"] / times["matched"])),
        "ratio_matched_single": float(np.median(times["single"] / times["matched_single"])),
        "difference_matched": float(np.abs(ours.models[0] - loose.models[0]).max()),
        "accuracy": right(ours.models, dataset),
        "accuracy_matched": right(loose.models, dataset),
        "epsilon_matched": loose.privacy["epsilon"],
        "ratio_floor": float(np.median(times["ours"] / times["floor"])),
        "ratio_floor_least": float(times["ours"].min() / times["floor"].min()),
        "ratio_floor_single": float(np.median(times["single"] / times["floor_single"])),
        "difference": float(np.abs(ours.models[0] - models["scipy"]).max()),
        "difference_newton": float(np.abs(ours.models[0] - models["newton"]).max()),
        "difference_batch": float(np.abs(ours.models[0] - batch.models[0]).max()),
        "difference_sklearn_local": float(np.abs(w - exact).max()),
        "largest_weight": float(np.abs(ours.models[0]).max()),
        "certificate": TOL,
        "certificate_scipy": certificates["scipy"],
        "certificate_newton": certificates["newton"],
        "epsilon": ours.privacy["epsilon"],
        "threads_ours": number_of_cores(),
        "threads_rivals": {
            name: [t or "default" for t in among] for name, among in threads.items()
        },
        "rounds": sizes.rounds,
        "replicates": sizes.replicates,
        "repeats": sizes.repeats,
        "local_solves": solves,
    }
    answer |= {
        "memory_mib_ours": memory(
            lambda: simulate(config(rounds=1, replicates=sizes.replicates), rows)
        ),
        "memory_mib_single": memory(lambda: simulate(config(rounds=1), rows)),
        **{
            f"memory_mib_{name}": memory(lambda s=solve: loop(s, 1))
            for name, solve in rivals.items()
        },
        "memory_mib_sklearn": memory(lambda: newton_cholesky(a, C, n, q, C * TOL)),
        "memory_mib_rows": rows.signed.nbytes / 2**20,
    }
    return answer


def right(models: Array, dataset: data.Dataset) -> float:
    """Percent of the test rows that the sites' mean model gets right."""
    return 100.0 * float(
        np.mean(np.sign(dataset.X_test @ models[0].mean(axis=0)) == dataset.y_test)
    )


def schema(sizes: Sizes) -> dict[str, Any]:
    """Adult by its shipped schema, merged rows beside rows as they come, for one run and for
    many; and auto.
    """
    dataset = data.load("synthetic:n=1000,d=8" if sizes.quick else "adult")
    parts = data.partition("iid", dataset.y_train, NODES, 0)
    rows = Rows.build_from_parts([(dataset.X_train[p], dataset.y_train[p]) for p in parts])
    distinct = [
        len(np.unique(own[: int(n)], axis=0))
        for own, n in zip(rows.signed, rows.n[:, 0], strict=True)
    ]
    load = replace(
        roofline.SCHEMA,
        n=int(rows.n.max()),
        d=rows.d,
        distinct=max(distinct),
        solves=(sizes.rounds + 1) // 2,
    )
    load = replace(load, ones=float(np.mean(np.count_nonzero(dataset.X_train, axis=1))))
    answer: dict[str, Any] = {"rows_distinct": distinct, "rows_given": rows.n[:, 0].tolist()}
    for name, replicates in (("single", 1), ("many", sizes.replicates)):
        run, ratios, processors, floors = (
            config(rounds=sizes.rounds, replicates=replicates),
            [],
            [],
            [],
        )
        for _ in range(sizes.repeats):
            busy = [processor()]
            merged, _ = timed(lambda r=run: simulate(r, rows))
            busy.append(processor())
            with as_they_come():
                given, _ = timed(lambda r=run: simulate(r, rows))
            busy.append(processor())
            ratios.append(given / merged)
            processors.append((busy[2] - busy[1]) / (busy[1] - busy[0]))
            floors.append(
                merged
                / roofline.floor(replace(load, replicates=replicates), sizes.budget)["seconds"]
            )
        answer |= {
            f"ratio_merged_{name}": float(np.median(ratios)),
            f"ratio_merged_{name}_processor": float(np.median(processors)),
            f"ratio_floor_merged_{name}": float(np.median(floors)),
        }
    if not sizes.quick:
        command, busy = (
            [sys.executable, "-m", "sottovoce", "train", "--method", "auto", "--data", "adult"],
            [processor()],
        )
        for _ in range(3):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            busy.append(processor())
        answer["processor_seconds_auto"] = float(np.median(np.diff(busy)))
    return answer


@contextmanager
def as_they_come() -> Iterator[None]:
    """Without deduplication."""
    kept, Sweep.with_distinct_rows = Sweep.with_distinct_rows, lambda self: self  # type: ignore[method-assign]
    try:
        yield
    finally:
        Sweep.with_distinct_rows = kept  # type: ignore[method-assign]


def peak_so_far(fresh: bool = False) -> float:
    """Peak MiB of this process, `fresh` from now on where the system can do that (Linux)."""
    try:
        if fresh:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def cvxpy_solve(sizes: Sizes) -> dict[str, Any]:
    """One local solve, in a process of its own for its peak of memory."""
    if find_spec("cvxpy") is None:
        return {"cvxpy": "not installed"}
    _, rows = adult(sizes.quick)
    loop, zero = Loop(rows, simulate(config(rounds=1), rows)), np.zeros((NODES, rows.d))
    local = loop.problem(1, 0, zero, loop.noise.draw_spherical(rows.d, 1)[0])
    before = peak_so_far(fresh=True)
    took, w = timed(lambda: by_cvxpy(*local))
    grown = peak_so_far() - before
    exact = lbfgs(*local, zero[0], C * TOL)
    return {
        "seconds_cvxpy_one_solve": took,
        "memory_mib_cvxpy": grown,
        "certificate_cvxpy": float(np.linalg.norm(value_and_gradient(*local, w)[1])) / C,
        "difference_cvxpy_local": float(np.abs(w - exact).max()),
    }


def one_site(sizes: Sizes) -> dict[str, Any]:
    """diffprivlib's LogisticRegression beside PrivateClassifier: all rows at one site, epsilon
    1, same regulariser.
    """
    if find_spec("diffprivlib") is None:
        return {"diffprivlib": "not installed"}
    import sklearn.tree._tree as tree

    for name, kind in (
        ("DOUBLE", np.float64),
        ("DTYPE", np.float32),
    ):  # its forests import what scikit-learn dropped
        if not hasattr(tree, name):
            setattr(tree, name, kind)
    try:
        # The class passes an argument that newer versions of scikit-learn refuse; this is what its
        # fit calls.
        from diffprivlib.models.logistic_regression import _logistic_regression_path as fit
    except ImportError as error:
        return {"diffprivlib": f"does not import here: {error}"}
    dataset, _ = adult(sizes.quick)
    X, y, rho = dataset.X_train, dataset.y_train, 0.0002
    weight = 1 / (len(X) * rho)

    def theirs(seed: int) -> Array:
        state = np.random.RandomState(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, _, _ = fit(
                X,
                y,
                epsilon=1.0,
                data_norm=1.0,
                pos_class=1.0,
                Cs=[weight],
                fit_intercept=False,
                max_iter=1000,
                tol=TOL,
                random_state=state,
                check_input=False,
            )
        return found[0]

    def ours(seed: int) -> Array:
        settings = {
            "epsilon": 1.0,
            "delta": None,
            "fit_intercept": False,
            "knobs": {"rho": rho, "tol": TOL},
        }
        return PrivateClassifier("objective", random_state=seed, **settings).fit(X, y).coef_[0]

    threads = choices(lambda: theirs(0))
    took: dict[str, list[float]] = {"diffprivlib": [], "private_classifier": []}
    score: dict[str, list[float]] = {"diffprivlib": [], "private_classifier": []}
    for seed in range(sizes.repeats):
        for name, method, among in (
            ("private_classifier", ours, [None]),
            ("diffprivlib", theirs, threads),
        ):
            t, w = better(lambda m=method, s=seed: m(s), among)
            took[name].append(t)
            score[name].append(
                100 * float(np.mean(np.sign(dataset.X_test @ w.ravel()) == dataset.y_test))
            )
    ratios = np.divide(took["diffprivlib"], took["private_classifier"])
    return (
        {f"seconds_{name}": float(np.median(t)) for name, t in took.items()}
        | {f"accuracy_{name}": float(np.mean(s)) for name, s in score.items()}
        | {"ratio_diffprivlib": float(np.median(ratios))}
    )


def growth(sizes: Sizes) -> dict[str, Any]:
    """Exponents of time in rows, replicates and rounds: least squares in logarithms over a
    factor of 16.
    """
    factors, base = ((1, 2) if sizes.quick else (1, 2, 4, 8, 16)), sizes.base
    least, rounds = (40, 4) if sizes.quick else (2000, 12)

    def rows_of(n: int) -> Rows:
        dataset = data.load(f"synthetic:n={5 * n * 5 // 4},d=50")
        parts = data.partition("iid", dataset.y_train, NODES, 0)
        return Rows.build_from_parts([(dataset.X_train[p], dataset.y_train[p]) for p in parts])

    middle = rows_of(least)
    runs = {
        "rows": [
            (config(rounds=rounds // 4, replicates=4 * base), rows_of(2 * least * k))
            for k in factors
        ],
        "replicates": [
            (config(rounds=rounds // 2, replicates=8 * base * k), middle) for k in factors
        ],
        "rounds": [(config(rounds=rounds * k, replicates=4 * base), middle) for k in factors],
    }
    answer: dict[str, Any] = {}
    for name, pairs in runs.items():
        times = []
        for run, rows in pairs:
            took = timed(lambda c=run, r=rows: simulate(c, r))[0]
            again = timed(lambda c=run, r=rows: simulate(c, r))[0] if took < 1 else took
            times.append(min(took, again))
        answer[f"slope_{name}"] = float(np.polyfit(np.log(factors), np.log(times), 1)[0])
        answer[f"seconds_by_{name}"] = times
    return answer | {"growth_factors": list(factors)}


def thousand(sizes: Sizes) -> dict[str, Any]:
    """Many small nodes, in a process of its own for its peak of memory."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((sizes.nodes, 200, 50))
    # rounding keeps rows inside the unit ball
    X /= np.linalg.norm(X, axis=2, keepdims=True) * (1 + 1e-12)
    y = np.where(X @ rng.standard_normal(50) > 0, 1.0, -1.0)
    rows = Rows.build_from_parts(list(zip(X, y, strict=True)))
    run = RunConfig(
        method="r_admm", epsilon=math.inf, noise=ALPHA, rounds=sizes.study_rounds, tol=TOL
    )
    took, _ = timed(lambda: simulate(run, rows))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    load = roofline.Workload("", sizes.nodes, 200, 50, 1, (sizes.study_rounds + 1) // 2)
    floor = roofline.floor(load, sizes.budget)["seconds"]
    return {
        "seconds_1000_nodes": took,
        "memory_mib_1000_nodes": peak,
        "ratio_floor_1000_nodes": took / floor,
    }


def study(sizes: Sizes) -> dict[str, Any]:
    """002's Fig. 5: R-ADMM at alpha = 1, 2 and 3, the other private methods at the same total, and
    plain ADMM once.

    Runs are shared out to one process a core, as ``sottovoce study --jobs`` does.
    """
    _, rows = adult(sizes.quick)
    T, R = sizes.study_rounds, sizes.study_replicates
    started = time.perf_counter()
    totals = []
    for alpha in (1.0, 2.0, 3.0):
        ready = prepare(config(noise=alpha, rounds=T), rows.n, rows.d)
        totals.append(
            plan_ledger(
                ready.algorithm,
                RunSetting(ready.facts, ready.graph, T, ready.ledger.accountant, 0.0),
            ).total()
        )
    runs = [
        config(
            method=method,
            noise=None,
            epsilon=total,
            rounds=T,
            replicates=R,
            eta_growth=1.04 if method in ("m_admm", "mr_admm") else 1.0,
        )
        for method in ("dvp", "m_admm", "r_admm", "mr_admm")  # the longest first
        for total in totals
    ]
    with parallel_config("loky", inner_max_num_threads=1):
        found = simulate_many(
            [*runs, config(method="admm", noise=None, rounds=T)], rows, n_jobs=number_of_cores()
        )
    seconds = time.perf_counter() - started
    took: dict[str, float] = {}
    for result in found:
        took[result.config.method] = took.get(result.config.method, 0.0) + result.seconds
    n = int(rows.n.max())
    loads = (
        roofline.Workload("", NODES, n, rows.d, 1, T, noisy=False),
        roofline.Workload("", NODES, n, rows.d, R, 3 * (2 * T + 2 * ((T + 1) // 2))),
    )
    floor = sum(roofline.floor(load, sizes.budget)["seconds"] for load in loads)
    return {
        "seconds_study": seconds,
        "seconds_study_by_method": took,
        "ratio_floor_study": seconds / floor,
    }


def streamed(sizes: Sizes) -> dict[str, Any]:
    """A pass over rows in files beside one over rows in memory, and one whose files were dropped
    from the cache.
    """
    n, d, R = (200, 8, 2) if sizes.quick else (100_000, 50, 10)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:

        def block(site: int) -> tuple[int, Array, Array]:
            X = rng.standard_normal((n, d))
            X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-12)
            return site, X, np.where(X[:, 0] > 0, 1.0, -1.0)

        mapped = write_rows(Path(folder) / "rows", (block(site) for site in range(NODES)))
        files, w = mapped.sweep_over_rows(), rng.standard_normal((NODES, R, d))
        memory = Rows.build_from_parts(
            [(X, np.ones(n)) for X in (mapped.fingerprint_arrays()[i][:n] for i in range(NODES))]
        ).sweep_over_rows()
        pairs = {
            "double": (files, memory),
            "single": (files.in_single_precision(), memory.in_single_precision()),
        }
        answer: dict[str, Any] = {"rows_streamed_per_node": n}
        with one_thread_a_product():
            for name, (disk, held) in pairs.items():
                warm, cold = [], []
                for k in range(2 * sizes.repeats + 1):  # the first pass of each is a warm-up
                    base, _ = timed(lambda s=held: s.sum_gradients(LOSS, w))
                    took, _ = timed(lambda s=disk: s.sum_gradients(LOSS, w))
                    if k:
                        warm.append(took / base)
                for _ in range(sizes.repeats if forget(Path(folder)) else 0):
                    base, _ = timed(lambda s=held: s.sum_gradients(LOSS, w))
                    forget(Path(folder))
                    cold.append(timed(lambda s=disk: s.sum_gradients(LOSS, w))[0] / base)
                answer[f"ratio_streamed_{name}"] = float(np.median(warm))
                answer[f"ratio_streamed_{name}_cold"] = float(np.median(cold)) if cold else None
    return answer


def forget(folder: Path) -> bool:
    """Ask the system to drop the files of a folder from its cache; False where it cannot be
    asked.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in folder.rglob("site-*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


PARTS: dict[str, Callable[[Sizes], dict[str, Any]]] = {
    "adult": adult_run,
    "peers": lambda sizes: peers(sizes.quick, sizes.repeats),
    "schema": schema,
    "cvxpy": cvxpy_solve,
    "one_site": one_site,
    "growth": growth,
    "streamed": streamed,
    "thousand": thousand,
    "study": study,
}


APART = ("cvxpy", "thousand")


def here(part: str) -> bool:
    """Whether what a part measures is installed."""
    return part != "cvxpy" or find_spec("cvxpy") is not None


def apart(part: str, arguments: list[str]) -> dict[str, Any]:
    """A part in a process of its own."""
    command = [sys.executable, __file__, "--json", "--part", part, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


NOTES = (
    "Every local solve of ours, scipy and Newton has a gradient norm of at most 1e-8 C; same "
    "noise, same recurrence.",
    "Rivals run one replicate, with the better of one thread and the library's default; ours "
    "uses all threads.",
    "scikit-learn: one noise-free local problem without its linear term, from zero, times the "
    "number of solves.",
    "CVXPY: one local solve, times the number of solves; its certificate is what its default "
    "solver reached.",
    "diffprivlib: the proof (Chaudhuri et al. 2011) holds for exact minimisers, and it releases "
    "what L-BFGS found, "
    "with noise of floating point; ours pays for the solver's error inside epsilon.",
)


def show(answer: dict[str, Any]) -> None:
    """Tables and notes."""
    console = Console(width=120)
    labels = {
        "ours": "sottovoce, all replicates",
        "single": "sottovoce, one replicate",
        "scipy": "scipy L-BFGS-B",
        "newton": "Newton by hand",
        "sklearn": "scikit-learn newton-cholesky",
        "cvxpy": "CVXPY",
    }
    table = Table(title="Private R-ADMM on Adult, a replicate", title_justify="left", box=None)
    for name in (
        "solver",
        "seconds",
        "over ours in a batch",
        "over ours alone",
        "MiB",
        "certificate",
        "difference",
    ):
        table.add_column(name, justify="left" if name == "solver" else "right")
    cells = {name: answer.get(f"seconds_{name}") for name in labels} | {
        "ours": answer["seconds_share"]
    }
    ratios = {
        "single": answer["seconds_single"] / answer["seconds_share"],
        "scipy": answer["ratio_scipy"],
        "newton": answer["ratio_newton"],
        "sklearn": answer["ratio_sklearn_no_linear_term"],
        "cvxpy": answer.get("ratio_cvxpy_extrapolated"),
        "ours": 1.0,
    }
    single = {
        "scipy": answer["ratio_scipy_single"],
        "newton": answer["ratio_newton_single"],
        "single": 1.0,
    }
    apart_from = {
        "scipy": "difference",
        "newton": "difference_newton",
        "ours": "difference_batch",
        "sklearn": "difference_sklearn_local",
        "cvxpy": "difference_cvxpy_local",
    }
    for name, label in labels.items():
        if cells[name] is None:
            table.add_row(label, str(answer.get(name, "not run")))
            continue
        certificate = answer.get(f"certificate_{name}", TOL)
        row = (
            cells[name],
            ratios[name],
            single.get(name),
            answer[f"memory_mib_{name}"],
            certificate,
            answer.get(apart_from.get(name, "")),
        )
        table.add_row(label, *("" if x is None else f"{x:.3g}" for x in row))
    console.print(table)
    rest = Table(title="All figures", title_justify="left", box=None)
    rest.add_column("figure")
    rest.add_column("value", justify="right")
    for key, value in answer.items():
        plain = [f"{x:.3g}" for x in value] if isinstance(value, list) else value
        text = (
            f"{value:.4g}"
            if isinstance(value, float)
            else ", ".join(plain)
            if isinstance(value, list)
            else plain
        )
        if isinstance(value, dict):
            text = ", ".join(
                f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in value.items()
            )
        rest.add_row(key.replace("_", " "), str(text))
    console.print(rest)
    for note in NOTES:
        console.print(note, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that it runs, measures nothing"
    )
    parser.add_argument("--repeats", type=int, default=5, help="paired runs; medians are reported")
    parser.add_argument("--part", choices=PARTS, help="one part alone")
    arguments = parser.parse_args()
    sizes = Sizes(repeats=arguments.repeats)
    if arguments.quick:
        sizes = Sizes(
            rounds=4,
            replicates=2,
            repeats=1,
            nodes=10,
            study_rounds=4,
            study_replicates=2,
            base=1,
            quick=True,
        )
    started = time.perf_counter()
    if arguments.part:
        answer = PARTS[arguments.part](sizes)
    else:
        answer = {}
        for name, part in PARTS.items():
            quick = ["--quick"] if arguments.quick else []
            answer |= apart(name, quick) if name in APART and here(name) else part(sizes)
            if "seconds_cvxpy_one_solve" in answer:
                answer["seconds_cvxpy"] = answer["seconds_cvxpy_one_solve"] * answer["local_solves"]
                answer["ratio_cvxpy_extrapolated"] = (
                    answer["seconds_cvxpy"] / answer["seconds_share"]
                )
            print(f"{name}: done after {time.perf_counter() - started:.0f} s", file=sys.stderr)
    answer["seconds_in_all"] = time.perf_counter() - started
    if arguments.json:
        print(json.dumps(answer))
    elif arguments.part:
        Console(width=120).print(answer)
    else:
        show(answer)


if __name__ == "__main__":
    main()
