"""The settings of the HTTP application, and the secrets in files of their own: tokens, keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import schedo
from schedo.client.tokens import check_token, read_private
from schedo.config import Config
from schedo.config_checks import needs_token
from schedo.core.built_in import find_permissions
from schedo.errors import Invalid
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.roles import Role
from schedo.tasks.built_in import payload_checks
from schedo.tasks.http.signatures import parse_secrets
from schedo.web.permissions import (
    ANONYMOUS,
    ANYONE,
    WORKER_LINE,
    TokenPermission,
    digest,
    parse_tokens,
)
from schedo.web.settings import LOOPBACK_HOSTS, Tls, WebSettings
from schedo.web.site import is_page

SECRETS_CHARACTERS_MAX = 65_536
TOKENS_CHARACTERS_MAX = 1_048_576
ADMIN = TokenPermission(Role.ADMIN, "token_file", setting="token")


def read_web_settings(config: Config) -> WebSettings:
    """Return the settings of the HTTP application; raise Invalid as read_tokens does."""
    url = config.public_url
    if url is not None:
        check_prefix(url.prefix, config.sources.get("public_url", "default"))
    return WebSettings(
        tokens=read_tokens(config),
        anyone=_find_anyone(config),
        allowed_hosts=(*LOOPBACK_HOSTS, config.host, *config.allowed_hosts),
        public_url=url,
        tls=_read_tls(config),
        permissions=find_permissions(config),
        payload_checks=payload_checks(),
        version=schedo.__version__,
        is_strict=config.strict,
        lateness_objective_us=config.lateness_objective_us,
    )


def _read_tls(config: Config) -> Tls | None:
    if config.tls_cert is None or config.tls_key is None:
        return None
    from schedo.server.tls import read_tls  # a server without it does not need OpenSSL

    return read_tls(config.tls_cert, config.tls_key, has_grpc=config.grpc_port is not None)


def _find_anyone(config: Config) -> TokenPermission | None:
    """Return what a client without a token may do."""
    if not needs_token(config):
        return ANYONE
    if config.anonymous is None:
        return None
    return replace(ANONYMOUS, hides_payloads=config.hide_payload_from is not None)


def check_prefix(prefix: str, source: str) -> None:
    """Raise Invalid if the paths below the prefix would be those of the server itself."""
    first = prefix.strip("/").partition("/")[0]
    # /v1/jobs, and the screen of the jobs at /jobs.
    own = {part for each in OPERATIONS for part in each.path.partition(":")[0].split("/")[1:3]}
    if first and (first in own or is_page(f"/{first}") or is_page(f"/{first}/")):
        raise Invalid(f"public_url ({source}): /{first} is an address of the server itself")


def read_tokens(config: Config) -> dict[bytes, TokenPermission]:
    """Return the permission of each token, by its SHA-256.

    Raise Invalid if a file cannot be used, or contains the server's own token or one of the other.
    """
    tokens: dict[bytes, TokenPermission] = {}
    if config.token is not None:
        tokens[digest(config.token.reveal())] = ADMIN
    if config.tokens is not None:
        tokens |= _read_tokens("tokens", config.tokens, tokens, {})
    if config.worker_tokens is not None:
        tokens |= _read_tokens("worker_tokens", config.worker_tokens, tokens, WORKER_LINE)
    if config.hide_payload_from is None:
        return tokens
    return {
        key: replace(it, hides_payloads=True) if it.role == config.hide_payload_from else it
        for key, it in tokens.items()
    }


def _read_tokens(
    setting: str, path: str, others: Collection[bytes], given: Mapping[str, str]
) -> dict[bytes, TokenPermission]:
    source = f"{setting} = {path!r}"
    text = read_private(path, setting, TOKENS_CHARACTERS_MAX + 1)
    if len(text) > TOKENS_CHARACTERS_MAX:
        raise Invalid(f"{source}: the file is larger than {TOKENS_CHARACTERS_MAX} characters")
    tokens = parse_tokens(text, setting, source, check_token, given)
    if not tokens.keys().isdisjoint(others):
        raise Invalid(
            f"{source}: the file contains the server's own token, or one of another file;"
            " every line needs a token of its own"
        )
    return tokens


def read_webhook_secrets(path: str | None) -> dict[str, str]:
    """Return the keys that sign webhooks, by name; raise Invalid if the file cannot be used."""
    if path is None:
        return {}
    import tomllib  # a server without a file does not need it

    try:
        secrets = tomllib.loads(read_private(path, "webhook_secrets_file", SECRETS_CHARACTERS_MAX))
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"webhook_secrets_file = {path!r}: {error}") from error
    for name, secret in secrets.items():
        try:
            parse_secrets(secret if isinstance(secret, str) else "")
        except ValueError as error:
            raise Invalid(f"webhook_secrets_file = {path!r}: {name}: {error}") from error
    return secrets
