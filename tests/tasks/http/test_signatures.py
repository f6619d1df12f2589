"""Signatures against the published example of Standard Webhooks."""

from __future__ import annotations

import pytest

from schedo.tasks.http.signatures import parse_secrets, render_signature

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
OTHER_SECRET = "whsec_" + "AAAA" * 8  # 24 zero bytes


def test_the_published_example_has_the_published_signature() -> None:
    keys = parse_secrets(SECRET)

    signature = render_signature(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, BODY)

    assert signature == SIGNATURE


def test_two_secrets_give_two_signatures_in_their_order() -> None:
    keys = parse_secrets(f"{OTHER_SECRET} {SECRET}")

    signature = render_signature(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, BODY)

    assert signature.endswith(" " + SIGNATURE)
    assert signature.count("v1,") == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "give 1 to 4 secrets"),
        (" ".join([SECRET] * 5), "give 1 to 4 secrets"),
        ("hunter2", 'begin with "whsec_"'),
        ("whsk_" + "A" * 32, "ed25519"),
        ("whsec_not base64!", "must be base64"),
        ("whsec_AAA", "must be base64"),
        ("whsec_" + "A" * 28, "24 to 64 bytes"),
        ("whsec_" + "A" * 88, "24 to 64 bytes"),
    ],
    ids=["none", "five", "no prefix", "ed25519", "not base64", "no padding", "short", "long"],
)
def test_a_bad_secret_is_refused_without_being_quoted(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        parse_secrets(text)

    assert not text or text not in str(raised.value)
