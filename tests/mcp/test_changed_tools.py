"""Tools that change while they are served: every client that wants to know hears of it."""

import anyio
import anyio.to_thread
import pytest
from mcp import Client, types
from mcp.client.subscriptions import ToolsListChanged

from ferrule import Registry, tool
from ferrule.mcp import Server
from serving import ERAS, Era, at_a_port, by_http, in_memory, text_of
from support import echo

pytestmark = pytest.mark.anyio


class Heard:
    """What a client hears of changes, in the handshake era."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.count = 0

    async def __call__(self, message: object) -> None:
        """Count a notification that the list has changed."""
        if isinstance(message, types.ToolListChangedNotification):
            self.count += 1
            self.event.set()


def growing() -> Registry:
    """Return a registry with a tool that adds a tool to it."""
    registry = Registry()

    @tool
    async def grow(name: str) -> str:
        """Add a tool."""
        registry.register([echo(name)])
        return "grown"

    registry.register([grow])
    return registry


async def names(client: Client) -> list[str]:
    """Return what a client lists, anew."""
    return [one.name for one in (await client.list_tools(cache_mode="refresh")).tools]


async def test_a_client_of_the_handshake_era_is_told() -> None:
    """AT-92, AT-96: before the result of the call that changed them, and once for a change."""
    heard = Heard()
    async with in_memory(Server(growing()), "legacy", message_handler=heard) as client:
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed
        await names(client)
        assert text_of(await client.call_tool("grow", {"name": "added"})) == "grown"
        await heard.event.wait()

        assert await names(client) == ["added", "grow"]
        assert heard.count == 1


async def test_a_client_that_listens_is_told() -> None:
    """AT-92: since 2026-07-28 who wants to know asks for it."""
    async with in_memory(Server(growing()), "auto") as client:
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed
        async with client.listen(tools_list_changed=True) as changes:
            await client.call_tool("grow", {"name": "added"})
            assert await anext(aiter(changes)) == ToolsListChanged()
        assert await names(client) == ["added", "grow"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("era", ERAS)
async def test_clients_over_http_are_told(era: Era) -> None:
    """AT-92: the one that made the change and those that did not."""
    registry, heard = growing(), Heard()
    server = Server(registry)
    with at_a_port(server.asgi) as address:
        async with (
            by_http(address, era, message_handler=heard) as client,
            by_http(address, era) as other,
        ):
            if era == "auto":
                async with client.listen(tools_list_changed=True) as changes:
                    await other.call_tool("grow", {"name": "added"})
                    await anext(aiter(changes))
            else:
                count = 0
                while not heard.event.is_set():  # Its stream for news may not be open yet.
                    count += 1
                    await other.call_tool("grow", {"name": f"added{count}"})
                    with anyio.move_on_after(0.2):
                        await heard.event.wait()
            assert await names(client) == registry.names


@pytest.mark.parametrize("era", ERAS)
async def test_a_change_from_a_thread_is_told(era: Era) -> None:
    """REG-1: whoever changes the tools, from wherever."""
    registry, heard = growing(), Heard()
    async with in_memory(Server(registry), era, message_handler=heard) as client:
        if era == "auto":
            async with client.listen(tools_list_changed=True) as changes:
                await anyio.to_thread.run_sync(registry.replace, "local", [echo("other")])
                await anext(aiter(changes))
        else:
            await names(client)
            await anyio.to_thread.run_sync(registry.replace, "local", [echo("other")])
            await heard.event.wait()
        assert await names(client) == ["other"]
    registry.register([echo("after")])  # Nobody is told any more, and nothing breaks.


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_is_gone_is_unknown(era: Era) -> None:
    """REG-1: what is called is what is there now."""
    registry = growing()
    async with in_memory(Server(registry), era) as client:
        await client.call_tool("grow", {"name": "added"})
        assert text_of(await client.call_tool("added", {"x": 1})) == '{"x":1}'
        registry.replace("local", [echo("other")])
        with pytest.raises(Exception, match="Unknown tool: added"):
            await client.call_tool("added")
