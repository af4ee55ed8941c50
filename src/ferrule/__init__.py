"""
One contract for the tools of AI agents.

```python
from ferrule import Executor, ToolCall, tool

@tool(read_only=True)
async def add(a: int, b: int) -> int:
    "Add two integers."
    return a + b

outcomes = Executor([add]).run_sync([ToolCall.of("add", {"a": 2, "b": 3})])
assert outcomes[0].text == "5"
```
"""

from ferrule._batch import Batch, Plan, Planned
from ferrule._binding import Binding, Leg, Permit, bind
from ferrule._calls import ToolCall
from ferrule._content import (
    Audio,
    Content,
    File,
    Image,
    Link,
    RawJSON,
    Record,
    Result,
    Text,
    record_of,
)
from ferrule._context import Asker, Context, OnProgress, Progress, Recorder
from ferrule._contract import Contract, Invocation, Repair
from ferrule._cut import cut_json, cut_text
from ferrule._decisions import Allow, Ask, Decision, Deny
from ferrule._decode import decode
from ferrule._definition import Definition
from ferrule._diff import Change, diff
from ferrule._events import Event, Finished, Progressed, Started
from ferrule._executor import Executor
from ferrule._failure import CallError, Failure, classify
from ferrule._function import FunctionTool, tool
from ferrule._guard import Authorization, Authorizer, Guard
from ferrule._harness import OnDispatch, OnLate, Sink, Turn
from ferrule._hidden import Inject, Within
from ferrule._ijson import Limits, canonical, digest, read_json
from ferrule._outcome import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Rejected,
    Suspended,
    Unknown,
    outcome_of,
)
from ferrule._registry import Registry, Source
from ferrule._requests import Accepted, Approval, Continuation, Declined, InputRequest, Question
from ferrule._schedule import Schedule
from ferrule._seal import seal, unseal
from ferrule._secret import Secret
from ferrule._step import Step
from ferrule._tool import RawTool, Tool
from ferrule._traits import Leniency, Replay, Shared, TraitFields, Traits, Use
from ferrule._wrapper import Wrapper, capability, unwrap
from ferrule.errors import (
    AnswerConflict,
    AnswerRefused,
    AuthorizationError,
    BatchConflict,
    DeclarationError,
    DuplicateTool,
    Fenced,
    FerruleError,
    ForeignInvocation,
    InvalidCall,
    InvalidDefinition,
    InvalidJSON,
    InvalidResult,
    InvalidSchema,
    InvalidTool,
    InvalidValue,
    InvalidWrappingChain,
    JournalError,
    Problem,
    RuntimeFault,
    SealBroken,
    SealExpired,
    ValidatorCrash,
    WaitClosed,
)

__all__ = (
    "Accepted",
    "Allow",
    "AnswerConflict",
    "AnswerRefused",
    "Approval",
    "Ask",
    "Asker",
    "Audio",
    "Authorization",
    "AuthorizationError",
    "Authorizer",
    "Batch",
    "BatchConflict",
    "Binding",
    "CallError",
    "Cancelled",
    "Change",
    "Completed",
    "Content",
    "Context",
    "Continuation",
    "Contract",
    "Decision",
    "DeclarationError",
    "Declined",
    "Definition",
    "Deny",
    "DuplicateTool",
    "Event",
    "Executor",
    "Failed",
    "Failure",
    "Fenced",
    "FerruleError",
    "File",
    "Finished",
    "ForeignInvocation",
    "FunctionTool",
    "Guard",
    "Image",
    "Inject",
    "InputRequest",
    "InvalidCall",
    "InvalidDefinition",
    "InvalidJSON",
    "InvalidResult",
    "InvalidSchema",
    "InvalidTool",
    "InvalidValue",
    "InvalidWrappingChain",
    "Invocation",
    "JournalError",
    "Leg",
    "Leniency",
    "Limits",
    "Link",
    "OnDispatch",
    "OnLate",
    "OnProgress",
    "Outcome",
    "Permit",
    "Plan",
    "Planned",
    "Problem",
    "Progress",
    "Progressed",
    "Question",
    "RawJSON",
    "RawTool",
    "Record",
    "Recorder",
    "Registry",
    "Rejected",
    "Repair",
    "Replay",
    "Result",
    "RuntimeFault",
    "Schedule",
    "SealBroken",
    "SealExpired",
    "Secret",
    "Shared",
    "Sink",
    "Source",
    "Started",
    "Step",
    "Suspended",
    "Text",
    "Tool",
    "ToolCall",
    "TraitFields",
    "Traits",
    "Turn",
    "Unknown",
    "Use",
    "ValidatorCrash",
    "WaitClosed",
    "Within",
    "Wrapper",
    "bind",
    "canonical",
    "capability",
    "classify",
    "cut_json",
    "cut_text",
    "decode",
    "diff",
    "digest",
    "outcome_of",
    "read_json",
    "record_of",
    "seal",
    "tool",
    "unseal",
    "unwrap",
)
