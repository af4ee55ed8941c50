"""
What a client answered, and how a call goes on with it.

A question is asked, and answered, alike whether its tool waits, its leg has ended, or a runtime
keeps it; and what a client brings with its answer says where the call stood.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from mcp import MCPError, types

from ferrule import (
    Accepted,
    Approval,
    Declined,
    InputRequest,
    InvalidValue,
    Leg,
    Question,
    SealBroken,
    SealExpired,
)
from ferrule.mcp._forms import Form
from ferrule.mcp._request import Request
from ferrule.mcp._tickets import Ticket, digest_of, opened

Given = Accepted[Any] | Declined

NO = Accepted(content=False)
_BOOLEAN = {"type": "boolean"}


# ---- questions -----------------------------------------------------------------------------------


def form_of(question: Question) -> Form:
    """Return what a running tool asks as it is asked."""
    return Form(question.message, question.schema, question.url)


def asking_for(form: Form) -> types.ElicitRequest:
    """Return a question as a result carries it."""
    return types.ElicitRequest(params=form.params())


def read(form: Form, response: object) -> Given | None:
    """Return what a client answered; nothing if it did not, or not what was asked for."""
    if not isinstance(response, types.ElicitResult):
        return None
    if response.action != "accept":
        return Declined(response.action)
    try:
        return Accepted(form.read(response.content))
    except InvalidValue:
        return None


def is_no(given: Declined, schema: object) -> bool:
    """Say whether who declined a question for yes or no said no."""
    return given.action == "decline" and schema == _BOOLEAN


def without_answer(given: Declined, message: str) -> str:
    """Return what a model reads of a call that nobody answered."""
    said = "was declined" if given.action == "decline" else "was not answered"
    return f"what it asked {said}: {message}"


# ---- legs ----------------------------------------------------------------------------------------


def next_leg(
    leg: Leg, answered: tuple[InputRequest, object] | None, approvals: tuple[Approval, ...]
) -> Leg:
    """Return the leg after one, with what people have answered the tool and its guards."""
    return Leg(
        leg.call,
        continuation=None if answered is None else answered[0].continuation(answered[1]),
        number=leg.number + 1,
        idempotency_key=leg.idempotency_key,
        approvals=approvals,
        session=leg.session,
    )


def leg_of(ticket: Ticket, leg: Leg) -> tuple[Leg, tuple[InputRequest, object] | None]:
    """Return the leg that ended with the question in a ticket, and what it went on from itself."""
    answered = None
    if ticket.pending:
        answered = (InputRequest.from_json(ticket.pending[0]), ticket.pending[1])
    again = Leg(
        msgspec.structs.replace(leg.call, id=ticket.call_id),
        number=ticket.leg,
        idempotency_key=ticket.key,
        approvals=tuple(map(Approval.from_json, ticket.approvals)),
        session=leg.session,
    )
    return again, answered


def ticket_of(request: Request, keys: Sequence[bytes]) -> Ticket | None:
    """
    Return the ticket that a request brings; nothing if it came too late.

    Raises:
        MCPError: it is not ours, or another's, or of another call.
    """
    refused = MCPError(code=types.INVALID_PARAMS, message="Invalid or expired requestState")
    try:
        ticket = opened(request.params.request_state or "", keys)
        known = digest_of(request.params.name, request.params.arguments or {})
    except SealExpired:
        return None
    except (SealBroken, InvalidValue, ValueError):
        raise refused from None
    if (ticket.who, ticket.call) != (request.who, known):
        raise refused
    return ticket
