"""What the tests of policies share: calls to be judged, and what is said of them."""

from ferrule import Allow, Ask, Authorization, Decision, Definition, Deny, Traits


def facts(
    name: str = "git_log",
    arguments: dict[str, object] | None = None,
    *,
    origin: str = "local",
    traits: Traits = Traits(),
    confinement: str | None = None,
    caller: object = None,
) -> Authorization:
    """Return what a policy sees of a call."""
    return Authorization(
        definition=Definition(name),
        arguments=arguments or {},
        origin=origin,
        traits=traits,
        confinement=confinement,
        caller=caller,
        call_id="c1",
    )


def word(decision: object) -> str:
    """Return a decision as a policy's author writes it."""
    match decision:
        case True | Allow():
            return "allow"
        case Ask():
            return "ask"
        case False | Deny():
            return "deny"
        case _:
            return f"no decision: {decision!r}"


def message(decision: object) -> str:
    """Return what a person is asked."""
    assert isinstance(decision, Ask)
    return decision.message


def reason(decision: Decision) -> str | None:
    """Return why a call is denied."""
    assert isinstance(decision, Deny)
    return decision.reason
