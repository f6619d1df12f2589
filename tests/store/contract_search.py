"""Claims about the search for jobs by what they contain."""

from __future__ import annotations

import pytest

from schedo.core.ids import render_id
from schedo.core.job_filter import JobFilter, Order, PayloadCondition
from schedo.core.model import Failure, Options
from schedo.core.states import State
from schedo.store.base import ClockMark, Store
from tests.factories import make_job
from tests.store.steps import LARGE, listed, put

ID = 2**62 + 2**40  # of a time in the future, so that an id has letters and digits
ORDER = b'{"order": 9781, "customer": {"name": "Ada \\u00e9", "vip": true, "tags": [1, "x"]}}'
OTHER = b'{"order": "9781", "amount": 12.5, "note": null, "7": {"0": "seven"}, "a b": -3}'


class SearchClaims:
    async def put_all(self, store: Store) -> None:
        slow = Failure("Timeout", "gateway answered 502 in 100%")
        await put(
            store,
            make_job(id=ID + 1, payload=ORDER, worker="eu-1"),
            make_job(id=ID + 2, payload=OTHER, task="charge_card", worker="eu-2"),
            make_job(id=ID + 3, state=State.FAILED, failure=slow, ended_at=9, payload=b"[1, 2]"),
            make_job(id=ID + 4, options=Options(tags=("red", "blue")), payload=b'"Ada"'),
            make_job(id=ID + 5, payload=LARGE),
        )

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("9781", [2, 1]),
            ("ada", [4, 1]),
            ("CHARGE", [2]),
            ("charge_", [2]),
            ("chargeX", []),
            ("%", [3]),
            ("gateway answered", [3]),
            ("TIMEOUT", [3]),
            ("blu", [4]),
            ("red,blue", []),
            ("xxx", []),
            ("\\u00e9", [1]),
            ("email.send", [5, 4, 3, 1]),
        ],
    )
    async def test_a_text_is_found_in_what_a_job_contains(
        self, store: Store, text: str, expected: list[int]
    ) -> None:
        await self.put_all(store)

        assert await listed(store, text=text) == [ID + n for n in expected]

    async def test_an_id_is_found_by_its_beginning(self, store: Store) -> None:
        await self.put_all(store)
        whole = render_id(ID + 3)

        assert await listed(store, text=whole) == [ID + 3]
        assert await listed(store, text=whole.lower()) == [ID + 3]
        assert await listed(store, text=whole[:9]) == [ID + n for n in (5, 4, 3, 2, 1)]
        assert await listed(store, text="ZZZZ") == []

    @pytest.mark.parametrize(
        ("where", "value", "expected"),
        [
            ("order", "9781", [2, 1]),
            ("order", "09781", []),
            ("order", "978", []),
            ("order", "9781.0", [1]),
            ("amount", "12.5", [2]),
            ("amount", "1.25e1", [2]),
            ("amount", "12", []),
            ("note", "null", [2]),
            ("missing", "null", []),
            ("customer.vip", "true", [1]),
            ("customer.vip", "1", []),
            ("customer.vip", "false", []),
            ("customer.name", "Ada \u00e9", [1]),
            ("customer.tags.0", "1", [1]),
            ("customer.tags.1", "x", [1]),
            ("customer.tags.2", "x", []),
            ("customer.tags", '[1,"x"]', []),
            ("7.0", "seven", [2]),
            ("a b", "-3", [2]),
            ("1", "2", [3]),
            ("order.deeper", "9781", []),
        ],
    )
    async def test_a_value_is_found_at_its_path_in_a_payload(
        self, store: Store, where: str, value: str, expected: list[int]
    ) -> None:
        await self.put_all(store)
        condition = PayloadCondition(tuple(where.split(".")), value)

        assert await listed(store, payload=(condition,)) == [ID + n for n in expected]

    @pytest.mark.parametrize(
        ("where", "expected"), [("größe", 0), ("größe.a/b", 1), ("a", 0), ("🙂.n", 2)]
    )
    async def test_a_name_is_found_however_it_is_escaped(
        self, store: Store, where: str, expected: int
    ) -> None:
        payloads = (
            rb'{"gr\u00f6\u00DFe": "\u0031", "\u0061": 1}',
            rb'{"gr\u00f6\u00dfe": {"a\/b": 1, "\u000a": "\\"}}',
            rb'{"\ud83d\ude42": {"x": 1e-400, "n": 1}, "\"": 1}',
        )
        jobs = (make_job(id=ID + n, payload=payload) for n, payload in enumerate(payloads))
        await put(store, *jobs)

        found = await listed(store, payload=(PayloadCondition(tuple(where.split(".")), "1"),))

        assert found == [ID + expected]

    @pytest.mark.parametrize("name", [b'"secret"', rb'"\u0073ecret"'])
    async def test_the_secret_of_a_built_in_task_is_never_found(
        self, store: Store, name: bytes
    ) -> None:
        payload = b'{"url": "https://a.example", %b : "whsec_A\\/b+9", "n": 1}' % name
        await put(store, make_job(id=ID + 1, task="http", payload=payload))
        await put(store, make_job(id=ID + 2, task="https", payload=payload))
        await put(store, make_job(id=ID + 3, task="http", payload=b'"whsec_"'))
        await put(store, make_job(id=ID + 4, task="http", payload=LARGE))

        async def having(path: str, value: str) -> list[int]:
            return await listed(store, payload=(PayloadCondition((path,), value),))

        assert await listed(store, text="whsec_") == [ID + 3, ID + 2]
        assert await listed(store, text="B+9") == [ID + 2]
        assert await listed(store, text="A.EXAMPLE") == [ID + 2, ID + 1]
        assert await having("secret", "whsec_A/b+9") == [ID + 2]
        assert await having("n", "1") == [ID + 2, ID + 1]

    async def test_a_large_number_is_found(self, store: Store) -> None:
        await put(store, make_job(id=1, payload=b'{"n": 18446744073709551615}'))
        await put(store, make_job(id=2, payload=b'{"n": 9223372036854775807}'))

        for number, value in ((1, "18446744073709551615"), (2, "9223372036854775807")):
            condition = PayloadCondition(("n",), value)
            assert await listed(store, payload=(condition,)) == [number]

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("0.1000000000000000055", [5, 4]),
            ("0.1", [5, 4]),
            ("1.5e308", [3]),
            ("9223372036854775807", [2]),
            ("9223372036854775808", [1]),
            ("1e-320", []),
            ("1e20", []),
        ],
    )
    async def test_a_number_is_found_as_a_float_or_an_integer_of_64_bits(
        self, store: Store, value: str, expected: list[int]
    ) -> None:
        """1e-400 is none that a float can be; beside it the others are found nevertheless."""
        numbers = (
            *("9223372036854775808", "9223372036854775807", "1.5e308"),
            *("0.1000000000000000055", "0.10", "1e-400"),
        )
        for number, text in enumerate(numbers, 1):
            await put(store, make_job(id=number, payload=f'{{"n": {text}}}'.encode()))

        assert await listed(store, payload=(PayloadCondition(("n",), value),)) == expected

    async def test_all_conditions_are_met(self, store: Store) -> None:
        await self.put_all(store)
        order = PayloadCondition(("order",), "9781")
        vip = PayloadCondition(("customer", "vip"), "true")

        assert await listed(store, payload=(order, vip)) == [ID + 1]
        assert await listed(store, payload=(order,), worker="eu-2") == [ID + 2]
        assert await listed(store, text="9781", worker="eu-3") == []
        assert await listed(store, payload=(order,), task="charge_card") == [ID + 2]

    async def test_late_jobs_are_found(self, store: Store) -> None:
        ended = {"state": State.COMPLETED, "ended_at": 99}
        await put(
            store,
            make_job(id=1, due_at=10, started_at=15, **ended),
            make_job(id=2, due_at=10, started_at=16, **ended),
            make_job(id=3, due_at=44),
            make_job(id=4, due_at=45),
            make_job(id=5, due_at=90, state=State.SCHEDULED),
            make_job(id=6, due_at=10, state=State.CANCELLED, ended_at=50),
        )

        assert await listed(store, late_over_us=5, late_at=50) == [3, 2]

    async def test_lateness_follows_a_clock_that_is_set(self, store: Store) -> None:
        retrying = {"state": State.RETRYING, "due_elapsed": True}
        await put(store, make_job(id=1, due_at=10, **retrying))
        await store.save_clock(ClockMark(offset_us=100))

        assert await listed(store, late_over_us=5, late_at=115) == []
        assert await listed(store, late_over_us=5, late_at=116) == [1]

    async def test_the_oldest_jobs_may_come_first(self, store: Store) -> None:
        await put(
            store,
            *(
                make_job(
                    id=n,
                    state=State.FAILED if n % 3 == 0 else State.QUEUED,
                    queue="a" * (n % 2 + 1),
                )
                for n in range(1, 31)
            ),
        )

        for which in (
            JobFilter(),
            JobFilter(state="failed"),
            JobFilter(state="queued", queue="a"),
            JobFilter(states=(State.FAILED, State.CANCELLED), queue="aa"),
            JobFilter(created_after=0, task="email.send"),
        ):
            newest = await store.list_jobs(which, None, 99)
            expected = [job.id for job in reversed(newest.jobs)]
            found: list[int] = []
            after: int | None = None
            while True:
                page = await store.list_jobs(which, after, 4, Order.OLDEST)
                found += [job.id for job in page.jobs]
                after = page.after
                if after is None:
                    break
            assert found == expected
