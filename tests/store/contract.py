"""The promises of schedo/store/base.py, checked on a store.

A store's test module derives a class from StoreContract and gives it a fixture `store` that is
open.
"""

from __future__ import annotations

from tests.store.contract_bulk import BulkClaims
from tests.store.contract_clock import ClockClaims
from tests.store.contract_due import DueClaims
from tests.store.contract_histories import HistoryClaims
from tests.store.contract_jobs import JobClaims
from tests.store.contract_keep import KeepClaims
from tests.store.contract_lists import ListClaims
from tests.store.contract_minutes import LogClaims, MinuteClaims, SessionKeyClaims, TallyClaims
from tests.store.contract_names import NameClaims
from tests.store.contract_reads import ReadClaims
from tests.store.contract_schedule_lists import ScheduleListClaims
from tests.store.contract_schedules import ScheduleClaims
from tests.store.contract_search import SearchClaims


class StoreContract(
    BulkClaims,
    ClockClaims,
    DueClaims,
    HistoryClaims,
    JobClaims,
    KeepClaims,
    ListClaims,
    LogClaims,
    MinuteClaims,
    NameClaims,
    ReadClaims,
    ScheduleClaims,
    ScheduleListClaims,
    SearchClaims,
    SessionKeyClaims,
    TallyClaims,
):
    """Every claim; see the modules."""
