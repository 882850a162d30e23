"""The exception tree: exit codes, messages, and that UsageError is a ValueError."""

from pathlib import Path

import pytest

from rawflash import errors
from rawflash.errors import CompileError, InvalidConfiguration, RawflashError, TrackingError, UsageError


def test_every_public_error_is_a_rawflash_error() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), RawflashError)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *[(name, 1) for name in ("RawflashError", "CompileError", "LaunchError", "CheckFailed", "TrackingError")],
        *[(name, 2) for name in ("UsageError", "BackendUnavailable", "InvalidConfiguration")],
    ],
)
def test_exit_code(name: str, code: int) -> None:
    assert getattr(errors, name).exit_code == code


def test_usage_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="wrong"):
        raise UsageError("wrong")


def test_messages_name_the_place() -> None:
    assert str(CompileError("fa2.cu", 12, 'expected a ";"', "log")) == 'fa2.cu:12: expected a ";"'
    assert str(CompileError("fa2.cu", 0, "no such option", "log")) == "fa2.cu: no such option"
    refused = InvalidConfiguration("fa1", "d=48 is not supported")
    assert (refused.variant, refused.reason, str(refused)) == ("fa1", "d=48 is not supported", "fa1: d=48 is not supported")
    assert "/tmp/results.json" in str(TrackingError("the server does not answer.", Path("/tmp/results.json")))
