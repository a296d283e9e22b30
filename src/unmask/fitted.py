"""Fitted tokenizers and detectors: their kinds, settings, and how they are saved and loaded, without torch."""

from __future__ import annotations

import ast
import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Artifact, Json, checked, load_artifact, provenance, save_artifact
from unmask.errors import ArtifactError, NotFittedError, UsageError, nearest
from unmask.events.event_set import BACKGROUND, SIGNAL, EventSet
from unmask.events.schema import EventSchema
from unmask.model_card import model_card
from unmask.parameters import arguments_of, mistakes_in

#: Kind -> module and class, imported when needed.
TOKENIZERS = {
    "lookup-table": ("unmask.tokenizers.lookup_table", "LookupTableTokenizer"),
    "vqvae": ("unmask.tokenizers.vqvae", "VQVAETokenizer"),
}
DETECTORS = {
    "contrast": ("unmask.detectors.contrast", "ContrastDetector"),
    "masked-token": ("unmask.detectors.masked_token", "MaskedTokenDetector"),
    "ddd": ("unmask.detectors.ddd", "DDDDetector"),
    "deep-svdd": ("unmask.detectors.deep_svdd", "DeepSVDDDetector"),
    "drocc": ("unmask.detectors.drocc", "DROCCDetector"),
    "untrained": ("unmask.detectors.untrained", "UntrainedDetector"),
}
KINDS = TOKENIZERS | DETECTORS


@dataclass(frozen=True)
class EpochRecord:
    """Results of one epoch; a line of the log."""

    epoch: int
    step: int
    learning_rate: float
    mean_batch_loss: float
    training_loss: float
    validation_loss: float
    events_per_second: float
    seconds: float
    further: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sample:
    """Training or validation events in the manifest."""

    n_events: int
    n_objects: int
    files: dict[str, int]
    processes: dict[str, int]


@dataclass(frozen=True)
class _Metadata:
    """Record of a fit in the manifest."""

    fitted_on: dict[str, _Sample]
    history: list[EpochRecord]


class Reporter:
    """Receives the progress of a training, of several processes in the first alone; this one ignores it."""

    def epoch_started(self, epoch: int, n_steps: int) -> None: ...

    def step_done(self) -> None: ...

    def epoch_done(self, record: EpochRecord) -> None: ...


class Fitted(ABC):
    """A tokenizer or detector, with the conventions of scikit-learn.

    Constructors only store their arguments, :meth:`check` validates them, and attributes set by ``fit`` end in ``_``.
    """

    #: Name in the manifest and in the tables above.
    kind: ClassVar[str]
    #: Arguments that are fitted themselves and saved in folders of their own.
    parts: ClassVar[tuple[str, ...]] = ()
    #: Arguments that are no settings, since another one holds their value.
    shorthands: ClassVar[tuple[str, ...]] = ()
    #: Whether ``fit`` takes theories as a prior.
    takes_prior: ClassVar[bool] = False

    #: Training events that it wants; with fewer it works less well.
    events_wanted: ClassVar[int] = 0

    #: Numbers, files and processes of the training and validation events; None before ``fit``.
    fitted_on_: dict[str, Json] | None = None
    #: Known object types and maximum number of objects of events.
    schema_: EventSchema = EventSchema()
    #: Record of each epoch; None without a network.
    history_: list[EpochRecord] | None = None

    @property
    def max_epochs(self) -> int:
        """Maximum epochs of the training; 0 without a network."""
        return 0

    @property
    def n_parameters(self) -> int:
        """Number of parameters of the network; 0 without one."""
        return 0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments of the constructor by name; with ``deep`` also those of parts, as in ``tokenizer__n_bins``."""
        values = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        for part in self.parts if deep else ():
            values |= {f"{part}__{name}": value for name, value in values[part].get_params().items()}
        return values

    def set_params(self, **parameters: Any) -> Self:
        """Change arguments of the constructor; those of a part as ``tokenizer__n_bins``."""
        for name, value in parameters.items():
            if name not in (known := self.get_params()):
                raise UsageError(f"{type(self).__name__} has no parameter {name!r}; {nearest(name, known)}")
            part, _, inner = name.partition("__")
            if inner:
                known[part].set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: each.default for name, each in inspect.signature(type(self)).parameters.items()}
        changed = {name: value for name, value in self.get_params(deep=False).items() if value != defaults[name]}
        arguments = ", ".join(f"{name}={_shown(value)}" for name, value in changed.items())
        fitted_on = {name: f"{sample['n_events']:,}" for name, sample in (self.fitted_on_ or {}).items()}
        state = f"fitted on {fitted_on['train']} events" if fitted_on else "not fitted"
        state += f" with a prior of {fitted_on['prior']} theory events" if "prior" in fitted_on else ""
        return f"<{type(self).__name__}({arguments}), {state}>"

    def settings(self) -> dict[str, Json]:
        """Arguments of the constructor, parts apart, as JSON can hold them."""
        values = self.get_params(deep=False)
        return {name: _json(value) for name, value in values.items() if name not in (*self.parts, *self.shorthands)}

    def check(self) -> None:
        """Raise UsageError if arguments of the constructor cannot be used."""
        if mistakes := mistakes_in(type(self), self.get_params(deep=False)):
            raise UsageError("; ".join(mistakes))

    def check_fitted(self) -> None:
        """Raise NotFittedError before ``fit`` or ``load``."""
        if self.fitted_on_ is None:
            raise NotFittedError(f"this {self.kind} has not been fitted; call fit(train, validation) or load it first")

    def fit(
        self,
        train: EventSet,
        validation: EventSet | None = None,
        *,
        prior: EventSet | None = None,
        run_folder: str | Path | None = None,
        reporter: Reporter | None = None,
    ) -> Self:
        """Learn from background events.

        Parameters
        ----------
        prior
            Simulated theories, for what ``takes_prior``: it is then semi-supervised.
        run_folder
            Folder for log and checkpoints of a network; an earlier run in it is continued.

        Raises
        ------
        UsageError
            If arguments cannot be used, or signal is among the events.
        TrainingError
            If the loss becomes NaN or infinite, or ``run_folder`` holds a run with other settings or data.
        """
        self.check()
        given = {"train": train} | ({} if validation is None else {"validation": validation})
        for name, events in given.items():
            check_background(events)
            if len(events) and not events.n_objects.any():
                raise UsageError(
                    f"none of the {len(events):,} events of {name} holds an object; expected jets, leptons or photons: "
                    "check the columns of the file and the selection"
                )
        self.schema_ = EventSchema.of(*given.values())
        options: dict[str, Any] = {"run_folder": run_folder, "reporter": reporter}
        if prior is not None:
            self._check_prior(prior)
            given, options = given | {"prior": prior}, options | {"prior": prior}
        self._fit(train, train if validation is None else validation, **options)
        self.fitted_on_ = {
            name: {
                "n_events": len(events),
                "n_objects": int(events.n_objects.sum()),
                "files": events.file_names.counts(),
                "processes": events.process_names.counts(),
            }
            for name, events in given.items()
        }
        return self

    def _check_prior(self, prior: EventSet) -> None:
        if not self.takes_prior:
            raise UsageError(f"a {self.kind} is trained on background alone; leave out the prior")
        if n_background := int(np.count_nonzero(prior.label == BACKGROUND)):
            raise UsageError(
                f"{n_background:,} events of the prior are labeled background; expected simulated theories"
            )

    @abstractmethod
    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:
        """Learn from these events; the options are those of :meth:`fit`."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything learned, by name."""
        return {}

    def metadata(self) -> dict[str, Json]:
        """Record of the fit for the manifest."""
        history = [asdict(record) for record in self.history_ or []]
        return {"fitted_on": self.fitted_on_, "events": asdict(self.schema_), "history": history}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Json]) -> None:  # noqa: ARG002
        """Restore what :meth:`arrays` and :meth:`metadata` returned."""
        known = checked(_Metadata, metadata, Path("provenance"))
        self.schema_ = EventSchema.from_json(metadata["events"])
        self.fitted_on_ = metadata["fitted_on"]
        self.history_ = known.history or None

    @abstractmethod
    def try_out(self) -> None:
        """Use what was loaded on one event, which fails if its settings and arrays do not fit each other."""

    def _one_event(self) -> EventSet:
        """An event that :attr:`schema_` admits."""
        one: dict[str, Any] = {"types": [list(self.schema_.object_types[:1])], "eta": [[0.5]], "phi": [[1.0]]}
        one |= {"energy": [[60.0]], "pt": [[50.0]], "met": [80.0], "met_phi": [0.0]}
        return EventSet.from_arrays(unit="GeV", max_objects=self.schema_.max_objects, **one)

    def save(self, folder: str | Path) -> None:
        """Write to a folder of its own."""
        self.check_fitted()
        artifact = Artifact(self.kind, self.settings(), self.arrays(), provenance(**self.metadata()))
        parts = {name: getattr(self, name).save for name in self.parts}
        card = model_card(self.kind, artifact.settings, artifact.provenance)
        save_artifact(folder, artifact, parts=parts, replaces=alike(self.kind), card=card)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load what :meth:`save` wrote; see :func:`load`."""
        loaded: Self = load(folder, (cls.kind,))
        return loaded


def alike(kind: str) -> Collection[str]:
    """The kinds that something of a kind may replace: all tokenizers, or all detectors."""
    return next((kinds for kinds in (TOKENIZERS, DETECTORS) if kind in kinds), (kind,))


def class_of(kind: str) -> type[Any]:
    """Class of a kind in ``KINDS``."""
    module, name = KINDS[kind]
    chosen: type[Any] = getattr(import_module(module), name)
    return chosen


def description(kind: str) -> str:
    """First sentence on a kind, from its source: for a list that needs no torch.

    >>> description("lookup-table")
    'Tokens from n_bins bins per variable: objects in their slots, then MET, then the direction of MET'
    """
    module, name = KINDS[kind]
    spec = find_spec(module)
    source = ast.parse(Path(str(spec.origin if spec else "")).read_text(encoding="utf-8"))
    found = next(node for node in source.body if isinstance(node, ast.ClassDef) and node.name == name)
    return (ast.get_docstring(found) or "").splitlines()[0].replace("`", "").removesuffix(".")


def load(folder: str | Path, kinds: Collection[str] = KINDS) -> Any:
    """Load a tokenizer or detector of one of these kinds.

    Raises
    ------
    ArtifactError
        If the folder is missing, of another kind or version, damaged or changed by hand.
    """
    artifact = load_artifact(folder)
    if artifact.kind not in kinds:
        raise ArtifactError(f"holds a {artifact.kind}; expected {', '.join(kinds)}", path=folder)
    chosen = class_of(artifact.kind)
    try:
        parts = {part: load(Path(folder) / part) for part in chosen.parts}
        arguments, mistakes = arguments_of(chosen, artifact.settings | parts)
        if mistakes:
            raise ValueError("; ".join(mistakes))
        made = chosen(**arguments)
        made.check()
        made.restore(artifact.arrays, artifact.provenance)
        made.try_out()
    except ArtifactError:
        raise
    except Exception as error:  # whatever a manifest or an array makes fail that is not what its kind needs
        text = " ".join(str(error).split())
        raise ArtifactError(f"does not hold a whole {artifact.kind} ({text}); fit it again", path=folder) from error
    return made


def check_background(events: EventSet) -> None:
    """Refuse signal: nothing that is fitted may see it before the test."""
    if n_signal := int(np.count_nonzero(events.label == SIGNAL)):
        raise UsageError(
            f"{n_signal:,} of {len(events):,} events are labeled signal; expected background only. "
            "Keep all signal for the test"
        )


def _shown(value: Any) -> str:
    """``repr``, of a dataclass with the fields that differ from its defaults."""
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    values = ((each, getattr(value, each.name)) for each in fields(value))
    changed = ", ".join(f"{each.name}={_shown(one)}" for each, one in values if one != each.default)
    return f"{type(value).__name__}({changed})"


def _json(value: Any) -> Json:
    """Settings as JSON can hold them."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_json(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value
