"""The one training loop of the package and what it is made of."""

from unmask.fitted import EpochRecord, Reporter
from unmask.training.loop import train
from unmask.training.settings import TrainingSettings, derive_seed, pick_device
from unmask.training.task import Task, Trained, batches, in_batches

__all__ = [
    "EpochRecord",
    "Reporter",
    "Task",
    "Trained",
    "TrainingSettings",
    "batches",
    "derive_seed",
    "in_batches",
    "pick_device",
    "train",
]
