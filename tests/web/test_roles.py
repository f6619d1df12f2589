"""The roles of tokens: every operation with every role, the files, and restricted operators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from schedo.client.tokens import check_token
from schedo.config import Config, Secret
from schedo.config_checks import check_config
from schedo.core.ids import render_id
from schedo.errors import Invalid
from schedo.protocol.openapi import build_document
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.roles import RESTRICTABLE, ROLES, Role
from schedo.server.settings import read_tokens
from schedo.web.permissions import TokenPermission, digest, parse_tokens
from schedo.web.settings import WebSettings
from tests.web.world import Headers, World

# Who may call each operation: v viewer, o operator, a admin, w worker, b beat; "-" needs no token.
TABLE = {
    "voa": """
        list_jobs get_job list_attempts get_history get_output wait_for_job explain_job get_progress
        list_workers get_worker list_operations get_operation
        list_schedules get_schedule list_decisions explain_cron list_queues
        list_expectations get_expectation short_status get_metrics get_info
        get_summary get_store get_timeseries get_stats get_events list_failures list_names
        list_schedule_fires list_fires
        create_session_link list_log get_cluster
        """,
    "oa": """
        create_job create_jobs short_schedule invoke reserve commit_reservation
        create_operation cancel_operation undo_operation
        release_reservation update_job cancel_job retry_job run_job cordon_worker uncordon_worker
        drain_worker pause_schedule resume_schedule trigger_schedule pause_queue resume_queue
        pause_server resume_server
        """,
    "a": """
        put_schedule declare reset_schedule delete_schedule put_expectation delete_expectation
        delete_job update_queue create_backup advance_clock
        """,
    "aw": "work",
    "oab": "beat_expectation",
    "-": "check_health check_ready get_openapi get_problem get_me create_session delete_session",
}
ALLOWED = {name: letters for letters, names in TABLE.items() for name in names.split()}
TOKENS = {role: f"{role}-token-0123456789abcdef" for role in Role}
MAIL = "mail-operator-token-0123456789"
SETTINGS = WebSettings(
    tokens={digest(token): TokenPermission(role, role.value) for role, token in TOKENS.items()}
    | {
        digest(MAIL): TokenPermission(
            Role.OPERATOR, "mail", frozenset({"mail"}), frozenset({"send", "shell"})
        )
    },
    anyone=None,
    permissions={"allow_shell"},
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(SETTINGS) as made:
        yield made


def bearer(token: str) -> Headers:
    return [("authorization", f"Bearer {token}")]


@pytest.mark.parametrize("sender", [*Role, "nothing", "a wrong token"])
async def test_every_operation_allows_exactly_the_roles_of_the_table(
    world: World, sender: Role | str
) -> None:
    headers = (
        []
        if sender == "nothing"
        else bearer(TOKENS.get(Role(sender), ""))
        if (sender in list(Role))
        else bearer("wrong")
    )
    world.app.drain()  # so that no poll stays open
    found = {}
    for operation in OPERATIONS:
        path = operation.path
        for part in ("{id}", "{name}", "{code}", "{file}"):
            path = path.replace(part, render_id(7))
        body = b"[]" if operation.is_batch else b"{}"
        reply = await world.send(
            operation.method, path, body if operation.request else b"", headers
        )
        found[operation.name] = reply.status

    for name, status in found.items():
        allowed = ALLOWED[name]
        if allowed == "-" or (sender in list(Role) and sender[0] in allowed):
            assert status not in {401, 403, 405, 421, 429, 500}, name
        elif sender in list(Role):
            assert status == 403, name
        else:
            assert status in {401, 429}, name


def test_the_table_has_exactly_the_operations() -> None:
    names = {operation.name for operation in OPERATIONS}

    assert ROLES.keys() == names == ALLOWED.keys()
    assert names > RESTRICTABLE


def test_the_document_names_the_role_of_every_operation() -> None:
    names = {"voa": "viewer", "oa": "operator", "a": "admin", "aw": "worker", "oab": "beat"}
    for item in build_document()["paths"].values():
        for described in item.values():
            role = names.get(ALLOWED[described["operationId"]])
            assert described["security"] == ([{"token": [role]}, {}] if role else [{}])


async def test_a_refusal_names_the_token_its_role_and_the_needed_role(world: World) -> None:
    reply = await world.send("POST", "/v1/jobs", b"{}", bearer(TOKENS[Role.VIEWER]))

    assert (reply.status, reply.code) == (403, "forbidden")
    assert reply.json()["detail"] == (
        "the token 'viewer' has the role viewer; POST /v1/jobs needs the role operator"
    )


@pytest.mark.parametrize(
    ("queue", "task", "status"), [("mail", "send", 201), ("mail", "x", 403), ("y", "send", 403)]
)
async def test_a_restricted_operator_submits_and_changes_only_jobs_of_its_queues_and_tasks(
    world: World, queue: str, task: str, status: int
) -> None:
    job = {"queue": queue, "task": task, "delay": "1h"}
    mine, all_jobs = bearer(MAIL), bearer(TOKENS[Role.OPERATOR])

    assert (await world.post("/v1/jobs", job, mine)).status == status
    (item,) = (await world.post("/v1/jobs:batch", [job], mine)).json()["items"]
    assert item["status"] == status
    job_id = (await world.post("/v1/jobs", job, all_jobs)).json()["id"]
    refused = status == 403
    for verb in ("run", "cancel", "retry"):
        reply = await world.post(f"/v1/jobs/{job_id}:{verb}", None, mine)
        assert (reply.status == 403) is refused, verb
    patched = await world.send("PATCH", f"/v1/jobs/{job_id}", b'{"priority":1}', mine)
    assert (patched.status == 403) is refused
    assert (await world.get(f"/v1/jobs/{job_id}", mine)).status == 200


@pytest.mark.parametrize(
    ("queue", "task", "is_mine"),
    [("mail", "send", True), ("mail", "x", False), ("a", "send", False)],
)
@pytest.mark.parametrize("unique", [{"on_conflict": "replace"}, {"while": ["running"]}], ids=str)
async def test_a_restricted_operator_takes_unique_keys_only_from_jobs_of_its_own(
    world: World, queue: str, task: str, is_mine: bool, unique: dict[str, Any]
) -> None:
    holder = {"queue": queue, "task": task, "delay": "1h", "unique": "k"}
    held = await world.post("/v1/jobs", holder, bearer(TOKENS[Role.OPERATOR]))
    job = {"queue": "mail", "task": "send", "delay": "1h", "unique": {"key": "k", **unique}}

    reply = await world.post("/v1/jobs", job, bearer(MAIL))
    (item,) = (await world.post("/v1/jobs:batch", [job], bearer(MAIL))).json()["items"]

    assert reply.status == item["status"] == (201 if is_mine else 403)
    after = (await world.get(f"/v1/jobs/{held.json()['id']}", bearer(MAIL))).json()
    has_kept_all = (after["state"], after.get("unique_key")) == ("scheduled", "k")
    assert has_kept_all is not is_mine


async def test_a_restricted_operator_takes_the_unique_key_of_an_ended_job(world: World) -> None:
    holder = {"queue": "a", "task": "b", "delay": "1h", "unique": "k"}
    held = await world.post("/v1/jobs", holder, bearer(TOKENS[Role.OPERATOR]))
    await world.post(f"/v1/jobs/{held.json()['id']}:cancel", None, bearer(TOKENS[Role.OPERATOR]))

    job = {"queue": "mail", "task": "send", "unique": "k"}
    assert (await world.post("/v1/jobs", job, bearer(MAIL))).status == 201


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/invoke", {"task": "x", "queue": "mail"}),
        ("/v1/reservations", {"task": "send"}),
        ("/v1/reservations", {"task": "x", "queue": "mail"}),
        ("/v1/queues/mail:pause", None),
        ("/v1/queues/other:resume", None),
        ("/v1/server:pause", None),
        ("/v1/workers/w1:drain", None),
        ("/schedule", {"command": "true", "delay_seconds": 1}),
    ],
    ids=str,
)
async def test_a_restricted_operator_cannot_affect_the_jobs_of_others(
    world: World, path: str, fields: Any
) -> None:
    reply = await world.post(path, fields, bearer(MAIL))

    assert (reply.status, reply.code) == (403, "forbidden"), reply.body


@pytest.mark.parametrize(("task", "is_mine"), [("send", True), ("other", False)])
async def test_a_restricted_operator_pauses_and_triggers_only_schedules_of_its_jobs(
    world: World, task: str, is_mine: bool
) -> None:
    body = f'{{"every":"1h","task":"{task}","queue":"mail"}}'.encode()
    made = await world.send("PUT", "/v1/schedules/s", body, bearer(TOKENS[Role.ADMIN]))
    assert made.status == 201

    for verb in ("pause", "resume", "trigger"):
        reply = await world.post(f"/v1/schedules/s:{verb}", {}, bearer(MAIL))
        assert reply.status in ({200, 201} if is_mine else {403}), verb


async def test_an_operator_of_some_queues_pauses_them_as_a_whole() -> None:
    operator = TokenPermission(Role.OPERATOR, "mail", frozenset({"mail"}))
    settings = WebSettings(tokens={digest(MAIL): operator}, anyone=None)
    async with World(settings) as world:
        assert (await world.post("/v1/queues/mail:pause", None, bearer(MAIL))).status == 200
        assert (await world.post("/v1/queues/other:pause", None, bearer(MAIL))).status == 403


def parse(text: str) -> dict[bytes, TokenPermission]:
    return parse_tokens(text, "tokens", "f", check_token)


def test_a_file_has_a_token_with_its_role_and_name_on_each_line() -> None:
    text = f"# people\n{MAIL} name=ann role=operator tasks=send queues=mail,sms\r\n\n"
    found = parse(text + f"{TOKENS[Role.VIEWER]}\trole=viewer name=grafana")

    assert found == {
        digest(MAIL): TokenPermission(
            Role.OPERATOR, "ann", frozenset({"mail", "sms"}), frozenset({"send"})
        ),
        digest(TOKENS[Role.VIEWER]): TokenPermission(Role.VIEWER, "grafana"),
    }


FORM = (
    "line 1: write role=ROLE name=NAME queues=a,b tasks=x,y schedules=yes behind the token, each"
    " once"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n# x\n", "there is no token in it"),
        (
            f"{MAIL}",
            "line 1: write role=viewer, role=operator, role=admin, role=worker, role=beat behind",
        ),
        (f"{MAIL} role=root name=x", "line 1: write role=viewer"),
        (f"{MAIL} role={MAIL} name=x", "line 1: write role=viewer"),
        (f"{MAIL} role=Admin name=x", "line 1: write role=viewer"),
        (f"{MAIL} role=viewer", "line 1: name: "),
        (f"{MAIL} role=viewer name={MAIL}/", "line 1: name: "),
        (f"{MAIL} role=viewer role=admin name=x", FORM),
        (f"role=viewer name=x {MAIL}", "line 1"),
        (f"{MAIL} {MAIL} role=viewer name=x", FORM),
        (f"{MAIL} role=viewer name=x ={MAIL}", FORM),
        (f"{MAIL} role=operator name=x queues={MAIL}/", "line 1: queues: "),
        (f"{MAIL} role=viewer name=x queues=a", "restrict an operator or a worker only"),
        (f"{MAIL} role=admin name=x tasks=a", "restrict an operator or a worker only"),
        (f"{MAIL} role=viewer name=x\n{MAIL} role=admin name=y", "line 2: this token occurs twice"),
        ("\x00\x01 role=admin name=x", "line 1"),
    ],
    ids=range(16),
)
def test_the_error_of_a_hostile_file_names_the_line_and_never_the_token(
    text: str, message: str
) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text)

    assert message in str(caught.value)
    assert MAIL not in str(caught.value)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_a_token_belongs_to_one_file(tmp_path: Path) -> None:
    tokens = write(tmp_path / "tokens", f"{MAIL} role=viewer name=x\n")
    workers = write(tmp_path / "workers", f"{MAIL}\n")

    for config in (
        Config(tokens=tokens, worker_tokens=workers),
        Config(tokens=tokens, token=Secret(MAIL)),
    ):
        with pytest.raises(Invalid, match="the server's own token, or one of another file"):
            read_tokens(config)


def test_a_file_of_tokens_permits_an_address_off_loopback(tmp_path: Path) -> None:
    check_config(Config(host="0.0.0.0", tokens=str(tmp_path / "tokens")))
    with pytest.raises(Invalid, match="without a token"):
        check_config(Config(host="0.0.0.0", worker_tokens=str(tmp_path / "tokens")))


async def test_a_restricted_operator_learns_that_a_reservation_needs_its_task(world: World) -> None:
    reply = await world.post("/v1/reservations", {"queue": "mail"}, bearer(MAIL))

    assert (reply.status, reply.code) == (403, "forbidden")
    assert reply.json()["detail"].endswith(
        "is not for jobs of any task in the queue 'mail'; name the task"
    )


async def test_what_a_restricted_operator_may_not_do_is_answered_with_what_the_token_is_for(
    world: World,
) -> None:
    job = {"task": "demo", "queue": "sms", "payload": {}}

    submitted = await world.post("/v1/jobs", job, bearer(MAIL))

    assert submitted.json()["detail"].endswith(
        "is not for jobs of the task 'demo' in the queue 'sms'; it is only for the queues mail"
        " and the tasks send, shell"
    )


async def test_who_pauses_a_queue_of_others_is_not_told_to_name_a_task() -> None:
    operator = TokenPermission(Role.OPERATOR, "mail-team", queues=frozenset({"mail", "fax"}))
    async with World(WebSettings(tokens={digest(MAIL): operator}, anyone=None)) as world:
        reply = await world.post("/v1/queues/sms:pause", None, bearer(MAIL))

    assert (reply.status, reply.code) == (403, "forbidden")
    assert reply.json()["detail"] == (
        "the token 'mail-team' is not for jobs of any task in the queue 'sms'; it is only for the"
        " queues fax, mail"
    )
