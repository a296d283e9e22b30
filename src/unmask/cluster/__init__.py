"""The same reading, tokenizing and scoring, cut into parts that many machines do on their own.

A plan (`plan`) is a list of tasks, each one part of one file; a task (`work`) is done by whoever gets it, a shard of
a batch system or a Dask worker (`dask_run`), and leaves one Parquet file. Nothing is shared but the file system.
"""

from __future__ import annotations

from unmask.cluster.plan import Shard, Task, Work, make_tasks, open_folder
from unmask.cluster.work import Outcome, run_part

__all__ = ["Outcome", "Shard", "Task", "Work", "make_tasks", "open_folder", "run_part"]
