"""`Stepper`: a time-discrete mechanical model as a residual between neighbouring states.

    r(x_k, …, x_{k+1}, z_k, u_k, t_k; θ) = 0

z_k are the unknowns of the interval (multipliers), kept explicit. A stepper writes `residual`; everything else
has a default that follows from it: `linearize` by automatic differentiation, the transition matrices A_k, B_k by
implicit differentiation. Steppers are immutable pytrees: their numbers are traced, their choices are static.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from math import comb
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from mechid.dynamics import dry
from mechid.dynamics.linear import Factors, decomposed, solve, solve_transposed
from mechid.dynamics.model import Model, float_leaves, with_float_leaves
from mechid.dynamics.tree import Array
from mechid.errors import MechidError


class RowKind(enum.Enum):
    """What a row of the residual is."""

    DYNAMIC = "impulse: may be softened by a weight"
    KINEMATIC = "how coordinates follow from rates: a definition, softened only as an impulse of its own"
    HARD = "constraint: never softened"
    FRICTION = "sticks or slides: never softened, with slopes of the case that holds"


class Outcome(enum.IntEnum):
    """How the solution of a step ended."""

    SOLVED = 0
    STALLED = 1
    SINGULAR = 2
    TOO_MANY = 3
    UNSETTLED = 4
    """friction, contacts or stops"""
    NOT_REACHED = 5
    """a step before it failed, or it was not asked for"""


def settled_outcome(left: Array, solved: Array) -> Array:
    """Of a step, from what is left of friction's rows and the outcome of the others."""
    fails = (left > dry.OPEN) & (solved == int(Outcome.SOLVED))
    return jnp.where(fails, int(Outcome.UNSETTLED), solved)


class StepResult(NamedTuple):
    state: Any
    z: Array
    outcome: Array
    """an `Outcome`"""
    iterations: Array
    residual: Array
    """largest residual as a multiple of its tolerance"""
    memory: Any = ()
    """what `remember` gives for the new state"""


class Blocks(NamedTuple):
    """The residual and its partial derivatives in tangent coordinates, at fixed states."""

    r: Array
    x: Array
    """(window + 1, rows, nx), oldest state first"""
    z: Array
    u: Array
    theta: Array


class LinearStep(Protocol):
    """A step linearised in the form in which it is solved: equations F = 0 for unknowns y, then the new state G.

    dy = −(∂F/∂y)⁻¹ (F_x dx + F_u du + F_θ dθ),   dx₁ = G_y dy + G_x dx + G_u du + G_θ dθ,   dz the last of dy

    with x the window's past states in a row. F_θ and G_θ come from `Stepper.sides`.
    """

    def forward(self, dx: Array, du: Array, dF: Array, dG: Array) -> tuple[Array, Array]:
        """dx₁ and dz for columns of changes; dF and dG are what the parameters add."""
        ...

    def backward(self, by_state: Array, by_z: Array) -> tuple[Array, Array, Array]:
        """What a cost's slopes by the new state and by z say of the past states, the inputs, and F."""
        ...


class DenseStep(NamedTuple):
    """A linear step for any stepper: y is the new state and z, all rows are equations."""

    factors: Factors
    F_x: Array
    F_u: Array

    def forward(self, dx: Array, du: Array, dF: Array, dG: Array) -> tuple[Array, Array]:
        dy = -solve(self.factors, self.F_x @ dx + self.F_u @ du + dF)
        nx = dG.shape[0]
        return dy[:nx] + dG, dy[nx:]

    def backward(self, by_state: Array, by_z: Array) -> tuple[Array, Array, Array]:
        by_F = -solve_transposed(self.factors, jnp.concatenate([by_state, by_z]))
        return self.F_x.T @ by_F, self.F_u.T @ by_F, by_F


class Transition(NamedTuple):
    """dx_{k+1} = Σ_j A_j dx_{k+1−window+j} + B_u du + B_θ dθ, and the same for the multipliers dz_k."""

    A: Array
    """(window, nx, nx)"""
    B_u: Array
    B_theta: Array
    z_x: Array
    """(window, nz, nx)"""
    z_u: Array
    z_theta: Array


class Observation(NamedTuple):
    """What sensors see, whichever stepper moved the mechanism."""

    t: Array
    q: Array
    """joint coordinates, rad or m"""
    v: Array
    """their rates"""
    frames: Array
    """(f, 4, 4) world poses of the world, every body, every named frame"""
    twists: Array
    """(f, 6) angular velocity and velocity of each frame's origin, world axes"""
    force: Array
    """generalized force of motors, dampers, friction and applied forces on each coordinate, N·m or N;
    springs and gravity, which have a potential, are not in it"""
    reaction: Array
    """forces of loops, couplings and drives: Dhᵀ reaction acts on the coordinates, N or N·m"""
    u: Array


class Seen:
    """An `Observation` whose parts are worked out when they are asked for, so that nothing else is compiled."""

    def __init__(self, **parts: Callable[[Seen], Array]) -> None:
        self._parts = parts

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._parts:
            raise AttributeError(name)
        value = self._parts[name](self)
        setattr(self, name, value)
        return value


class Stepper(abc.ABC):
    """Base of all steppers: what can be derived from `residual`, `retract` and `local`."""

    dt: Any
    """step size, s: one number, or one for each step where the stepper allows it"""
    window: int = 1
    """past states in the residual"""
    smooth: bool = True
    """False with set-valued forces"""
    products: bool = False
    """a state is a product with the model's numbers in it (p = M v)"""

    # What a stepper writes

    @abc.abstractmethod
    def nx(self, model: Model) -> int:
        """Size of a state's tangent vector."""

    @abc.abstractmethod
    def nz(self, model: Model) -> int:
        """Unknowns of an interval: multipliers."""

    @abc.abstractmethod
    def rows(self, model: Model) -> tuple[RowKind, ...]:
        """What each row of the residual is."""

    @abc.abstractmethod
    def initial(self, model: Model, q: Array, v: Array, u: Array, t: Array) -> Any:
        """The state for coordinates and rates; it may depend on the model's numbers (p = M v)."""

    @abc.abstractmethod
    def residual(self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model) -> Array:
        """r of window + 1 states stacked oldest first; k selects start-up coefficients and step sizes."""

    @abc.abstractmethod
    def step(
        self,
        xs: Any,
        u: Array,
        t: Array,
        k: Array,
        model: Model,
        guess: tuple[Any, Array],
        memory: Any = None,
    ) -> StepResult:
        """The next state and multipliers, from `window` states stacked oldest first.

        memory: what `remember` gives for the newest state, if it is at hand.
        """

    @abc.abstractmethod
    def retract(self, x: Any, d: Array) -> Any:
        """The state reached from x along a tangent vector."""

    @abc.abstractmethod
    def local(self, x: Any, y: Any) -> Array:
        """The tangent vector from x to y: the inverse of `retract`."""

    @abc.abstractmethod
    def positions(self, model: Model, x: Any) -> Array:
        """Joint coordinates of a state."""

    @abc.abstractmethod
    def velocities(self, model: Model, x: Any, u: Array, driven: Array) -> Array:
        """Rates of the joint coordinates of a state; those of driven ones are given."""

    # What follows from it

    def on(self, mechanism: Any) -> Stepper:
        """The same stepper for a mechanism: what it says of parts by name, as numbers of their rows."""
        return self

    def boxed_positions(self, model: Model, x: Any) -> Array:
        """Where contacts, stops and dry friction are, in the order of their rows."""
        return self.positions(model, x)[model.dry.index]

    def step_size(self, k: Array) -> Array:
        """dt of step k."""
        dt = jnp.asarray(self.dt)
        return dt if dt.ndim == 0 else dt[jnp.minimum(k, dt.shape[0] - 1)]

    def remember(self, model: Model, x: Any, u: Array) -> Any:
        """What a step to x has computed and the step from x can use again."""
        return ()

    def inertia(self, model: Model, x: Any) -> Array:
        """Momenta for rates, in the order of the kinematic rows, of a stepper that has such rows."""
        raise NotImplementedError

    def row_inertias(self, model: Model, q: Array) -> Array:
        """(dynamic rows,) what their impulses move, kg or kg·m²."""
        count = sum(kind is RowKind.DYNAMIC for kind in self.rows(model))
        return jnp.tile(jnp.diagonal(model.mass_matrix(q)), count // model.nq)

    def predict(self, history: Any, zs: Array, known: Array) -> tuple[Any, Array]:
        """A guess of the next state and multipliers from the last HISTORY states (oldest first), `known`
        of them true, and multipliers, one less of which are true."""
        return jax.tree.map(lambda a: a[-1], history), zs[-1]

    def observe(
        self, x0: Any, x1: Any, z: Array, u: Array, t: Array, k: Array, s: Array, model: Model
    ) -> Observation:
        """What sensors see at the fraction s of the interval, by cubic interpolation of the ends."""
        seen = self.seen(x0, x1, z, u, t, k, s, model)
        return Observation(*(getattr(seen, name) for name in Observation._fields))

    def seen(self, x0: Any, x1: Any, z: Array, u: Array, t: Array, k: Array, s: Array, model: Model) -> Seen:
        """The same, each part worked out when it is asked for."""
        h = self.step_size(k)
        q0, q1 = self.positions(model, x0), self.positions(model, x1)
        gap = q1 - q0
        driven = gap[model.driven] / h
        v0, v1 = (self.velocities(model, x, u, driven) for x in (x0, x1))
        q = q0 + s * (h * v0 + s * (3 * gap - h * (2 * v0 + v1) + s * (h * (v0 + v1) - 2 * gap)))
        inner = 2 * (3 * gap - h * (2 * v0 + v1)) + s * 3 * (h * (v0 + v1) - 2 * gap)
        v = v0 + s * inner / h
        return self._seen(q, lambda: v, z, u, t + s * h, h, model)

    def seen_at_end(
        self, x0: Any, x1: Any, z: Array, u: Array, t: Array, k: Array, s: Array, model: Model
    ) -> Seen:
        """What sensors see at an end of the interval, s = 0 or 1: nothing has to be interpolated."""
        h = self.step_size(k)
        x = jax.tree.map(lambda a, b: jnp.where(s > 0.5, b, a), x0, x1)

        def rates() -> Array:
            driven = (self.positions(model, x1) - self.positions(model, x0))[model.driven] / h
            return self.velocities(model, x, u, driven)

        return self._seen(self.positions(model, x), rates, z, u, t + s * h, h, model)

    def at(self, q: Array, v: Array, z: Array, u: Array, t: Array, model: Model) -> Seen:
        """What sensors see at given coordinates and rates."""
        return self._seen(q, lambda: v, z, u, t, self.step_size(jnp.asarray(0)), model)

    def _seen(
        self, q: Array, rates: Callable[[], Array], z: Array, u: Array, t: Array, h: Array, model: Model
    ) -> Seen:
        return Seen(
            t=lambda _: t,
            q=lambda _: q,
            v=lambda _: rates(),
            frames=lambda _: model.frame_poses(q),
            twists=lambda o: model.frame_twists(q, o.v),
            force=lambda o: model.terms(q, o.v, u, t).force,
            reaction=lambda _: self.reactions(z, h, model),
            u=lambda _: u,
        )

    def reactions(self, z: Array, h: Array, model: Model) -> Array:
        """Forces of loops, couplings and drives from the multipliers of a step."""
        return -z[: model.nc] / h

    def linearize(
        self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model, tangent: Any = None
    ) -> Blocks:
        """The residual's partial derivatives in tangent coordinates; here by automatic differentiation."""
        still = jnp.zeros((self.window + 1, self.nx(model)))

        def moved(d: Array, z: Array, u: Array, m: Model) -> Array:
            return self.residual(jax.vmap(self.retract)(xs, d), z, u, t, k, m)

        r, (by_x, by_z, by_u), by_theta = columns(moved, (still, z, u), model, tangent)
        return Blocks(r, jnp.moveaxis(by_x, 1, 0), by_z, by_u, by_theta)

    def unknowns(self, model: Model) -> int:
        """Of `system`."""
        return self.nx(model) + self.nz(model)

    def system(
        self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model, tangent: Any = None
    ) -> tuple[Array, Array]:
        """The linearised residual as a matrix and its right sides, columns as in `intervals`."""
        dynamic = np.array([kind is RowKind.DYNAMIC for kind in self.rows(model)])
        by = self.linearize(xs, z, u, t, k, model, tangent)
        errors = np.eye(len(dynamic))[:, dynamic]
        known = jnp.concatenate([errors, *(-x for x in by.x[:-1]), -by.theta, -by.r[:, None]], -1)
        return jnp.concatenate([by.x[-1], by.z], -1), known

    def system_rows(self, model: Model) -> np.ndarray:
        """Which rows of the residual `system` has, in its order."""
        return np.arange(len(self.rows(model)))

    def completed(self, xs: Any, k: Array, model: Model, solved: Array) -> tuple[Array, Array]:
        """Rows of the newest state and of the multipliers, from the solution of `system`."""
        return solved[: self.nx(model)], solved[self.nx(model) :]

    def linear_step(self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model) -> LinearStep:
        """The step linearised as it is solved."""
        by = self.linearize(xs, z, u, t, k, model)
        K = jnp.concatenate([by.x[-1], by.z], -1)
        return DenseStep(decomposed(K), jnp.concatenate(list(by.x[:-1]), -1), by.u)

    def sides(self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model) -> tuple[Array, Array]:
        """F and G of `linear_step` at fixed states, for their dependence on the model's numbers."""
        return self.residual(xs, z, u, t, k, model), jnp.zeros(self.nx(model))

    def transition(
        self, xs: Any, z: Array, u: Array, t: Array, k: Array, model: Model, tangent: Any = None
    ) -> Transition:
        """A_k and B_k (Caldwell, Eqs. 6–8), multipliers included, by implicit differentiation."""
        return implicit(self.linearize(xs, z, u, t, k, model, tangent))

    def check(self, model: Model, steps: int) -> None:
        """Refuse step sizes that make no sense."""
        try:
            dt = np.asarray(self.dt, dtype=float)
        except (TypeError, ValueError):
            raise MechidError(f"The step size dt must be a number, not {self.dt!r}.") from None
        if dt.ndim > 1 or not np.all(np.isfinite(dt)) or not np.all(dt > 0.0):
            raise MechidError(f"The step size dt must be positive and finite, not {self.dt}.")
        if dt.ndim == 1 and len(dt) != steps:
            raise MechidError(f"{len(dt)} step sizes were given for {steps} steps.")


def refuse_one_sided(stepper: Stepper, model: Model) -> None:
    """For steppers that know no impulses which only push."""
    found = {"stops": model.stops.index.shape[0], "contacts": model.contacts.friction.shape[0]}
    what = next((name for name, there in found.items() if there), None)
    if what is not None:
        raise MechidError(f"{type(stepper).__name__} knows no {what}: Spook does.")
    grown = np.flatnonzero(np.asarray(model.dry.values)[:, 4] > 0.0)
    if not np.isin(grown, model.dry.loaded).all():
        raise MechidError(
            f"{type(stepper).__name__} takes a load_coefficient of dry friction only where the mechanism was made "
            "with one that is not 0: make it with one, or use Spook."
        )


def held(model: Model, q: Array, v: Array, u: Array, t: Array) -> tuple[Array, Array]:
    """Constraints on coordinates, then those on rates: what must vanish, and the directions of their forces."""
    closure, slope = model.constraint(q, u)
    if not model.nr:
        return closure, slope
    rolling, along = model.rolling(q, v, t)
    return jnp.concatenate([closure, rolling]), jnp.concatenate([slope, along])


def opening(model: Model, q: Array, v: Array, u: Array, t: Array) -> tuple[Array, Array]:
    """What must vanish of rates, for loops to stay closed and for constraints on rates; and its slope by them."""
    slope = model.constraint(q, u)[1]
    if not model.nr:
        return slope @ v, slope
    rolling, along = model.rolling(q, v, t)
    return jnp.concatenate([slope @ v, rolling]), jnp.concatenate([slope, along])


HISTORY = 5
"""states that `predict` sees"""


def extrapolate(last: Array, known: Array) -> Array:
    """The next of a row of values from the last HISTORY (oldest first), `known` ≥ 1 of them true.

    Through as many as would have told the newest one best from those before it: all where the motion is smooth, few
    where noise drives it, which long polynomials would amplify.
    """
    weights = np.zeros((HISTORY, HISTORY))
    for m in range(1, HISTORY + 1):
        weights[m - 1, HISTORY - m :] = [(-1) ** (m - 1 - i) * comb(m, i) for i in range(m)]
    misses = jnp.sum((weights[:-1, 1:] @ last[:-1] - last[-1]) ** 2, -1)
    fewer = jnp.where(np.arange(1, HISTORY) < known, misses, jnp.inf)
    best = jnp.argmin(fewer) + 1
    best = jnp.where(
        (best == HISTORY - 1) & (known >= HISTORY), HISTORY, jnp.minimum(best, jnp.maximum(known, 1))
    )
    return jnp.asarray(weights)[best - 1] @ last


def implicit(blocks: Blocks) -> Transition:
    """Solve the linearised residual for the newest state and the multipliers."""
    window, nx = blocks.x.shape[0] - 1, blocks.x.shape[-1]
    known = jnp.concatenate([*blocks.x[:-1], blocks.u, blocks.theta], -1)
    solved = -jnp.linalg.solve(jnp.concatenate([blocks.x[-1], blocks.z], -1), known)
    ends = np.cumsum([nx] * window + [blocks.u.shape[-1]])
    *by_x, by_u, by_theta = jnp.split(solved, ends, axis=-1)
    A = jnp.stack(by_x)
    return Transition(A[:, :nx], by_u[:nx], by_theta[:nx], A[:, nx:], by_u[nx:], by_theta[nx:])


# Parameters enter through the model's float leaves.


def model_tangent(bind: Callable[[Array], Any], theta: Array) -> list[Array]:
    """∂(float leaves of the model)/∂θ, parameters last: what `linearize` takes as `tangent`."""
    return jax.jacfwd(lambda th: float_leaves(bind(th)))(theta)


def parameter_count(tangent: list[Any] | None) -> int:
    return next((slope.shape[-1] for slope in tangent or [] if slope is not None), 0)


def moving(tangent: list[Any]) -> list[Any]:
    """A tangent with None for the leaves that no parameter moves, so that nothing is computed for them.

    Where there is none (delays of inputs alone are free) the smallest is left, which tells their number.
    """
    moved = [bool(np.any(np.asarray(slope))) for slope in tangent]
    if tangent and not any(moved):
        moved[int(np.argmin([np.size(slope) for slope in tangent]))] = True
    return [slope if m else None for slope, m in zip(tangent, moved, strict=True)]


def moved_by(
    function: Callable[[Any], Any], model: Any, tangent: list[Any]
) -> tuple[Callable[..., Any], list]:
    """`function` of the moving leaves of a model alone, and those leaves."""
    floats = float_leaves(model)
    chosen = [x for x, slope in zip(floats, tangent, strict=True) if slope is not None]

    def of_moving(new: list[Array]) -> Any:
        rest = iter(new)
        all_floats = [x if slope is None else next(rest) for x, slope in zip(floats, tangent, strict=True)]
        return function(with_float_leaves(model, all_floats))

    return of_moving, chosen


def columns(
    function: Callable[..., Array], at: tuple[Array, ...], model: Any, tangent: Any
) -> tuple[Array, list[Array], Array]:
    """The value of function(*at, model), a vector, and its slopes by each argument and along `tangent`.

    All columns are differentiated together, so that the function is compiled once.
    """
    sizes = [a.size for a in at]
    count, ends = sum(sizes), np.cumsum(sizes)
    number = parameter_count(tangent)
    marks = tangent if number else [None] * len(float_leaves(model))
    _, chosen = moved_by(lambda m: m, model, marks)
    directions = [
        jnp.eye(count + number)[:, end - size : end].reshape(count + number, *a.shape)
        for a, size, end in zip(at, sizes, ends, strict=True)
    ]
    slopes = [
        jnp.concatenate([jnp.zeros((count, *s.shape[:-1])), jnp.moveaxis(s, -1, 0)])
        for s in marks
        if s is not None
    ]

    def value(at: tuple[Array, ...], numbers: list[Array]) -> Array:
        return moved_by(lambda m: function(*at, m), model, marks)[0](numbers)

    r, linear = jax.linearize(value, at, chosen)
    J = jax.vmap(lambda d, s: linear(tuple(d), s), out_axes=-1)(directions, slopes)
    parts = [
        J[:, end - size : end].reshape(J.shape[0], *a.shape)
        for a, size, end in zip(at, sizes, ends, strict=True)
    ]
    return r, parts, J[:, count:]


def without(model: Any, tangent: list[Any] | None, name: str) -> tuple[list[Any], Any]:
    """A tangent that leaves one of the model's fields alone, and that field's part of it; None where it rests."""
    if tangent is None:
        return [], None
    paths = [
        path[0].name
        for path, x in jax.tree_util.tree_flatten_with_path(model)[0]
        if jnp.issubdtype(x.dtype, jnp.inexact)
    ]
    rest = [None if path == name else slope for path, slope in zip(paths, tangent, strict=True)]
    return rest, next(slope for path, slope in zip(paths, tangent, strict=True) if path == name)


def along(function: Callable[[Any], Any], model: Any, tangent: Any, like: Any) -> Any:
    """∂function/∂θ for a model that moves along `tangent`, parameters last; no columns where there is none."""
    if not parameter_count(tangent):
        return jax.tree.map(lambda a: jnp.zeros((*a.shape, 0)), like)
    of_moving, chosen = moved_by(function, model, tangent)
    slopes = [slope for slope in tangent if slope is not None]

    def one(direction: list[Array]) -> Any:
        return jax.jvp(of_moving, (chosen,), (direction,))[1]

    return jax.vmap(one, in_axes=-1, out_axes=-1)(slopes)
