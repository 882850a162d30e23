"""Signals become one exception; none is lost, none comes at a bad moment."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref

import pytest

from rawflash.signals import Stopped, caught, deferred, retake


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_raises_stopped(name: str) -> None:
    before = signal.getsignal(getattr(signal, name))
    with pytest.raises(Stopped, match=f"stopped by {name}") as stop, caught():
        os.kill(os.getpid(), getattr(signal, name))
    assert stop.value.exit_code == 128 + getattr(signal, name)
    assert not isinstance(stop.value, Exception)
    assert signal.getsignal(getattr(signal, name)) == before


def test_deferred_waits_for_the_outermost_end() -> None:
    steps = []
    with pytest.raises(Stopped), caught(), deferred():
        with deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("inner")
        steps.append("outer")
    assert steps == ["inner", "outer"]
    with caught(), deferred():
        pass  # nothing is left over


def test_a_signal_that_comes_while_an_object_is_freed_is_not_lost() -> None:
    """What a finalizer raises goes nowhere."""
    freed = []

    class Memory:
        pass

    with pytest.raises(Stopped, match="SIGTERM"), caught():
        memory = Memory()
        weakref.finalize(memory, lambda: freed.append(signal.raise_signal(signal.SIGTERM)))
        del memory
        while True:  # until it comes
            time.sleep(0.01)
    assert not freed


def test_other_threads_do_not_touch_handlers() -> None:
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with caught():
            seen.append(signal.getsignal(signal.SIGINT))

    seen: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_signal_that_another_library_took_is_caught_again() -> None:
    with pytest.raises(Stopped), caught():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        retake()
        os.kill(os.getpid(), signal.SIGTERM)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    retake()  # nothing is caught here
    assert signal.signal(signal.SIGTERM, before) is signal.SIG_IGN
