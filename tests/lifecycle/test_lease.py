from pathlib import Path

import pytest

from aspira.lifecycle.lease import Lease
from aspira.lifecycle.version_record import VersionRecord
from fake_loaders import FakeServable, make_id

Record = VersionRecord[FakeServable]


@pytest.fixture
def record() -> Record:
    servable_id, path = make_id("m", 1), Path("/m/1")
    return Record(servable_id, path, servable=FakeServable(servable_id, path=path))


def take(record: Record, *, ended: list[Record]) -> Lease[FakeServable]:
    return Lease(record, on_last_release=ended.append)


def test_it_gives_the_servable(record: Record) -> None:
    lease = take(record, ended=[])
    assert lease.servable is record.servable
    assert lease.servable_id == make_id("m", 1)


def test_the_last_release_is_told(record: Record) -> None:
    ended: list[Record] = []
    first, second = take(record, ended=ended), take(record, ended=ended)
    first.release()
    assert ended == []
    second.release()
    assert ended == [record]


def test_a_second_release_of_one_lease_counts_for_nothing(record: Record) -> None:
    ended: list[Record] = []
    first, second = take(record, ended=ended), take(record, ended=ended)
    first.release()
    first.release()
    assert ended == []
    second.release()
    second.release()
    assert ended == [record]


def test_it_is_released_when_its_block_fails(record: Record) -> None:
    ended: list[Record] = []
    with pytest.raises(ValueError, match="why"), take(record, ended=ended):
        raise ValueError("why")
    assert ended == [record]


def test_what_is_not_loaded_cannot_be_leased() -> None:
    with pytest.raises(AssertionError):
        take(Record(make_id("m", 1), Path("/m/1")), ended=[])
