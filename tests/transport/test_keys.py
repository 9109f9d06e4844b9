"""Keys are made once, travel as plain text, and stay out of logs."""

from __future__ import annotations

import pytest

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import JobKeys, bind_gather


def test_every_job_has_its_own_keys() -> None:
    first, second = JobKeys.make().to_dict(), JobKeys.make().to_dict()
    assert all(first[name] != second[name] for name in first)


def test_plain_text_and_back() -> None:
    keys = JobKeys.make()
    values = keys.to_dict()
    assert all(type(value) is str for value in values.values())
    assert JobKeys.from_dict(values) == keys
    assert JobKeys.from_dict(keys.for_clients().to_dict()) == keys.for_clients()


def test_secrets_stay_out_of_messages() -> None:
    keys = JobKeys.make()
    for secret in (keys.client_secret, keys.server_secret):
        assert secret not in repr(keys)
        assert secret not in str(keys)
    assert keys.server_secret not in keys.for_clients().to_dict().values()


@pytest.mark.parametrize(
    ("name", "value"),
    [("server_public", "short"), ("client_secret", "\x7f" * 40), ("client_public", ""), ("job", "")],
)
def test_what_is_no_key_is_refused(name: str, value: str) -> None:
    with pytest.raises(TransportError, match=r"JobKeys\.make") as caught:
        JobKeys.from_dict({**JobKeys.make().to_dict(), name: value})
    assert value == "" or value not in str(caught.value)


def test_fields_have_to_be_complete() -> None:
    values = JobKeys.make().to_dict()
    del values["job"]
    with pytest.raises(TransportError, match="expected"):
        JobKeys.from_dict(values)


@pytest.mark.parametrize("uri", ["tcp://127.0.0.1:0", "ipc:///nowhere/file", "tcp://0.0.0.0:0"])
def test_clients_cannot_pose_as_the_learner(uri: str) -> None:
    with pytest.raises(TransportError, match="keys are for clients"):
        bind_gather(uri, keys=JobKeys.make().for_clients())
