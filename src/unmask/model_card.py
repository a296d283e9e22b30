"""Model card: what a model was trained on and is for, as Markdown that goes wherever the model goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_USE = """Larger scores are more anomalous. A score has no absolute meaning: calibrate it with held-out background of
the same selection (`unmask calibrate`). No limits or significances follow from it alone: there are no systematic
uncertainties.

It was trained on events labeled background, or not labeled; events labeled signal are refused in training. Expect too
high scores for events of another selection, generator, detector or calibration of objects, and no use for signals that
are softer, or have fewer objects, than background."""


def model_card(
    kind: str, settings: Mapping[str, Any], facts: Mapping[str, Any], performance: Sequence[str] = ()
) -> str:
    """Write the card of a model from its manifest.

    Parameters
    ----------
    kind, settings, facts
        As in the manifest; the facts are its provenance.
    performance
        Sentences on what was measured, with intervals.
    """
    fitted_on, events, history = facts["fitted_on"], facts["events"], facts["history"]
    made_by = f"Written by unmask {facts['packages']['unmask']} on {facts['created'][:10]}."
    lines = [f"# Model card: {kind}", "", made_by, "", "## Training data", ""]
    parts = {"train": "Training", "validation": "Validation", "prior": "Prior, simulated theories"}
    for part, title in parts.items():
        if of_part := fitted_on.get(part):
            files = ", ".join(map(_code, of_part["files"]))
            lines.append(f"- {title}: {of_part['n_events']:,} events, {of_part['n_objects']:,} objects, from {files}")
    if "prior" in fitted_on:
        lines.append("- It is semi-supervised: judge it on families of theories that are not in its prior")
    processes = fitted_on["train"]["processes"]
    lines += ["", "| process | training events |", "|---|---|"]
    lines += [f"| {_plain(name)} | {n:,} |" for name, n in processes.items()]
    lines += ["", "## Selection", ""]
    lines += [f"- Object types: {', '.join(events['object_types'])}; at most {events['max_objects']} per event"]
    lines += [f"- Command, with cuts and selections of objects if there were any: {_code(facts['command'])}"]
    lines += ["", "## Performance", ""]
    if history:
        best = min(record["validation_loss"] for record in history)
        lines.append(f"- Best validation loss {best:.4f}, of {len(history)} epochs")
    lines += [f"- {text}" for text in performance]
    lines += ["- On other events, and signals: `unmask evaluate` measures it, with intervals"]
    lines += ["", "## Use and limits", "", _USE, "", "## Settings", ""]
    lines += [f"- {name}: {_code(value)}" for name, value in settings.items()]
    lines += ["", "## License", "", "unmask is BSD-3-Clause. The model is under the terms of its training data.", ""]
    return "\n".join(lines)


def _code(value: object) -> str:
    return f"`{_plain(value).replace('`', chr(39))}`"


def _plain(value: object) -> str:
    """Text in one line that is no markup of a table."""
    return " ".join(str(value).split()).replace("|", "/")
