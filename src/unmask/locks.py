"""One process at a time: a lock that the operating system gives back however the process ends."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: What file systems without locks say.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def locked(path: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Let the block run while no other process is in a block of the same lock file; wait until that is so.

    The file stays, and means nothing by itself: to remove it would let two processes hold locks on two files of the
    same name. Not all file systems of clusters have locks; on such a one the block runs unprotected.

    Parameters
    ----------
    tell : hears who it is that is waited for, or that there are no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            tell(f"waiting for {file.read().strip() or 'another process'}")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            tell(f"this file system has no locks ({error.strerror}): nothing keeps another process from doing the same")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
