"""FileRecord: what a reader used of a file, and how many events and objects each step of a selection left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Counts = dict[str, int]
#: With fewer objects in a file, all may well be too soft or too far forward.
_MIN_BEYOND_ACCEPTANCE = 20


@dataclass
class FileRecord:
    """Record of the reading of one file.

    Attributes
    ----------
    format
        File format.
    used
        Branches and working points by what they were used for, such as "MET" or "weight".
    events
        Events left after each step of the selection, in order; the first is "in file".
    objects
        The same for the objects of each kind.
    """

    path: Path
    format: str = ""
    used: dict[str, str] = field(default_factory=dict)
    events: Counts = field(default_factory=dict)
    objects: dict[str, Counts] = field(default_factory=dict)

    def use(self, purpose: str, what: str) -> None:
        """Note what was used, beside what was used for the same purpose before."""
        before = self.used.get(purpose, what).split("; ")
        self.used[purpose] = "; ".join(before if what in before else [*before, what])

    def count_events(self, step: str, n: int) -> None:
        """Add to the events left after a step."""
        self.events[step] = self.events.get(step, 0) + n

    def count_objects(self, kind: str, step: str, n: int) -> None:
        """Add to the objects of a kind left after a step."""
        steps = self.objects.setdefault(kind, {})
        steps[step] = steps.get(step, 0) + n

    def cutflow(self) -> dict[str, Counts]:
        """Events and objects of each kind, in the singular, after each step."""
        return {"event": self.events} | self.objects

    def warnings(self, kind: str | None = None) -> list[str]:
        """Name each step that left no event, or no object of a kind (or of one ``kind``), of those there were."""
        texts = []
        for name, counts in self.cutflow().items():
            before = 0
            for step, n in counts.items():
                is_few = before < _MIN_BEYOND_ACCEPTANCE and step.startswith(("pT", "|eta|"))
                if before and not n and not is_few and kind in (None, name):
                    fix = "" if name == "event" else f"; change it with --select {name}..."
                    texts.append(f"warning: {self.path.name}: all {before:,} {name}s fail {step}{fix}")
                before = n
        return texts


def joined(records: Iterable[FileRecord]) -> list[dict[str, Any]]:
    """Describe what was read; files from which the same was read, by the same steps, are described together."""
    groups: dict[str, dict[str, Any]] = {}
    for one in records:
        cutflow = one.cutflow()
        key = repr((one.format, one.used, [(name, *counts) for name, counts in cutflow.items()]))
        known = groups.setdefault(key, {"files": [], "format": one.format, "used": one.used, "cutflow": {}})
        known["files"].append(str(one.path))
        for name, counts in cutflow.items():
            before = known["cutflow"].get(name, {})
            known["cutflow"][name] = {step: n + before.get(step, 0) for step, n in counts.items()}
    return list(groups.values())
