"""A database lies in a directory of its owner's on a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedo.errors import StoreError
from schedo.store.sqlite.path_checks import find_filesystem, prepare_directory, size_bytes

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 / /srv/jobs rw,relatime shared:1 - nfs4 server:/jobs rw
31 27 0:31 / /srv/with\\040space rw,relatime - 9p share rw
32 27 0:32 / /mnt rw,relatime - nfs old:/ rw
33 32 0:33 / /mnt rw,relatime - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("/home/ada", "ext4"),
        ("/srv", "ext4"),
        ("/srv/jobs", "nfs4"),
        ("/srv/jobs/deep/down", "nfs4"),
        ("/srv/jobs2", "ext4"),
        ("/srv/with space/x", "9p"),
        ("/mnt/x", "xfs"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_mount(directory: str, expected: str) -> None:
    assert find_filesystem(Path(directory), MOUNTS) == expected


def test_without_a_list_of_mounts_the_file_system_is_unknown() -> None:
    assert find_filesystem(Path("/srv"), "") is None


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = f"30 27 0:30 / {tmp_path} rw - nfs4 server:/jobs rw\n"

    with pytest.raises(StoreError, match=r"network file system \(nfs4\).*use a local disk"):
        prepare_directory(str(tmp_path / "jobs.db"), mounts)


def test_a_missing_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    prepare_directory(str(tmp_path / "data" / "jobs.db"))

    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_a_world_writable_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)

    with pytest.raises(StoreError, match=r"every user may write to .*chmod o-w"):
        prepare_directory(str(tmp_path / "open" / "jobs.db"))


def test_a_directory_like_tmp_is_refused_and_its_mode_left_alone(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)

    with pytest.raises(StoreError) as caught:
        prepare_directory(str(tmp_path / "open" / "jobs.db"))

    assert f"every user may create files in {tmp_path}/open" in str(caught.value)
    assert f"`mkdir -m 700 {tmp_path}/open/schedo`" in str(caught.value)
    assert "chmod" not in str(caught.value)


def test_a_directory_at_the_path_of_the_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is a directory; give the path of a file"):
        prepare_directory(str(tmp_path))


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot use the directory"):
        prepare_directory(str(tmp_path / "file" / "data" / "jobs.db"))


def test_a_missing_database_has_no_size(tmp_path: Path) -> None:
    assert size_bytes(str(tmp_path / "jobs.db")) == 0
