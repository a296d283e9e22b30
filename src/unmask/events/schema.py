"""EventSchema: object types and number of objects per event that a model was made for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.errors import ArtifactError, UsageError
from unmask.events.event_set import EventSet
from unmask.events.objects import COMMON_TYPES, MAX_OBJECTS, OBJECTS, TAGS, ObjectType


@dataclass(frozen=True)
class EventSchema:
    """Object types and sizes that a tokenizer or network was made for; it is saved with each of them."""

    #: Names of the object types that the model knows, in the order in which it counts them.
    object_types: tuple[str, ...] = COMMON_TYPES
    #: Objects per event that it has room for.
    max_objects: int = MAX_OBJECTS

    @classmethod
    def of(cls, *samples: EventSet) -> EventSchema:
        """The schema of a model that learns from these events: the common types, and any other that occurs."""
        occur = {int(tag) for events in samples for tag in np.unique(events.tag)}
        others = [one.name for tag, one in OBJECTS.items() if tag in occur and one.name not in COMMON_TYPES]
        return cls((*COMMON_TYPES, *others), max(events.max_objects for events in samples))

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> EventSchema:
        """Take back what a manifest holds."""
        names, max_objects = tuple(saved["object_types"]), int(saved["max_objects"])
        if unknown := [str(name) for name in names if name not in TAGS]:
            raise ArtifactError(f"made for objects of type {', '.join(unknown)}; this unmask has {', '.join(TAGS)}")
        if not names or not 0 < max_objects < 1 << 16:
            raise ArtifactError(f"made for {len(names)} types of objects and {max_objects} objects per event")
        return cls(names, max_objects)

    @property
    def types(self) -> list[ObjectType]:
        """The rows of the table of object types."""
        return [OBJECTS[TAGS[name]] for name in self.object_types]

    def admit(self, events: EventSet, model: str) -> EventSet:
        """Give events the width of the model.

        Raises
        ------
        UsageError
            If an event has an object of a type that the model does not know, or more objects than it has room for.
        """
        unknown = sorted(set(np.unique(events.tag).tolist()) - {0} - {one.tag for one in self.types})
        if unknown:
            n = int(np.isin(events.tag, unknown).any(axis=1).sum())
            names = ", ".join(OBJECTS[tag].name if tag in OBJECTS else f"tag {tag}" for tag in unknown)
            raise UsageError(
                f"{n:,} of {len(events):,} events hold {names}; this {model} knows {', '.join(self.object_types)}. "
                "Train it on events that hold them, or read events without them (--objects)"
            )
        n_objects = int(events.n_objects.max(initial=0))
        if n_objects > self.max_objects:
            n = int(np.count_nonzero(events.n_objects > self.max_objects))
            raise UsageError(
                f"{n:,} of {len(events):,} events have more than {self.max_objects} objects (up to {n_objects}); this "
                f"{model} has room for {self.max_objects}. Read them with max_objects={self.max_objects}, or train it "
                "on events read with more"
            )
        return events.with_max_objects(self.max_objects)
