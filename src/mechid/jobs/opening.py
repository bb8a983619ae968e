"""`Opening`: what the lines before the first sample were, to say what is wrong if none ever comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mechid.errors import MechidError


@dataclass
class Opening:
    """Lines that might have been the beginning. All of it is saved."""

    numbers: int = 0
    """lines of nothing but numbers"""
    found: int = -1
    """columns expected that the best header or object had; −1: there was none"""
    refused: str = ""
    """what it lacks"""

    def refuse(self, expected: Sequence[str], columns: Sequence[str], why: str) -> None:
        """Remembers a header or an object that lacks columns, if none had more of them."""
        found = len(set(expected) & set(columns))
        if found >= self.found:
            self.found, self.refused = found, why

    def error(self, expected: Sequence[str], known: object, garbage: int) -> MechidError:
        """That the stream holds no samples. known: whether its columns were."""
        columns = ", ".join(expected)
        if known:
            return MechidError(f"No line of the stream holds a sample: numbers are expected for {columns}.")
        if self.found > 0:
            return MechidError(
                f"{self.refused} No header and no JSON object in the stream has all columns expected: {columns}."
            )
        if self.numbers:
            return MechidError(
                f"The stream has numbers but no header with the columns expected, {columns}: name its columns "
                "under [stream] columns, in their order."
            )
        many = (
            f"The first {garbage} lines of the stream hold no samples" if garbage else "The stream is empty"
        )
        return MechidError(f"{many}: a CSV header or JSON objects are expected with the columns {columns}.")
