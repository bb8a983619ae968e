"""`Trajectory`: a simulated motion, and what can be read off it: coordinates, rates, energy, closure, frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.tree import Array
from mechid.errors import unknown
from mechid.model.system import System

PIECE = 256
"""steps a call of a compiled program"""

Controller = Callable[[Any, Any, Any], Any]
"""u = controller(t, q, v) in jax.numpy, from the state at the start of a step"""


class Law:
    """Base of controllers u = law(t, q, v, row) that see a row of data at each step, the first nu of it an input.

    A law is compiled into the program that uses it: it must be hashable, and hold nothing that changes from run
    to run; that belongs into the rows.
    """

    def __call__(self, t: Any, q: Any, v: Any, row: Any) -> Any:
        raise NotImplementedError


@jax.tree_util.register_pytree_node_class
class _OfState:
    """A controller u = f(t, q, v) as a law; the numbers of a `jax.tree_util.Partial` are its leaves."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller

    def __call__(self, t: Any, q: Any, v: Any, row: Any) -> Any:
        return self.controller(t, q, v)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        whole = isinstance(self.controller, jax.tree_util.Partial)
        return ((self.controller,), None) if whole else ((), self.controller)

    @classmethod
    def tree_unflatten(cls, known: Any, children: tuple[Any, ...]) -> _OfState:
        return cls(*(children or (known,)))


def as_law(controller: Controller | Law | None) -> Any:
    """A controller as a pytree u = law(t, q, v, row) that compiled programs take as an argument."""
    if controller is None or isinstance(controller, _OfState):
        return controller
    return jax.tree_util.Partial(controller) if isinstance(controller, Law) else _OfState(controller)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A simulated motion. Arrays over time come first-axis; N steps have N + 1 states."""

    mechanism: System
    stepper: Stepper
    model: Model
    t: np.ndarray
    """(N + 1,) s"""
    states: Any
    """the stepper's own states, N + 1"""
    multipliers: np.ndarray
    """(N, nz) impulses of the constraints over each step"""
    inputs: np.ndarray
    """(N, nu)"""
    iterations: np.ndarray
    """(N,)"""
    residual: np.ndarray
    """(N,) largest residual of each step as a multiple of its tolerance"""
    outcome: str
    """a sentence"""
    start: np.ndarray
    """(nq,) the coordinates that were asked for"""
    start_rates: np.ndarray
    """(nq,) and their rates"""
    controller: Controller | Law | None
    """what made the inputs, if it was a function"""
    rows: np.ndarray
    """(N, w) what the controller saw at each step besides time and state"""
    driven_rates: np.ndarray
    """(N + 1, driven) rates of driven coordinates over the step before each state"""
    every: int = 1
    """only every such state was kept, with the step that led to it"""

    @property
    def steps(self) -> int:
        return len(self.t) - 1

    @property
    def law(self) -> Any:
        """the controller as compiled programs take it"""
        return as_law(self.controller)

    @cached_property
    def q(self) -> np.ndarray:
        """(N + 1, nq) joint coordinates, rad or m; full turns are counted"""
        return _positions(self.stepper, self.model, self.states)

    @cached_property
    def v(self) -> np.ndarray:
        """(N + 1, nq) their rates"""
        return _rates(self.stepper, self.model, *self._along)

    @cached_property
    def energy(self) -> tuple[np.ndarray, np.ndarray]:
        """Kinetic and potential energy at each state, J."""
        return _energy(self.model, self.q, self.v)

    @cached_property
    def violation(self) -> np.ndarray:
        """(N + 1,) largest loop violation, m or rad; driven coordinates against their inputs."""
        return _violation(self.stepper, self.model, *self._along[:2])

    def frame(self, name: str) -> np.ndarray:
        """(N + 1, 4, 4) world poses of a frame."""
        names = self.mechanism.frame_names
        if name not in names:
            raise unknown("frame", name, names)
        return self._poses[:, names.index(name)]

    @cached_property
    def _poses(self) -> np.ndarray:
        return _frame_poses(self.model, self.q)

    @property
    def _along(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """States with the input that acted until each of them, and rates of driven coordinates."""
        inputs = self.inputs if self.steps else np.zeros((1, self.model.nu))
        reached = np.concatenate([inputs[:1], inputs])[: self.steps + 1]
        return self.states, reached, self.driven_rates


def _in_pieces(function: Callable[..., Any], along: int) -> Callable[..., Any]:
    """Map a function over its last `along` arguments, PIECE rows at a time so that it compiles once."""

    @jit
    def compiled(fixed: Any, rows: Any) -> Any:
        return jax.vmap(lambda *now: function(*fixed, *now))(*rows)

    def mapped(*arguments: Any) -> Any:
        fixed, rows = arguments[:-along], arguments[-along:]
        total, parts = len(jax.tree.leaves(rows)[0]), []
        for first in range(0, total, PIECE):
            pick = np.minimum(np.arange(first, first + PIECE), total - 1)
            out = compiled(fixed, jax.tree.map(lambda a, i=pick: a[i], rows))
            count = min(PIECE, total - first)
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
        return jax.tree.map(lambda *a: np.concatenate(a), *parts)

    return mapped


def _gap(stepper: Stepper, model: Model, x: Any, u: Array) -> Array:
    return jnp.max(jnp.abs(model.constraint(stepper.positions(model, x), u)[0]), initial=0.0)


_positions = _in_pieces(lambda stepper, model, x: stepper.positions(model, x), 1)
_rates = _in_pieces(lambda stepper, model, x, u, driven: stepper.velocities(model, x, u, driven), 3)
_energy = _in_pieces(lambda model, q, v: model.energy(q, v), 2)
_violation = _in_pieces(_gap, 2)
_frame_poses = _in_pieces(lambda model, q: model.frame_poses(q), 1)
