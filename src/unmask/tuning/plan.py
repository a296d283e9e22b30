"""What one scan is: which part of which preset is tuned, on which data. Workers with different plans share no study."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from unmask.errors import UsageError
from unmask.networks.masked_token import Padding
from unmask.studies.presets import Preset, load_preset, preset_names
from unmask.tuning.search_spaces import SPACES, Space, Target, describe, set_parameters

if TYPE_CHECKING:
    from optuna import Study

#: The user attribute of a study that holds its plan.
PLAN = "unmask plan"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A scan as it is stored with its study.

    Attributes
    ----------
    padding : of a detector, fixed within a study: losses with different paddings cannot be compared.
    max_epochs : of a trial; None for the preset's.
    data : fingerprint of the training and validation events.
    tokenizer : fingerprint of the fitted tokenizer that all trials of a detector share, if it was given.
    """

    target: Target
    preset: Preset
    padding: Padding | None = None
    max_epochs: int | None = None
    data: str = ""
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        kind, detector = self.preset.tokenizer.get("kind"), self.preset.detector.get("kind")
        if self.target == "tokenizer" and kind != "vqvae":
            choices = [name for name in preset_names() if load_preset(name).tokenizer.get("kind") == "vqvae"]
            found = f"is a {kind}, which has nothing to tune" if kind else f"does not exist ({detector} has none)"
            raise UsageError(
                f"the tokenizer of preset {self.preset.name} {found}; choose a VQ-VAE: {', '.join(choices)}"
            )
        if self.target == "detector" and detector != "masked-token":
            choices = [name for name in preset_names() if load_preset(name).detector["kind"] == "masked-token"]
            raise UsageError(
                f"preset {self.preset.name} is a {detector} detector; only masked-token detectors have a search space: "
                f"{', '.join(choices)}"
            )
        if self.target == "detector" and kind == "vqvae" and self.tokenizer is None:
            raise UsageError(
                f"preset {self.preset.name} has a VQ-VAE, which all trials must share: fit it first "
                f"(unmask tokenizer fit --preset {self.preset.name} ...) and give its folder with --tokenizer"
            )

    @property
    def space(self) -> Space:
        return SPACES[self.target]

    @property
    def study_name(self) -> str:
        """The name that a study gets unless another is wished: one for each preset (so each K) and padding."""
        return "-".join(part for part in (self.target, self.preset.name, self.padding) if part)

    def changes(self, parameters: dict[str, Any], **training: Any) -> dict[str, Any]:
        """What a trial changes in the tuned table of the preset; ``training`` holds further training settings."""
        if self.max_epochs is not None:
            training["max_epochs"] = self.max_epochs
        fixed = {"padding": self.padding} if self.padding else {}
        return set_parameters(fixed | {"training": training}, parameters)

    def tuned_preset(self, parameters: dict[str, Any], description: str) -> Preset:
        """The preset with the hyper-parameters of a trial; how long to train stays the preset's own choice."""
        tables = {"tokenizer": deepcopy(dict(self.preset.tokenizer)), "detector": deepcopy(dict(self.preset.detector))}
        if self.padding:
            tables["detector"]["padding"] = self.padding
        set_parameters(tables[self.target], parameters)
        return Preset(f"{self.preset.name}-tuned", description, **tables)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"space": describe(self.space)}


def claim_study(study: Study, plan: Plan) -> None:
    """Write the plan into a new study, or check that an existing one has the same.

    Raises
    ------
    UsageError
        If the study belongs to another scan; with what differs.
    """
    mine, theirs = plan.to_json(), study.user_attrs.get(PLAN)
    if theirs is None:
        if study.get_trials(deepcopy=False):
            raise UsageError(f"study {study.study_name!r} was not made by unmask; choose another --study name")
        study.set_user_attr(PLAN, mine)
        return
    mine = _as_stored(mine)
    different = [key for key in mine if mine[key] != theirs.get(key)]
    if different:
        details = "; ".join(_difference(key, theirs.get(key), mine[key]) for key in different)
        raise UsageError(
            f"study {study.study_name!r} is another scan, with which this one cannot be compared ({details}); "
            "choose another --study name"
        )


def plan_of(study: Study) -> Plan:
    """The plan in a study, for what does not train."""
    stored = study.user_attrs.get(PLAN)
    if stored is None:
        raise UsageError(f"study {study.study_name!r} was not made by unmask")
    fields = {key: value for key, value in stored.items() if key != "space"}
    return Plan(**fields | {"preset": Preset(**fields["preset"])})


def _as_stored(value: Any) -> Any:
    """What JSON makes of a value: tuples become lists."""
    if isinstance(value, dict):
        return {key: _as_stored(inner) for key, inner in value.items()}
    return [_as_stored(inner) for inner in value] if isinstance(value, list | tuple) else value


def _difference(key: str, theirs: Any, mine: Any) -> str:
    if key == "space":
        names = sorted(name for name in {*theirs, *mine} if theirs.get(name) != mine.get(name))
        return f"search space of {', '.join(names)}"
    if key == "preset":
        return f"preset {theirs['name']} -> {mine['name']}, or its settings"
    return f"{key.replace('_', ' ')} {theirs} -> {mine}"
