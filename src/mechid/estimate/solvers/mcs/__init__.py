"""Multilevel coordinate search: the global minimum of a function of few numbers, by its values alone.

Huyer & Neumaier, Global optimization by multilevel coordinate search, J. Global Optimization 14 (1999) 331–355.
`mcs` splits boxes along coordinates (`boxes`), begins with a list of values (`initial`), goes through the levels in
sweeps (`sweeps`) and searches locally (`local`, `lines`, `quadratic`).
"""

from mechid.estimate.solvers.mcs.search import MCSResult, MCSState, Minimum, mcs

__all__ = ["MCSResult", "MCSState", "Minimum", "mcs"]
