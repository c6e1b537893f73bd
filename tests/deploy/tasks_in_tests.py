"""Requests carried by tasks without NVFlare, for the tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from sites_in_tests import Consortium

from sottovoce.deploy.hub import Hub
from sottovoce.deploy.nvflare.tasks import Post, TaskTransport, serve_one_site

SILENT = "site {!r} does not answer"


@contextmanager
def carried(sites: Consortium, hub: Hub) -> Iterator[Callable[[str], TaskTransport]]:
    """Connections of sites to a hub, each with a job of its own: a thread takes tasks to it and
    brings results back.
    """
    over, threads, posts = threading.Event(), list[threading.Thread](), list[Post]()

    def door(name: str) -> TaskTransport:
        post = Post()

        def carry(site: str, task: dict[str, Any]) -> dict[str, Any] | None:
            return None if over.is_set() else post.carry_task(task, 0.05)

        def work() -> None:
            with ExitStack() as stack:
                stack.callback(post.close_with_reason, "the job is over")
                serve_one_site(hub, name, carry)

        threads.append(threading.Thread(target=work))
        posts.append(post)
        threads[-1].start()
        return TaskTransport(sites.plan, post)

    try:
        yield door
    finally:
        over.set()
        for post, thread in zip(posts, threads, strict=True):
            post.close_with_reason("the test is over")
            thread.join()
