"""Peak memory and time to compile a fit, over shapes of mechanisms drawn with a fixed seed, beside the 7-joint arm.

    uv run python benchmarks/compilation.py [--first 60] [--only 0 12 …] [--limit 3.0] [--without]

Each shape is compiled in a process of its own, which is ended at `limit` GB or after 300 s. Nothing is fitted: the
logs are zeros. Seconds are of the processors (user and system), since those of the clock depend on what else runs.
--without: with XLA's flags as they were before `mechid.compile.ENDLESS`, to see what it is for.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

SEED, COUNT, SECONDS = 20260101, 60, 300.0
STEPS, DT = 136, 0.005
MOST_MEMORY, MOST_TIME = 1.5, 3.0
"""GB, and times what the arm takes"""
KINDS = ("stiffness", "damping", "mass", "com", "inertia", "rest", "other mass", "other stiffness")
"""what the free parameters are"""


def drawn() -> list[dict[str, Any]]:
    """The shapes: every third one a ring, the first few as they were found to fail."""
    rng = np.random.default_rng(SEED)
    shapes: list[dict[str, Any]] = [
        {"kind": "ring", "size": 8, "free": ["theta", "psi"], "joints": 0, "tip": True},
        {"kind": "chain", "size": 40, "free": list(KINDS), "joints": 8, "tip": True},
        {"kind": "ring", "size": 19, "free": ["theta", "psi", *KINDS[1:7]], "joints": 8, "tip": True},
    ]
    while len(shapes) < COUNT:
        kind = ("chain", "tree", "ring")[len(shapes) % 3]
        size = int(rng.integers(3, 20) if kind == "ring" else rng.integers(2, 41))
        free = [str(x) for x in rng.permutation(KINDS)[: rng.integers(1, 9)]]
        if kind == "ring":
            swap = {"stiffness": "theta", "other stiffness": "psi"}
            free = [swap.get(x, x) for x in free]
        tip = bool(rng.random() < 0.5)
        joints = int(rng.integers(0 if tip else 1, 9))
        shapes.append({"kind": kind, "size": size, "free": free, "joints": joints, "tip": tip})
    return shapes


def told(shape: dict[str, Any]) -> list[str]:
    n = shape["size"]
    coordinates = {"ring": 2 * n + 1, "arm": 7}.get(shape["kind"], n)
    sensors = f"{shape['joints']} joints" + (", tip" if shape["tip"] else "")
    return [shape["kind"], str(coordinates), str(len(shape["free"])), sensors]


# One shape, in a process of its own


def tree(n: int, parents: list[int]) -> Any:
    """n rods, each on a hinge at the end of another one."""
    from mechid import Mechanism

    m = Mechanism(f"tree of {n}")
    for i in range(n):
        parent, origin = ("world", (0, 0, 0)) if parents[i] < 0 else (f"link{parents[i]}", (0, 0, -0.1))
        m = m.body(f"link{i}", mass=1.0, com=(0, 0, -0.05), inertia=(1e-3, 1e-3, 1e-5))
        m = m.revolute(f"hinge{i}", parent, f"link{i}", axis="xy"[i % 2], origin=origin)
        m = m.damper(f"hinge{i}", damping=0.01).spring(f"hinge{i}", stiffness=0.1)
    return m.frame("tip", f"link{n - 1}", origin=(0, 0, -0.1)).force("push", "tip", axes="world")


def ring(n: int) -> Any:
    """n links on universal joints, closed by a point on an axis: 2 n + 1 coordinates."""
    from mechid import Mechanism, rotation_about

    length, mass = 6 / n, 1.2 / n
    m, parent, place = Mechanism(f"ring of {n}"), "world", {}
    turn = rotation_about("x", 2 * np.pi / n)
    inertia = mass * length**2 / 12
    for i in range(n):
        m = m.body(f"link{i}", mass=mass, com=(0, length / 2, 0), inertia=(inertia, 0, inertia))
        names = (f"theta{i}", f"psi{i}")
        m = m.universal(f"j{i}", parent, f"link{i}", axes="xz", coordinates=names, **place)
        m = m.spring(f"theta{i}", stiffness=20.0).spring(f"psi{i}", stiffness=20.0)
        parent, place = f"link{i}", {"origin": (0, length, 0), "rotation": turn}
    m = m.body("end").revolute("jend", parent, "end", axis="x", coordinates=f"theta{n}", **place)
    m = m.spring(f"theta{n}", stiffness=20.0).loop("closure", "world", "end", kind="point-on-axis")
    for x in m.coordinate_names:
        m = m.damper(x, damping=0.1)
    m = m.frame("tip", f"link{n // 2 - 1}", origin=(0, length, 0))
    return m.force("push", "tip", axes="world")


def freed(m: Any, shape: dict[str, Any]) -> Any:
    """The free parameters: of all parts alike, or of one of them."""
    from mechid import Parameters

    joint, axis = ("theta", "y") if shape["kind"] == "ring" else ("hinge", "z")
    n = shape["size"]
    names = {
        "theta": "theta*.stiffness",
        "psi": "psi*.stiffness",
        "stiffness": f"{joint}*.stiffness",
        "damping": f"{joint}*.damping",
        "mass": "link*.mass",
        "com": f"link0.com.{axis}",
        "inertia": "link0.inertia.xx",
        "rest": f"{joint}0.rest",
        "other mass": f"link{n - 1}.mass",
        "other stiffness": f"{joint}{n - 1}.stiffness",
    }
    free = Parameters(m)
    clash = [("mass", "other mass"), ("stiffness", "other stiffness")]
    for kind in shape["free"]:
        if any(kind == b and a in shape["free"] for a, b in clash):
            # one that belongs to none of the others
            names[kind] = f"link0.com.{'x'}" if kind == "other mass" else f"{joint}{min(1, n - 1)}.rest"
        free = free.free(names[kind], name=kind.replace(" ", "_"))
    return free


def compile_one(shape: dict[str, Any]) -> None:
    import mechid
    from mechid import Channel, Experiment, Log, Measured, Variational, frame_position, joint_position
    from mechid.estimate.prepare import prepared
    from mechid.estimate.warming import warm
    from mechid.studies import mechanisms

    mechid.enable_float64()
    n = shape["size"]
    if shape["kind"] == "arm":
        m = mechanisms.baxter_arm()
        m = mechanisms.damped(m, dict.fromkeys(m.coordinate_names, 0.5))
        free = mechid.Parameters(m)
        for name in shape["free"]:
            free = free.free(name)
    else:
        rng = np.random.default_rng(n)
        chain = shape["kind"] == "chain"
        parents = [i - 1 if chain or not i else int(rng.integers(-1, i)) for i in range(n)]
        m = ring(n) if shape["kind"] == "ring" else tree(n, parents)
        free = freed(m, shape)
    t = (np.arange(STEPS) + 0.5) * DT
    ends, zeros = DT * np.arange(STEPS + 1), np.zeros(STEPS + 1)
    seen = list(m.coordinate_names)[: shape["joints"]]
    channels = {x: Channel(ends, zeros, "") for x in seen}
    channels |= {f"u{i}": Channel(t, zeros[1:], "") for i in range(len(m.input_names))}
    measured = [Measured(joint_position(m, *seen), tuple(seen), std=1e-3)] if seen else []
    if shape["tip"]:
        channels |= {f"tip{x}": Channel(ends, zeros, "m") for x in "xyz"}
        measured.append(Measured(frame_position(m, "tip"), ("tipx", "tipy", "tipz"), std=1e-3))
    inputs = {x: f"u{i}" for i, x in enumerate(m.input_names)}
    experiment = Experiment(Log("zeros", channels, ()), measured, inputs=inputs)
    shooting = prepared(Variational(DT), experiment, free)
    before, began = _processor(), time.perf_counter()
    warm(shooting, adjoint=False)
    print(json.dumps({"cpu": _processor() - before, "clock": time.perf_counter() - began}))


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# All shapes


def watched(shape: dict[str, Any], limit: float, flags: dict[str, str]) -> dict[str, Any]:
    """What compiling one shape took; why it was ended, if it was."""
    command = [sys.executable, __file__, "--one", json.dumps(shape)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | flags
    )
    statm, page = Path(f"/proc/{process.pid}/statm"), os.sysconf("SC_PAGE_SIZE")
    peak, began, why = 0.0, time.monotonic(), ""
    while process.poll() is None:
        try:
            peak = max(peak, int(statm.read_text().split()[1]) * page / 1e9)
        except (OSError, IndexError):
            break
        if peak > limit or time.monotonic() - began > SECONDS:
            why = "memory" if peak > limit else "time"
            process.kill()
        time.sleep(0.05)
    out, errors = (x.decode() for x in process.communicate())
    found = {"peak": peak, "why": why}
    if not why and process.returncode:
        found["why"] = (errors.strip().splitlines() or ["failed"])[-1][:80]
    elif not why:
        found |= json.loads(out.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one")
    parser.add_argument("--first", type=int, default=COUNT)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--limit", type=float, default=3.0)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    if args.one:
        compile_one(json.loads(args.one))
        return
    flags = {}
    if args.without:
        # what LLVM has by default where it is broken; elsewhere this changes nothing but its schedules
        flags["XLA_FLAGS"] = "--xla_backend_extra_options=-dag-maps-huge-region=500"
    arm = {"kind": "arm", "size": 7, "joints": 7, "tip": False}
    arm["free"] = ["*.damping", "right_lower_elbow.mass", "right_lower_elbow.com.x", "right_upper_elbow.mass"]
    table = Table("", "shape", "coordinates", "free", "sensors", "peak", "processor", "clock", "÷ arm", "")
    reference = 0.0
    shapes = drawn()
    for i in [-1, *(args.only or range(args.first))]:
        shape = arm if i < 0 else shapes[i]
        found = watched(shape, args.limit, flags)
        reference = found.get("cpu", np.nan) if i < 0 else reference
        ratio = found.get("cpu", np.nan) / reference
        fine = not found["why"] and found["peak"] <= MOST_MEMORY and ratio <= MOST_TIME
        cells = [str(i) if i >= 0 else "", *told(shape), f"{found['peak']:.2f} GB"]
        cells += [f"{found[k]:.1f} s" if k in found else "–" for k in ("cpu", "clock")]
        cells += [f"{ratio:.2f}", found["why"] or ("" if fine else "over")]
        table.add_row(*cells)
        print("\t".join(cells), flush=True)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
