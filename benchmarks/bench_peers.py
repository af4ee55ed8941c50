"""
Run every peer beside Ferrule and write PEERS.md: `python bench_peers.py [NAME...]`.

Each peer gets an environment of its own under `.bench`, made once, with whatever version is newest
that day. One that cannot be installed or has another API by now says why, and the rest goes on.
Names measure those peers alone and keep the figures of the others.
"""

import datetime as dt
import os
import platform
import subprocess
import sys

import msgspec
import pages
from _data import BESIDE, HERE, PEERS, Measured, beside, save
from _measure import Loop
from against import Report, admitted, refused

ROOT = HERE.parent

LIMIT = 3600
"""Seconds that one peer may take."""


def main() -> None:
    """Measure the peers that the command line names, or all."""
    before = beside() if BESIDE.exists() else gathered({}, {})
    reports, missing = dict(before.reports), dict(before.missing)
    for name in sys.argv[1:] or PEERS:
        print(f"{name}:", file=sys.stderr)
        reports.pop(name, None)
        missing.pop(name, None)
        try:
            reports[name] = measured(name)
        except (subprocess.SubprocessError, msgspec.MsgspecError) as error:
            missing[name] = why(error)
            print(f"{PEERS[name][0]} {missing[name]}", file=sys.stderr)
        save(BESIDE, gathered(reports, missing))
    pages.main()


def measured(name: str) -> Report:
    """Return what one peer's environment reports, which is made if it is not there."""
    venv = ROOT / ".bench" / name
    install = ["sh", "scripts/venv.sh", str(venv), "pydantic", *PEERS[name][1]]
    ready = venv / ".ready"
    if not ready.exists():
        subprocess.run(install, check=True, cwd=ROOT, env={**os.environ, "CONSTRAINTS": ""})
        ready.touch()
    python = [str(venv / "bin" / "python"), str(HERE / "against.py"), name]
    ended = subprocess.run(python, check=True, stdout=subprocess.PIPE, timeout=LIMIT)
    return msgspec.json.decode(ended.stdout.splitlines()[-1], type=Report)


def why(error: Exception) -> str:
    """Return in a sentence why there is no report; what the process said stands above it."""
    if isinstance(error, subprocess.CalledProcessError):
        step = "installed" if "scripts/venv.sh" in error.cmd else "measured"
        return f"could not be {step}: exit code {error.returncode}"
    return f"could not be measured: {type(error).__name__}"


def gathered(reports: dict[str, Report], missing: dict[str, str]) -> Measured:
    """Return the run, its peers in the order of the list."""
    with Loop() as loop:
        refuses = refused(admitted, loop)
    return Measured(
        day=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        machine=f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        refuses=refuses,
        reports={name: reports[name] for name in PEERS if name in reports},
        missing=missing,
    )


if __name__ == "__main__":
    main()
