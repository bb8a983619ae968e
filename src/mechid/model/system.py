"""`System`: what mechanisms made of parts and mechanisms written down in symbols have in common.

Names of coordinates, inputs, constraints and frames, in the order in which they stand in the arrays, and the way to
these arrays. Whatever estimates, simulates or reports needs no more.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mechid.errors import unknown
from mechid.model.geometry import Array, finite

if TYPE_CHECKING:
    from mechid.dynamics.model import Model
    from mechid.model.addresses import Layout


class Lowered(abc.ABC):
    """A system on its way to arrays: where its numbers stand in one vector, and what is made of that vector."""

    layout: Layout
    values: Array
    """the system's own numbers"""

    @abc.abstractmethod
    def model(self, values: Any = None) -> Any:
        """The model for a vector of values (by default the system's own), traced or not."""

    @abc.abstractmethod
    def tangent(self, values: np.ndarray, slopes: np.ndarray) -> list[Any]:
        """∂(float leaves of the model)/∂θ, parameters last, from ∂values/∂θ (values, parameters)."""


class System(abc.ABC):
    """What is identified. Immutable, on the host; it never enters compiled code."""

    name: str
    notes: tuple[str, ...]
    bodies: tuple[Any, ...] = ()
    joints: tuple[Any, ...] = ()
    frames: tuple[Any, ...] = ()
    loops: tuple[Any, ...] = ()
    couplings: tuple[Any, ...] = ()
    combinations: tuple[Any, ...] = ()
    drives: tuple[Any, ...] = ()
    elements: tuple[Any, ...] = ()
    delays: Mapping[str, float] = MappingProxyType({})
    """s, by input: how much later it acts than it was logged"""

    if TYPE_CHECKING:  # a field of some, worked out by others

        @property
        def coordinates(self) -> tuple[Any, ...]:
            """The generalized coordinates: name, unit, whether they turn."""
            ...

    @property
    @abc.abstractmethod
    def frame_names(self) -> tuple[str, ...]:
        """The world and every frame."""

    @property
    @abc.abstractmethod
    def input_names(self) -> tuple[str, ...]:
        """The inputs u in their order."""

    @property
    @abc.abstractmethod
    def constraint_names(self) -> tuple[str, ...]:
        """One name a constraint row, in the order of the multipliers."""

    @abc.abstractmethod
    def checked(self) -> System:
        """This system, if it is complete."""

    @abc.abstractmethod
    def lowered(self) -> Lowered:
        """Its numbers and the way to its arrays."""

    @abc.abstractmethod
    def lower(self) -> Model:
        """The system with its own numbers as arrays: what the compiled code sees."""

    @abc.abstractmethod
    def renewed(self, layout: Layout, values: Array, tens: dict[int, Array]) -> System:
        """The system with another vector of values, and the ten physical numbers of some bodies."""

    @property
    def rolling_names(self) -> tuple[str, ...]:
        """One name for each constraint on rates that is none on coordinates."""
        return ()

    def combined(self, names: Sequence[str], numbers: Array) -> list[tuple[str, float, Array]]:
        """Expressions of parameters that its equations depend on: text, value, slopes by the named ones."""
        return []

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.coordinates)

    def coordinate(self, name: str) -> Any:
        for c in self.coordinates:
            if c.name == name:
                return c
        raise unknown("coordinate", name, self.coordinate_names)

    def axis(self, name: str) -> Any:
        """A coordinate or a combination of coordinates: what an element acts on, what a sensor measures."""
        for c in (*self.coordinates, *self.combinations):
            if c.name == name:
                return c
        if not self.combinations:
            return self.coordinate(name)
        valid = (*self.coordinate_names, *(c.name for c in self.combinations))
        raise unknown("coordinate or combination", name, valid)

    def coordinate_vector(self, values: dict[str, float] | ArrayLike | None, what: str) -> Array:
        """A vector over all coordinates from a dictionary by name (others 0), a sequence or None."""
        n = len(self.coordinates)
        if values is None:
            return np.zeros(n)
        if isinstance(values, dict):
            vector = np.zeros(n)
            for name, value in values.items():
                self.coordinate(name)
                vector[self.coordinate_names.index(name)] = finite(value, (), f"{what} '{name}'")
            return vector
        return finite(values, (n,), what)
