"""Text cut to what a model is to read: between characters, and never into broken JSON."""

import json

_NOTICE = 80
"""Bytes that the notice of a cut takes at most, with what separates it from the text."""


def cut_text(text: str, limit: int) -> str:
    """
    Return `text` cut between characters to `limit` bytes of UTF-8, its notice included.

    A text that is not longer is returned as it is. The notice says what is shown and what there
    is; where not even the notice fits, it stands alone.
    """
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    shown = _beginning(data, limit - _NOTICE)
    return f"{shown}\n[{_notice(shown, data)}]"


def cut_json(text: str, limit: int) -> str:
    """
    Return the JSON `text` if it is at most `limit` bytes, else JSON that tells its beginning.

    JSON cut short is no JSON (CONTRACT EXE-11): the beginning is a string in an object.
    """
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    # Written as a JSON string, JSON at most doubles: quotes and backslashes get a backslash.
    shown = _beginning(data, (limit - _NOTICE - len('{"cut":"","beginning":""}')) // 2)
    told = {"cut": _notice(shown, data), "beginning": shown}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _beginning(data: bytes, limit: int) -> str:
    return data[: max(limit, 0)].decode(errors="ignore")


def _notice(shown: str, data: bytes) -> str:
    return f"the first {len(shown.encode())} of {len(data)} bytes are shown"
