"""Named expectations of work outside of schedo: the request that puts one, and the responses."""

from __future__ import annotations

from typing import Any, Self

import msgspec
from msgspec import UNSET, Struct, UnsetType

from schedo.core.commands import PutEffect
from schedo.core.expectations import Expectation, ExpectationSpec, ExpectationState
from schedo.core.limits import MILLISECOND
from schedo.core.model import Expect, Rule
from schedo.core.triggers import check_rule
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.cron import CronText, Zone, read_cron
from schedo.protocol.expect import event_job_or_unset
from schedo.protocol.fields import (
    Duration,
    DurationText,
    Instant,
    duration_or_unset,
    instant_or_unset,
    or_unset,
)
from schedo.protocol.operation import Operation
from schedo.protocol.options import EventJobRequest, TaskName, read_event_job
from schedo.protocol.schedules import EmptyRequest
from schedo.protocol.times import render_instant


class ExpectationRequest(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Beats that are expected by a cron rule or at an interval; exactly one of cron and every."""

    cron: CronText | None = None
    every: Duration | None = None
    tz: Zone | None = None
    within: Duration  # after the instant at which a beat is expected
    on_miss: EventJobRequest | TaskName | None = None
    on_back: EventJobRequest | TaskName | None = None

    def to_spec(self, name: str) -> ExpectationSpec:
        """Return the spec of the expectation for the engine."""
        name = fields.read_name("/name", name)
        if (self.cron is None) == (self.every is None):
            raise Invalid.field("", "give exactly one of cron and every")
        rule = self._read_rule(name)
        check_rule(rule)
        expect = Expect(
            within_us=fields.read_duration("/within", self.within, MILLISECOND),
            on_miss=read_event_job("/on_miss", self.on_miss),
            on_back=read_event_job("/on_back", self.on_back),
        )
        return ExpectationSpec(name, rule, expect, self.cron)

    def _read_rule(self, name: str) -> Rule:
        if self.cron is None:
            if self.tz is not None:
                raise Invalid.field("/tz", "only a cron rule has a time zone")
            return Rule(every_us=fields.read_duration_or_none("/every", self.every))
        when = read_cron(self.cron, self.tz, name)
        return Rule(cron=when.normalized, every_us=when.every_us, tz=when.tz)


class ExpectationResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """A named expectation, and whether it is met; fields without a value are left out."""

    name: str
    cron: str | UnsetType = UNSET
    every: DurationText | UnsetType = UNSET
    tz: str | UnsetType = UNSET
    within: DurationText | UnsetType = UNSET
    on_miss: EventJobRequest | UnsetType = UNSET
    on_back: EventJobRequest | UnsetType = UNSET
    owner: str
    state: ExpectationState
    since: Instant
    missed: int
    last_beat_at: Instant | UnsetType = UNSET
    limit_at: Instant | UnsetType = UNSET
    created_at: Instant
    updated_at: Instant
    effect: PutEffect | UnsetType = UNSET  # of the PUT that this responds to
    warnings: list[str] | UnsetType = UNSET

    @classmethod
    def of(cls, expectation: Expectation) -> Self:
        rule, expect = expectation.rule, expectation.expect
        is_cron = rule.cron is not None
        return cls(
            name=expectation.name,
            cron=or_unset(expectation.cron_source),
            every=UNSET if expectation.cron_source else duration_or_unset(rule.every_us),
            tz=rule.tz if is_cron else UNSET,
            within=duration_or_unset(expect.within_us),
            on_miss=event_job_or_unset(expect.on_miss),
            on_back=event_job_or_unset(expect.on_back),
            owner=expectation.owner,
            state=expectation.state,
            since=render_instant(expectation.since),
            missed=expectation.missed,
            last_beat_at=instant_or_unset(expectation.kept_at),
            limit_at=instant_or_unset(expectation.limit()),
            created_at=render_instant(expectation.created_at),
            updated_at=render_instant(expectation.updated_at),
        )


def show_expectation(expectation: Expectation) -> dict[str, Any]:
    """Return what is expected as plain JSON data, in the fields of the request that puts it."""
    shown = msgspec.to_builtins(ExpectationResponse.of(expectation))
    return {name: shown[name] for name in ExpectationRequest.__struct_fields__ if name in shown}


class ExpectationPage(Struct, forbid_unknown_fields=True):
    """All named expectations, by name."""

    items: list[ExpectationResponse]


OPERATIONS = (
    Operation(
        "put_expectation",
        "PUT /v1/expectations/{name}",
        "Create or change a named expectation of work outside.",
        {200: ExpectationResponse, 201: ExpectationResponse},
        request=ExpectationRequest,
    ),
    Operation(
        "list_expectations", "GET /v1/expectations", "List them by name.", {200: ExpectationPage}
    ),
    Operation(
        "get_expectation",
        "GET /v1/expectations/{name}",
        "Read a named expectation, and whether it is met.",
        {200: ExpectationResponse},
    ),
    Operation(
        "delete_expectation",
        "DELETE /v1/expectations/{name}",
        "Delete a named expectation.",
        {204: ""},
    ),
    Operation(
        "beat_expectation",
        "POST /v1/expectations/{name}/beat",
        "Note that the work outside has been done.",
        {200: ExpectationResponse},
        request=EmptyRequest,
    ),
)
