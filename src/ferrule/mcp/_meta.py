"""What a server and a client of ours say to each other in `_meta`, where MCP has no word for it."""

RECORD = "ferrule/record"
"""With a result: what its tool had recorded: `{"namespace": …, "data": TEXT}`; no byte changes."""

UNKNOWN = "ferrule/unknown"
"""With an error: nobody can say what the call has done; the value is the reason of FAIL-6."""

KEY = "ferrule/idempotency-key"
"""With a call whose replay is `keyed`: the same for every run of that logical call."""
