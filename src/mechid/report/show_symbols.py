"""`show_symbols`: a symbolic mechanism as a person reads it, and what its motion can tell in principle."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from mechid.judge.symbols import structure_of_symbols
from mechid.model.symbolic.mechanism import SymbolicMechanism
from mechid.model.symbolic.printing import describe
from mechid.report.screen import say


def show_symbols(
    mechanism: SymbolicMechanism, console: Console, *, order: int = 0, latex: bool = False
) -> dict[str, Any]:
    """Print everything; the same for a program."""
    form = mechanism.general_form()
    # checked before anything is printed
    discrete = mechanism.discretized(order, latex=latex) if order else ""
    for line in describe(mechanism).splitlines():
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    console.print()
    if latex:
        console.print(form.latex(), soft_wrap=True, markup=False, highlight=False)
        console.print()
    if discrete:
        say(console, f"Step j of backward differentiation of order {order}, A(x, θ) x − b(x, θ) = 0:")
        console.print(discrete, soft_wrap=True, markup=False, highlight=False)
        console.print()
    linear = mechanism.linear_parameters()
    with_inputs = structure_of_symbols(mechanism)
    without = structure_of_symbols(mechanism, inputs=False) if mechanism.inputs else with_inputs
    told = dict.fromkeys([with_inputs.sentence, without.sentence])
    for sentence in told:
        say(console, sentence)
    if linear:
        say(console, f"The equations of motion are linear in {', '.join(linear)}.")
    for note in mechanism.notes:
        say(console, note)
    return {
        "name": mechanism.name,
        "coordinates": {c.name: c.unit for c in mechanism.coordinates},
        "inputs": {i.name: i.unit for i in mechanism.inputs},
        "parameters": {p.name: {"value": p.value, "unit": p.unit} for p in mechanism.parameters},
        "general_form": form.text(),
        "latex": form.latex(),
        "discretized": discrete,
        "linear": list(linear),
        "identifiable": list(with_inputs.identifiable),
        "not_identifiable": list(with_inputs.not_identifiable),
        "identifiable_without_inputs": list(without.identifiable),
        "not_identifiable_without_inputs": list(without.not_identifiable),
    }
