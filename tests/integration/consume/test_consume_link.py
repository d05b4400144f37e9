"""The connection of a consumer, and a server that goes away."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headgate.consume.link import Link
from headgate.embedded import Stack


def test_a_link_is_closed_although_the_server_has_gone(tmp_path: Path) -> None:
    async def test() -> None:
        stack = Stack(tmp_path, postgres=False)
        with stack as endpoints:
            assert stack.nats is not None
            link = await Link.open(endpoints.nats_url or "", name="test")
            has_gone = asyncio.Event()
            lost = link.client._disconnected_cb

            async def gone() -> None:
                has_gone.set()
                if lost is not None:
                    await lost()

            link.client._disconnected_cb = gone
            await asyncio.to_thread(stack.nats.stop)
            await has_gone.wait()
            for number in range(100):
                await link.client.publish("a.subject", b"%d" % number)  # waits until there is a server again
            await link.close()

    asyncio.run(test())
