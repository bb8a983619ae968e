"""A symbolic mechanism as a person reads it: the general form (Verhaegen, Tables 2 and 3), text and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Any

from mechid.errors import MechidError
from mechid.model.symbolic.expressions import TIME, Expression, as_typed, sm, written

if TYPE_CHECKING:
    from mechid.model.symbolic.mechanism import SymbolicMechanism

LONG = 400
"""operations of an entry beyond which it is told by its size"""
HIGHEST = 6
"""order of backward differentiation"""


@dataclass(frozen=True)
class GeneralForm:
    """M(q, θ) q̈ = u + h(q, q̇, t, θ), all terms with inputs in u."""

    mechanism: SymbolicMechanism
    q: Expression
    mass_matrix: Expression
    u: Expression
    h: Expression
    theta: tuple[str, ...]

    @property
    def rows(self) -> tuple[tuple[str, Any], ...]:
        """What stands in the note's tables, quantity by quantity."""
        return (
            ("q(t)", self.q),
            ("M(q(t))", self.mass_matrix),
            ("u(t)", self.u),
            ("h(q(t), q'(t))", self.h),
            ("θ", self.theta),
        )

    def text(self) -> str:
        """The table as text."""
        blocks = [(name, _lines(value)) for name, value in self.rows]
        closed = [f"0 = {_short(c.value)}" for c in (*self.mechanism.constraints, *self.mechanism.rolling)]
        if closed:
            blocks.insert(4, ("constraints", closed))
        width = max(len(name) for name, _ in blocks)
        out = [f"{'Quantity':{width}}  {self.mechanism.name}"]
        for name, lines in blocks:
            out += [f"{name if i == 0 else '':{width}}  {line}" for i, line in enumerate(lines)]
        return "\n".join(out)

    def latex(self) -> str:
        """The same as a LaTeX tabular."""
        names = {"q(t)": "q(t)", "M(q(t))": "M(q(t))", "u(t)": "u(t)", "θ": r"\theta"}
        rows = []
        for name, value in self.rows:
            left = names.get(name, r"h(q(t), \dot q(t))")
            if isinstance(value, tuple):
                shown = r"\left[" + ", ".join(map(_start_latex, value)) + r"\right]^T"
            else:
                entries = [[_latex(x) for x in row] for row in value.tolist()]
                inside = r" \\ ".join(" & ".join(row) for row in entries)
                one = value.shape == (1, 1)
                shown = inside if one else rf"\begin{{bmatrix}} {inside} \end{{bmatrix}}"
            rows.append(rf"${left}$ & ${shown}$ \\")
        closed = [f"0 = {_latex(c.value)}" for c in (*self.mechanism.constraints, *self.mechanism.rolling)]
        labels = ["constraints", *[""] * (len(closed) - 1)]
        rows[4:4] = [rf"{label} & ${line}$ \\" for label, line in zip(labels, closed, strict=False)]
        title = self.mechanism.name.replace("_", r"\_")
        head = rf"Quantity in the general model & {title} \\ \hline"
        return "\n".join([r"\begin{tabular}{ll}", head, *rows, r"\end{tabular}"])

    def __str__(self) -> str:
        return self.text()


def general_form(m: SymbolicMechanism) -> GeneralForm:
    """Split M q̈ = u + h, inputs that enter linearly on their own side."""
    s = m.symbols
    h = m.rest.applyfunc(lambda row: _without_inputs(row, s.u))
    u = m.rest - h
    unknown = [p.name for p in m.parameters if not p.constant]
    starts = [x for n in s.coordinates for x in (f"{n}(t1)", f"{n}'(t1)")]
    return GeneralForm(m, sm.Matrix(list(s.q)), _neat(m.mass_matrix), _neat(u), _neat(h), (*starts, *unknown))


def _without_inputs(row: Expression, u: tuple[Expression, ...]) -> Expression:
    """What is left of a row without its terms in inputs."""
    if not any(row.diff(x).has(*u) for x in u if row.has(x)):
        return row.xreplace(dict.fromkeys(u, sm.Integer(0)))
    return sm.Add(*(term for term in sm.Add.make_args(row) if not term.has(*u)))


def _neat(matrix: Any) -> Any:
    """Each entry as short as simplification makes it, where that does not take long."""

    def one(e: Any) -> Any:
        if sm.count_ops(e) > 60:
            return e
        tried = [e, sm.expand(e), sm.simplify(e)]
        return min(tried, key=sm.count_ops)

    return matrix.applyfunc(one)


def _short(e: Any) -> str:
    size = sm.count_ops(e)
    return f"… ({size} operations)" if size > LONG else written(e)


def _lines(value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [f"[{', '.join(value)}]"]
    cells = [[_short(x) for x in row] for row in value.tolist()]
    if len(cells) == 1 and len(cells[0]) == 1:
        return [cells[0][0]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["[ " + "  ".join(map(str.ljust, row, widths)) + " ]" for row in cells]


def _latex(e: Any) -> str:
    names = {}
    for x in e.free_symbols:
        base = x.name.rstrip("'")
        dots = len(x.name) - len(base)
        if dots:
            inner = sm.latex(sm.Symbol(base))
            names[x] = rf"\{'d' * dots}ot{{{inner}}}"
    return sm.latex(as_typed(e), symbol_names=names)


def _start_latex(name: str) -> str:
    base, call, _ = name.partition("(")
    dotted = base.endswith("'")
    inner = sm.latex(sm.Symbol(base.rstrip("'")))
    inner = rf"\dot{{{inner}}}" if dotted else inner
    return f"{inner}(t_1)" if call else inner


# The discrete constraints


def backward_differences(order: int) -> list[Expression]:
    """α of the note's Table 1, newest first: Σ ∇^j/j up to an order, ∇ the backward difference."""
    return [
        sum((sm.Rational((-1) ** i * comb(j, i), j) for j in range(max(i, 1), order + 1)), sm.Integer(0))
        for i in range(order + 1)
    ]


def discretized(m: SymbolicMechanism, order: int, *, latex: bool) -> str:
    """The constraints A(x, θ) x − b(x, θ) = 0 of (7), at a step j that has enough steps before it.

    D x_j = (1/Δ) Σ α_ℓ x_(j−ℓ); second derivatives are D applied twice. The first steps use lower orders.
    """
    if isinstance(order, bool) or not isinstance(order, int) or not 1 <= order <= HIGHEST:
        raise MechidError(f"There is no BDF of order {order}; valid: 1, 2, 3, 4, 5, 6.")
    s = m.symbols
    alpha = backward_differences(order)
    step = sm.Symbol(_unused(("Delta", "dt", "step"), s.all))
    force = _unused(("lambda", "mu", "reaction"), s.all)

    def at(name: str, back: int) -> Expression:
        return sm.Symbol(f"{name}_j" if not back else f"{name}_(j-{back})")

    first = {n: sum(c * at(n, i) for i, c in enumerate(alpha)) / step for n in s.coordinates}
    twice = [sm.Integer(0)] * (2 * order + 1)
    for i, x in enumerate(alpha):
        for k, y in enumerate(alpha):
            twice[i + k] += x * y
    second = {n: sum(c * at(n, i) for i, c in enumerate(twice)) / step**2 for n in s.coordinates}
    rules: dict[Any, Any] = {TIME: sm.Symbol("t_j")}
    for q, v, a in zip(s.q, s.v, s.a, strict=True):
        rules |= {q: at(q.name, 0), v: first[q.name], a: second[q.name]}
    rules |= {u: at(u.name, 0) for u in s.u}
    rows = []
    closed = [c.value for c in (*m.constraints, *m.rolling)]
    for i, (mass, rest) in enumerate(zip(m.mass_matrix.tolist(), list(m.rest), strict=True)):
        left: Expression = sum((x * a for x, a in zip(mass, s.a, strict=True)), sm.Integer(0))
        slopes = [
            *(c.value.diff(s.q[i]) for c in m.constraints),
            *(c.value.diff(s.v[i]) for c in m.rolling),
        ]
        reaction = sum((at(f"{force}{k + 1}", 0) * x for k, x in enumerate(slopes)), sm.Integer(0))
        rows.append(((left + reaction).xreplace(rules), rest.xreplace(rules)))
    rows += [(c.xreplace(rules), sm.Integer(0)) for c in closed]
    if latex:
        shown = [f"{_step_latex(a)} &= {_step_latex(b)}" for a, b in rows]
        return "\\begin{aligned}\n" + " \\\\\n".join(shown) + "\n\\end{aligned}"
    return "\n".join(f"{_short(a)} = {_short(b)}" for a, b in rows)


def _unused(names: Sequence[str], taken: Iterable[str]) -> str:
    """The first of some names that none of a mechanism's begins with, but for its number."""
    bases = {n.rstrip("'0123456789_") for n in taken}
    return next((n for n in names if n not in bases), f"{names[0]}_of_step")


def _step_latex(e: Any) -> str:
    names = {}
    for x in e.free_symbols:
        base, mark, index = x.name.rpartition("_")
        if mark and (index == "j" or index.startswith("(j-")):
            names[x] = f"{sm.latex(sm.Symbol(base))}_{{{index.strip('()')}}}"
    return sm.latex(as_typed(e), symbol_names=names)


def _number(p: Any) -> str:
    return f"{p.name} = {p.value:g} {p.unit}".rstrip()


def describe(m: SymbolicMechanism) -> str:
    """What a person sees who prints a mechanism."""
    kind = "a Lagrangian" if m.lagrangian is not None else "equations of motion"
    lines = [f"{m.name}: {kind} in {len(m.coordinates)} coordinates"]
    for title, items in (
        ("coordinates", [f"{c.name} ({c.unit or '-'})" for c in m.coordinates]),
        ("inputs", [f"{i.name} ({i.unit or '-'})" for i in m.inputs]),
        ("parameters", [_number(p) for p in m.parameters if not p.constant]),
        ("constants", [_number(p) for p in m.parameters if p.constant]),
        ("outputs", [f"{o.name} = {_short(o.value)}" for o in m.outputs]),
    ):
        if items:
            lines.append(f"  {title}: {', '.join(items)}")
    form = general_form(m)
    lines += ["", *(f"  {line}" for line in form.text().splitlines()[1:])]
    return "\n".join(lines)
