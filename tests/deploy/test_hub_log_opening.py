"""Several processes or threads may open a hub's log in the moment in which it is made."""

from __future__ import annotations

import threading
from pathlib import Path

from sottovoce.deploy.hublog import HubLog


def test_concurrent_creators_share_one_hub_log(tmp_path: Path) -> None:
    """A hub that did not wait failed somebody in one file of five; 40 files let that pass once
    in 10,000 runs.
    """
    for k in range(40):
        path, together = tmp_path / f"{k}.log", threading.Barrier(8)
        failed: list[BaseException] = []

        def join(
            path: Path = path,
            together: threading.Barrier = together,
            failed: list[BaseException] = failed,
        ) -> None:
            together.wait()
            try:
                HubLog(path).close()
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=join) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
