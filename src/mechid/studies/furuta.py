"""`furuta`: a Furuta pendulum by joint state and parameter estimation (Marklund et al., Section 4).

synthetic  data of Appendix G.3, made at 1e-4 s: J_Azz, J_Byy and friction from Table 1's starts, and how they
           depend on step, compliance and state error weight (Figs. 4, 6, 7)
scenarios  release, pulse and swing-up on a tilted stand with dry friction, made in the place of the paper's own
           recordings: 13 parameters beside Table 4, cross-validation, the shadow parameters of Section 4.9
real       (data=real) logs of a Quanser QUBE: the same parameters, delay and cable of a real pendulum, other logs
           cross-validated and simulated

κ is given as in the paper, for residuals in rad. The state errors are the impulses that lead from velocity to
velocity (the paper's Δp_v; positions follow velocities exactly). The parameters are the joint optimum of states and
parameters as in the paper, or the likeliest ones with states integrated out (optimum=likeliest). Dry friction is
bounded by the joint's load at a radius of 1 m (F.4). Made data are fitted by SPOOK as in the paper, which is of
first order and finds parameters of its own; or by the variational integrator, which finds the true ones.
"""

from __future__ import annotations

import numpy as np

from mechid.errors import MechidError
from mechid.studies import furuta_real, furuta_scenarios, furuta_synthetic
from mechid.studies.furuta_model import FRICTIONS, TRUTH, positive, true_values
from mechid.studies.furuta_sweep import SWEEPS
from mechid.studies.identification import chosen
from mechid.studies.study import Settings, Study
from mechid.studies.unused import alike, refuse_unused

PARTS = {
    "synthetic": furuta_synthetic.run,
    "scenarios": furuta_scenarios.run,
}
OPTIMA = ("joint", "likeliest")
SETTINGS: Settings = {
    "data": "synthetic",
    "part": "all",
    "friction": "default",
    "state_error_weight": 0.0,
    "optimum": "joint",
    "compliance": 1e-5,
    "relaxation_time": 0.02,
    "dt": 0.0,
    "stepper": "default",
    "log_time": 0.0,
    "logs": 1,
    "held": 0,
    "compare": "all",
    "time": 20.0,
    "truth_dt": 1e-4,
    "truth_compliance": 1e-5,
    "noise": 1e-3,
    "sweep": "all",
    "seed": 0,
    **{f"truth.{name}": value for name, value in TRUTH.items()},
}
ABOUT = {
    "data": "synthetic: made; real: logs of a Quanser QUBE (in the reference folder)",
    "part": f"of made data: all, or one of {', '.join(PARTS)}",
    "friction": "viscous, dry, stribeck; default: viscous for synthetic and where compare=none, otherwise dry",
    "state_error_weight": "κ, for residuals in rad; 0: the paper's 100; real: by the likelihood of the data",
    "optimum": f"of made data's estimation: {', '.join(OPTIMA)}",
    "compliance": "of joints in the fit, m/N and rad/(N·m)",
    "relaxation_time": "of joints, s",
    "dt": "step of the fit, s; 0: 0.01, real: 0.004",
    "stepper": "of the fit: spook, variational; default: spook, for real data only where one of its numbers is set",
    "log_time": "real: seconds of each log that are used; 0: all",
    "logs": "real: how many of each kind of motion are fitted",
    "held": "real: how many others of each kind are held out; 0: all",
    "compare": "real: all, none: whether sizes of state errors and simpler models are compared",
    "time": "length of the logs that are made, s (scenarios: at most 10)",
    "truth_dt": "step at which data are made, s",
    "truth_compliance": "of joints in the data",
    "noise": "std of the angles, rad",
    "sweep": f"{', '.join(SWEEPS)} (scenarios: compliance and weight)",
    "seed": "of the noise",
    **{f"truth.{name}": "that the data are made with, SI" for name in TRUTH},
}
QUICK: Settings = {
    "part": "synthetic",
    "time": 4.0,
    "truth_dt": 2e-4,
    "sweep": "none",
    "held": 1,
    "compare": "none",
}
FRICTION_TRUTHS = {("dry", "stribeck"): ("truth.mu1", "truth.mu2"), ("stribeck",): ("truth.S1", "truth.S2")}
"""which kinds of friction have them"""
OF_SPOOK = "is one of SPOOK: use stepper=spook, or leave it out"
STEPS = {"synthetic": 0.01, "real": 0.004}
"""s, of the fit where none is given"""


def run(settings: Settings, study: Study) -> None:
    data = chosen(settings, "data", STEPS)
    settings = settings | {"dt": settings["dt"] or STEPS[data]}
    chosen(settings, "part", ("all", *PARTS))
    chosen(settings, "friction", ("default", *FRICTIONS))
    chosen(settings, "sweep", SWEEPS)
    chosen(settings, "optimum", OPTIMA)
    chosen(settings, "stepper", ("default", "variational", "spook"))
    chosen(settings, "compare", ("all", "none"))
    for key in ("compliance", "relaxation_time", "dt", "time", "truth_dt", "truth_compliance", "noise"):
        positive(settings, key)
    if not (np.isfinite(settings["state_error_weight"]) and settings["state_error_weight"] >= 0.0):
        raise MechidError(
            f"Setting state_error_weight must be ≥ 0 and finite, not {settings['state_error_weight']}."
        )
    true_values(settings)
    for key in ("seed", "held", "log_time"):
        if not 0 <= settings[key] < np.inf:
            raise MechidError(f"Setting {key} must be ≥ 0 and finite, not {settings[key]}.")
    if data == "real":
        furuta_real.run(_real(settings), study)
    else:
        for name, taken in _made(settings).items():
            PARTS[name](taken, study)
    told = ("parameters", "iterations", "cost", "seconds", "outcome", "validation")
    first = study.result[next(n for n in (*PARTS, "real") if n in study.result)]
    study.result |= {k: first[k] for k in told if k in first}


def _made(settings: Settings) -> dict[str, Settings]:
    """Settings of each part of made data; those that no part uses are refused."""
    parts = tuple(PARTS) if settings["part"] == "all" else (str(settings["part"]),)
    wanted = settings["friction"]
    usual = {"synthetic": "viscous", "scenarios": "dry"}
    friction = {name: usual[name] if wanted == "default" else wanted for name in parts}
    unused = alike(("log_time", "logs", "held", "compare"), "is of logs: use data=real, or leave it out")
    if parts == ("synthetic",):
        level = (
            "is for the scenarios, the released pendulum stands level and has no motor: use part=scenarios"
        )
        unused |= alike(("truth.K", "truth.tilt_x", "truth.tilt_y", "truth.tilt_z"), level)
    for kinds, names in FRICTION_TRUTHS.items():
        if not set(friction.values()) & set(kinds):
            others = " or ".join(f"friction={kind}" for kind in kinds)
            unused |= alike(names, f"is not used with this friction: use {others}, or leave it out")
    if settings["stepper"] == "variational":
        unused["compliance"] = OF_SPOOK
        if settings["sweep"] == "compliance":
            unused["sweep"] = "is over a number of SPOOK: use stepper=spook, or all, none, dt or weight"
    if parts == ("scenarios",) and settings["sweep"] == "dt":
        unused["sweep"] = "is over dt, which is for part=synthetic: use compliance, weight, all or none"
    refuse_unused(settings, SETTINGS, QUICK, unused)
    stepper = "spook" if settings["stepper"] == "default" else settings["stepper"]
    return {name: settings | {"friction": friction[name], "stepper": stepper} for name in parts}


def _real(settings: Settings) -> Settings:
    """Settings of the real pendulum; those of made data are refused."""
    made = (*(k for k in SETTINGS if k.startswith("truth")), "time", "noise", "seed")
    unused = alike(made, "is what data are made with: leave it out with data=real")
    unused |= alike(("part", "sweep", "optimum"), "is of made data: leave it out with data=real")
    stepper = settings["stepper"]
    soft = [k for k in ("compliance", "relaxation_time") if settings[k] != SETTINGS[k]]
    if stepper == "variational":
        unused |= alike(soft, OF_SPOOK)
    refuse_unused(settings, SETTINGS, QUICK, unused)
    if stepper == "default":
        stepper = "spook" if soft else "variational"
    friction = settings["friction"]
    if friction == "default":
        friction = "viscous" if settings["compare"] == "none" else "dry"
    return settings | {"friction": friction, "stepper": stepper}
