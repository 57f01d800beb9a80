"""Work that several processes share: the same results in the same order, errors and deaths told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from textwrap import dedent

import pytest

from weftc.verification.runs import processes
from weftc.verification.runs.processes import shared


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """These pieces of work do not use torch."""
    monkeypatch.setattr(processes, "may_be_copied", lambda: sys.platform == "linux")


def nothing(*_: int) -> None:
    """Nobody is told."""


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("many", [1, 2, 3, 8])
def test_results_are_in_order(many: int) -> None:
    """Whoever did them."""
    work = [lambda at=at: (at, at * at) for at in range(6)]
    assert shared(work, many, nothing, nothing) == [(at, at * at) for at in range(6)]


@pytest.mark.usefixtures("copies")
def test_other_processes_work_and_warn() -> None:
    """A piece that waits for another one is done, because that one runs elsewhere; its warning arrives here."""
    read, write = os.pipe()

    def waits() -> int:
        os.read(read, 1)
        return os.getpid()

    def answers() -> int:
        warnings.warn("from elsewhere", UserWarning, stacklevel=1)
        os.write(write, b"x")
        return os.getpid()

    with pytest.warns(UserWarning, match="from elsewhere"):
        first, second = shared([waits, answers], 2, nothing, nothing)
    assert first != second


@pytest.mark.usefixtures("copies")
def test_the_first_error_in_the_work_is_raised() -> None:
    """As if one process had done all of it."""

    def wrong(at: int) -> int:
        raise ValueError(f"piece {at}")

    with pytest.raises(ValueError, match="piece 1"):
        shared([lambda: 0, lambda: wrong(1), lambda: wrong(2)], 2, nothing, nothing)


@pytest.mark.usefixtures("copies")
def test_a_killed_copy_is_told() -> None:
    """Not a verdict on half of the work."""
    here = os.getpid()
    read, write = os.pipe()

    def dies_elsewhere() -> int:
        if os.getpid() == here:
            os.read(read, 1)  # until the other process has taken a piece too
        else:
            os.write(write, b"x")
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises(ChildProcessError, match="killed"):
        shared([dies_elsewhere, dies_elsewhere], 2, nothing, nothing)


def test_a_verdict_does_not_depend_on_the_number_of_processes() -> None:
    """In a fresh process, which has not loaded torch yet."""
    code = """
        import json, weftc
        model = weftc.compile("lloyd", {"d": 1, "k": 2})
        print(json.dumps([weftc.verify(model, cases=1, processes=many).json() for many in (2, 1)]))
    """
    ran = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    two, one = json.loads(ran.stdout)
    assert two == one


def test_the_command_has_not_loaded_torch_when_it_shares_the_work() -> None:
    """Else one process would do all of it."""
    code = """
        import sys
        from weftc.cli import main
        from weftc.verification import verification
        verification.shared = lambda *_: sys.exit(40 + ("torch" in sys.modules))
        sys.exit(main(["verify", "lloyd"]))
    """
    assert subprocess.run([sys.executable, "-c", dedent(code)], check=False).returncode == 40
