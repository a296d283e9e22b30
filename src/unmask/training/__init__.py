"""The one training loop of the package and what it is made of."""

from unmask.training.devices import pick_device
from unmask.training.loop import EpochRecord, Reporter, Task, TrainingSettings, derive_seed, train

__all__ = ["EpochRecord", "Reporter", "Task", "TrainingSettings", "derive_seed", "pick_device", "train"]
