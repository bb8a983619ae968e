"""Settings of a study that the chosen part of it makes no use of: refused where somebody set them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mechid.errors import MechidError
from mechid.studies.study import Settings


def refuse_unused(settings: Settings, defaults: Settings, quick: Settings, unused: Mapping[str, str]) -> None:
    """Refuse settings that differ from their defaults and change nothing.

    quick: the defaults of the small version. unused: by key why, as the end of a sentence on the setting.
    """
    for key, why in unused.items():
        if settings[key] not in (defaults[key], quick.get(key, defaults[key])):
            raise MechidError(f"Setting {key} {why}.")


def alike(keys: Iterable[str], why: str) -> dict[str, str]:
    """Settings that are all of no use for one reason."""
    return dict.fromkeys(keys, why)
