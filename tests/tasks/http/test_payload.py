"""The payload of http jobs: valid fields, and refusals that name the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedo.errors import Invalid
from schedo.tasks.http.payload import check_http_payload, parse_url

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.parametrize(
    ("payload", "pointer", "detail"),
    [
        (None, "/payload", "Expected object"),
        ({}, "/payload/url", "required"),
        ({"url": 1}, "/payload/url", "Expected text"),
        ({"url": "http://a", "x": 1}, "/payload/x", "there is no such field"),
        ({"url": ""}, "/payload/url", "visible ASCII"),
        ({"url": "a.example/x"}, "/payload/url", "begin with http:// or https://"),
        ({"url": "file:///etc/passwd"}, "/payload/url", "begin with http://"),
        ({"url": "gopher://a/1"}, "/payload/url", "begin with http://"),
        ({"url": "http+unix://%2Frun%2Fx/"}, "/payload/url", "begin with http://"),
        ({"url": "http://x\r\nHost: y/"}, "/payload/url", "visible ASCII"),
        ({"url": "http://x/\n"}, "/payload/url", "visible ASCII"),
        ({"url": "http://x/a b"}, "/payload/url", "visible ASCII"),
        ({"url": "http://x\\@y/"}, "/payload/url", "visible ASCII"),
        ({"url": "http://①②⑦.example/"}, "/payload/url", "visible ASCII"),
        ({"url": "http://user:pass@a/"}, "/payload/url", "user name or password"),
        ({"url": "http://@a/"}, "/payload/url", "user name or password"),
        ({"url": "http:///x"}, "/payload/url", "no valid host"),
        ({"url": "http://a..b/"}, "/payload/url", "no valid host"),
        ({"url": f"http://www.{64 * 'a'}.de/"}, "/payload/url", "no valid host"),
        ({"url": "http://[fe80::1%25eth0]/"}, "/payload/url", "no valid host"),
        ({"url": "http://[v1.a]/"}, "/payload/url", "no valid host"),
        ({"url": "http://[::1/"}, "/payload/url", "Invalid IPv6"),
        ({"url": "http://a:0/"}, "/payload/url", "port must not be 0"),
        ({"url": "http://a:65536/"}, "/payload/url", "out of range"),
        ({"url": "http://a:b/"}, "/payload/url", "Port could not be cast"),
        ({"url": "http://a/" + "x" * 8_192}, "/payload/url", "longer than 8192"),
        ({"url": "http://a", "method": "TRACE"}, "/payload/method", "must be one of"),
        ({"url": "http://a", "method": "GET / X\r\n"}, "/payload/method", "must be one of"),
        ({"url": "http://a", "timeout": 0}, "/payload/timeout", "must be 1ms to 1h"),
        ({"url": "http://a", "timeout": "2h"}, "/payload/timeout", "must be 1ms to 1h"),
        ({"url": "http://a", "expected_status": 99}, "/payload/expected_status", "200 to 599"),
        ({"url": "http://a", "expected_status": "1xx"}, "/payload/expected_status", "2xx"),
        ({"url": "http://a", "expected_status": []}, "/payload/expected_status", "200 to 599"),
        ({"url": "http://a", "headers": {"a\r\nb": "c"}}, "/payload/headers/a\r\nb", "name"),
        ({"url": "http://a", "headers": {"a b": "c"}}, "/payload/headers/a b", "name"),
        ({"url": "http://a", "headers": {"": "c"}}, "/payload/headers/", "name"),
        ({"url": "http://a", "headers": {"a": "b\r\nc: d"}}, "/payload/headers/a", "one line"),
        ({"url": "http://a", "headers": {"a": "b\n"}}, "/payload/headers/a", "one line"),
        ({"url": "http://a", "headers": {"a": "\0"}}, "/payload/headers/a", "printable ASCII"),
        (
            {"url": "http://a", "headers": {"Host": "b"}},
            "/payload/headers/Host",
            "schedo sets",
        ),
        (
            {"url": "http://a", "headers": {"TE": "b"}},
            "/payload/headers/TE",
            "schedo sets",
        ),
        (
            {"url": "http://a", "headers": {"Transfer-Encoding": "chunked"}},
            "/payload/headers/Transfer-Encoding",
            "schedo sets",
        ),
        (
            {"url": "http://a", "headers": {"webhook-signature": "v1,x"}},
            "/payload/headers/webhook-signature",
            "schedo sets",
        ),
        ({"url": "http://a", "headers": {"a": "b" * 16_384}}, "/payload/headers", "at most"),
        ({"url": "http://a", "secret": "hunter2"}, "/payload/secret", "whsec_"),
        ({"url": "http://a", "secret": SECRET, "secret_name": "a"}, "/payload/secret", "not both"),
        ({"url": "http://a", "secret_name": ""}, "/payload/secret_name", "must not be empty"),
    ],
)
def test_a_bad_payload_is_refused_with_a_pointer(payload: Any, pointer: str, detail: str) -> None:
    with pytest.raises(Invalid) as raised:
        check_http_payload(json.dumps(payload).encode())

    (problem,) = raised.value.problems
    assert problem.pointer == pointer
    assert detail in problem.detail


@pytest.mark.parametrize(
    ("text", "host", "port", "host_header", "target"),
    [
        ("http://a.example", "a.example", 80, "a.example", "/"),
        ("HTTPS://A.Example:443/x?y=z#f", "a.example", 443, "a.example", "/x?y=z"),
        ("https://a.example?q", "a.example", 443, "a.example", "/?q"),
        ("http://a.example:8080/", "a.example", 8080, "a.example:8080", "/"),
        ("http://[::1]:8080/%20", "::1", 8080, "[::1]:8080", "/%20"),
    ],
)
def test_a_url_is_split_into_its_parts(
    text: str, host: str, port: int, host_header: str, target: str
) -> None:
    url = parse_url(text)

    assert (url.host, url.port, url.host_header, url.target) == (host, port, host_header, target)
