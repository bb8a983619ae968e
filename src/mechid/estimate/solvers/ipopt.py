"""IPOPT, an interior-point method for large sparse nonlinear programs, as CasADi's wheels bring it.

    min f(v)    with    lower ≤ v ≤ upper,    row_lower ≤ g(v) ≤ row_upper

Bounds become a barrier −μ Σ log(distance), and μ goes to zero (Wächter and Biegler, 2006). CasADi is an extra of
the package and only hands numbers through: values and derivatives are those of the program.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse

from mechid.errors import MechidError

Sparse = scipy.sparse.csc_array

TOLERANCE = 1e-8
"""of slopes, rows and barrier, in the program's units"""
ACCEPTABLE = 1e-6
"""of the same, where rounding lets nothing better be reached"""
ENDS = {
    "Solve_Succeeded": "slopes and equations are zero to 1e-8 of their scale",
    "Solved_To_Acceptable_Level": "slopes and equations are zero to 1e-6 of their scale, and fall no further",
    "Maximum_Iterations_Exceeded": "allow more of them",
    "Search_Direction_Becomes_Too_Small": "IPOPT's steps became too small before its conditions held",
    "Infeasible_Problem_Detected": "IPOPT finds no states near here that solve the equations",
    "Restoration_Failed": "IPOPT finds no way back to states that solve the equations",
    "Diverging_Iterates": "the unknowns run away",
    "Invalid_Number_Detected": "the equations cannot be computed where IPOPT went",
}
STOP = 1.0
"""what a watch tells IPOPT to end it"""
CONVERGED = ("Solve_Succeeded", "Solved_To_Acceptable_Level")


class SparseProgram(Protocol):
    """What IPOPT sees; unknowns, f and rows should be of the order of one."""

    @property
    def start(self) -> np.ndarray: ...
    @property
    def lower(self) -> np.ndarray: ...
    @property
    def upper(self) -> np.ndarray: ...
    @property
    def row_lower(self) -> np.ndarray: ...
    @property
    def row_upper(self) -> np.ndarray: ...

    def values(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        """f and g; not finite where they cannot be computed"""
        ...

    def slopes(self, v: np.ndarray) -> tuple[np.ndarray, Sparse]:
        """∇f and ∂g/∂v, the latter always with the same places"""
        ...

    def curvature(self, v: np.ndarray) -> Sparse:
        """The upper triangle of what stands for the Hessian, always with the same places."""
        ...


class Ended(NamedTuple):
    """Where IPOPT ended."""

    v: np.ndarray
    bound_multipliers: np.ndarray
    """> 0 at upper bounds, < 0 at lower ones"""
    status: str
    """in IPOPT's words"""

    @property
    def converged(self) -> bool:
        return self.status in CONVERGED

    @property
    def why(self) -> str:
        return ENDS.get(self.status, f"IPOPT says {self.status.replace('_', ' ')}")


Watch = Callable[[np.ndarray, np.ndarray], None]
"""sees the unknowns and the rows' multipliers of every iteration"""


def casadi_module() -> Any:
    """CasADi, or how to get it."""
    try:
        import casadi
    except ImportError:
        raise MechidError("Method 'ipopt' needs the extra: pip install 'mechid[ipopt]'.") from None
    return casadi


def interior_point(program: SparseProgram, max_iterations: int, watch: Watch) -> Ended:
    """Solve by IPOPT, silently. What `watch` or the program raise ends it and is raised again from here."""
    ca = casadi_module()
    raised: list[BaseException] = []
    n, m = len(program.start), len(program.row_lower)
    J, H = program.slopes(program.start)[1], program.curvature(program.start)
    rows, curved = (_pattern(ca, a) for a in (J, H))
    vector, one, height, none = (ca.Sparsity.dense(k) for k in (n, 1, m, 0))

    def function(
        name: str, takes: list[Any], gives: list[Any], body: Callable[..., list[Any]], failed: float = np.nan
    ) -> Any:
        class Function(ca.Callback):
            def __init__(self) -> None:
                ca.Callback.__init__(self)
                self.construct(name, {})

            def get_n_in(self) -> int:
                return len(takes)

            def get_n_out(self) -> int:
                return len(gives)

            def get_sparsity_in(self, i: int) -> Any:
                return takes[i]

            def get_sparsity_out(self, i: int) -> Any:
                return gives[i]

            def eval(self, given: list[Any]) -> list[Any]:
                # nothing may be raised through the C++ in between: from then on nothing can be computed
                if not raised:
                    try:
                        found = body(*(np.asarray(a.full()).ravel() for a in given))
                        return [ca.DM(s, np.ravel(x)) for s, x in zip(gives, found, strict=True)]
                    except BaseException as error:
                        raised.append(error)
                return [ca.DM(s, np.full(s.nnz(), failed)) for s in gives]

        return Function()

    def slopes(v: np.ndarray, _: np.ndarray) -> list[Any]:
        return [program.values(v)[0], program.slopes(v)[0]]

    def row_slopes(v: np.ndarray, _: np.ndarray) -> list[Any]:
        return [program.values(v)[1], program.slopes(v)[1].data]

    def curvature(v: np.ndarray, _: np.ndarray, by_f: np.ndarray, __: np.ndarray) -> list[Any]:
        return [by_f * program.curvature(v).data]

    def seen(v: np.ndarray, *rest: np.ndarray) -> list[Any]:
        watch(v, rest[3])
        return [STOP if raised else 0.0]

    values = function("values", [vector], [one, height], lambda v: list(program.values(v)))
    symbol = ca.MX.sym("v", n)
    f, g = values(symbol)
    empty = ca.Sparsity.dense(0, 0)
    options = {
        "grad_f": function("slopes", [vector, empty], [one, vector], slopes),
        "jac_g": function("row_slopes", [vector, empty], [height, rows], row_slopes),
        "hess_lag": function("curvature", [vector, empty, one, height], [curved], curvature),
        "iteration_callback": function(
            "seen", [vector, one, height, vector, height, none], [one], seen, STOP
        ),
        "no_nlp_grad": True,
        **dict.fromkeys(("calc_f", "calc_g", "calc_lam_x", "calc_lam_p"), False),
        **dict.fromkeys(("print_time", "show_eval_warnings", "error_on_fail"), False),
        "ipopt": {
            "print_level": 0,
            "sb": "yes",
            "max_iter": max_iterations,
            "tol": TOLERANCE,
            "acceptable_tol": ACCEPTABLE,
            "bound_relax_factor": 0.0,
            "nlp_scaling_method": "none",
        },
    }
    solver = ca.nlpsol("interior_point", "ipopt", {"x": symbol, "f": f, "g": g}, options)
    bounds = {"lbx": program.lower, "ubx": program.upper, "lbg": program.row_lower, "ubg": program.row_upper}
    with _noted(raised):
        out = solver(x0=program.start, **bounds)
    if raised:
        raise raised[0]
    v, multipliers = (np.asarray(out[k].full()).ravel() for k in ("x", "lam_x"))
    return Ended(v, multipliers, solver.stats()["return_status"])


@contextmanager
def _noted(raised: list[BaseException]) -> Iterator[None]:
    """Ctrl-C is noted and acted upon at the next iteration, since CasADi would tell it in words of its own."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: raised.append(KeyboardInterrupt()))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _pattern(ca: Any, a: Sparse) -> Any:
    """The places of a matrix in CasADi's words: columns one after another, rows rising."""
    height, width = a.shape  # type: ignore[misc]
    return ca.Sparsity(height, width, a.indptr.tolist(), a.indices.tolist())
