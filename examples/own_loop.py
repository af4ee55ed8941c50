"""
Calls under a loop of your own, with the parts that an executor is made of.

`Schedule` decides who may start and does no I/O: a workflow elsewhere may ask it as well. Bounds,
time limits, progress and threads that never end are what `Executor` adds; the checks, the guards
and the six endings are the same here.

```sh
python examples/own_loop.py
```
"""

from collections.abc import Sequence

import anyio

from ferrule import (
    Ask,
    Authorization,
    Binding,
    Context,
    Decision,
    Leg,
    Outcome,
    Permit,
    Registry,
    Schedule,
    Suspended,
    ToolCall,
    outcome_of,
    tool,
)


async def drive(registry: Registry, legs: Sequence[Leg]) -> list[Outcome]:
    """Run the calls of one turn, in order where they share state; return how each ended."""
    bindings = [bound(registry, leg) for leg in legs]
    # Where `uses` is a function, `traits.settled` asks it about the arguments of a call.
    schedule = Schedule([binding.uses or () for binding in bindings])
    outcomes: dict[int, Outcome] = {}

    async def run(index: int) -> None:
        leg, binding, dispatched = legs[index], bindings[index], False
        context = Context.of(leg.call, number=leg.number, approvals=leg.approvals)
        ended: object
        try:
            invocation = binding.contract.admit(leg.call)
            ended = await binding.authorize(invocation, context)
            if isinstance(ended, Permit):
                dispatched = True
                ended = await binding.call(invocation, context, ended)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is how that call ended
            ended = error
        outcomes[index] = outcome_of(ended, tool=leg.call.name, dispatched=dispatched)
        for following in schedule.finish(index):
            group.start_soon(run, following)

    async with anyio.create_task_group() as group:
        for index in schedule.ready():
            group.start_soon(run, index)
    return [outcomes[index] for index in range(len(legs))]


def bound(registry: Registry, leg: Leg) -> Binding:
    """Return the binding of a call; a name that no tool has is for the loop to answer."""
    binding = registry.resolve(leg.call.name)
    if binding is None:
        raise LookupError(f"there is no tool {leg.call.name}")
    return binding


LARGE = 100


@tool(uses="ledger")
async def book(amount: int) -> str:
    """Book an amount."""
    return f"booked {amount}"


def policy(authorization: Authorization) -> Decision:
    """Have a person asked about large amounts."""
    amount = authorization.arguments["amount"]
    return Ask(f"Book {amount}?") if isinstance(amount, int) and amount > LARGE else True


async def main() -> None:
    """Run a turn of three calls, and the leg after an answer."""
    registry = Registry([book]).guarded(policy)
    legs = [Leg(ToolCall.of("book", {"amount": amount})) for amount in (1, 1000, "much")]
    outcomes = await drive(registry, legs)
    print(*(outcome.text or type(outcome).__name__ for outcome in outcomes), sep="\n")
    waiting = outcomes[1]
    if isinstance(waiting, Suspended):
        approval = waiting.request.approval(True, by="ann")  # noqa: FBT003  # it is the answer
        again = Leg(legs[1].call, number=2, approvals=(approval,))
        print((await drive(registry, [again]))[0].text)


if __name__ == "__main__":
    anyio.run(main)
