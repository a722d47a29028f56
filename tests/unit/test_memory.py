"""What a process takes, and sizes as people write them."""

import mmap
import os
import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadq.errors import DeadqError
from deadq.runtime import memory
from deadq.runtime.memory import resident_bytes, size_of

MIB = 1024**2


def test_memory_that_is_touched_counts_and_goes_again():
    before = resident_bytes()
    with mmap.mmap(-1, 64 * MIB) as page:
        assert resident_bytes() - before < 32 * MIB
        for at in range(0, len(page), mmap.PAGESIZE):
            page[at] = 1
        assert 60 * MIB < resident_bytes() - before < 90 * MIB
    assert resident_bytes() - before < 32 * MIB


def test_another_process_is_measured_by_its_pid():
    program = "data = b'x' * (64 << 20); print('there', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "there\n"
        assert 64 * MIB < resident_bytes(other.pid) < 128 * MIB
        other.communicate("\n", timeout=30)
    with pytest.raises(ProcessLookupError, match=f"there is no process {other.pid}"):
        resident_bytes(other.pid)


def test_one_s_own_pid_is_as_good_as_none():
    assert abs(resident_bytes(os.getpid()) - resident_bytes()) < 32 * MIB


def test_pages_are_counted_in_bytes(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text("1000 25 3 1 0 9 0\n")
    assert resident_bytes(7, proc=tmp_path) == 25 * resource.getpagesize()


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
@pytest.mark.parametrize("own_pid", [True, False])
def test_without_proc_it_is_one_s_own_peak(platform, unit, own_pid, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    least = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    found = resident_bytes(os.getpid() if own_pid else None, proc=tmp_path)
    assert least <= found <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def test_without_proc_others_are_unknown(tmp_path):
    with pytest.raises(DeadqError, match=r"this system has no .*; measure it in that process"):
        resident_bytes(os.getppid(), proc=tmp_path)


@pytest.mark.parametrize("said", ["", "1000", "a b c", "1000 x"])
def test_a_statm_that_says_nothing_falls_back(said, tmp_path):
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / str(os.getpid()) / "statm").write_text(said)
    assert resident_bytes(proc=tmp_path) > MIB


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("200000000", 200_000_000),
        ("200000000B", 200_000_000),
        ("400MB", 400_000_000),
        ("400mb", 400_000_000),
        ("400 MB", 400_000_000),
        (" 400M ", 400_000_000),
        ("400MiB", 400 * MIB),
        ("400Mi", 400 * MIB),
        ("400mib", 400 * MIB),
        ("512K", 512_000),
        ("512KiB", 512 * 1024),
        ("1.5G", 1_500_000_000),
        ("1.5GiB", 1_610_612_736),
        ("0.1GB", 100_000_000),
        ("2T", 2 * 10**12),
        ("8388607TiB", 8388607 * 1024**4),
        ("1.9", 1),
    ],
)
def test_sizes_as_people_write_them(text, size):
    assert size_of(text) == size


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "MB", "B", "-1MB", "+1MB", "1,5G", "1e9", ".5G", "1.G", "400 M B", "400iB"],
        *["400MBs", "400X", "0x10", "1_000", "nan", "inf", "\u0664MB", "400MB\n400MB"],
        *["1" * 21, "1." + "1" * 21, "9" * 5000],
    ],
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError) as refused:
        size_of(text)
    assert str(refused.value).startswith("max_memory must be a size such as 400MB, 1.5G or 512MiB,")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("text", ["0", "0.0GB", "0.9", "0.0001K", "8388608TiB", "9" * 20])
def test_what_no_process_can_have_is_refused(text):
    with pytest.raises(ValueError, match="--max-memory must be at least 1 byte and less than 8 E"):
        size_of(text, "--max-memory")


@pytest.mark.parametrize("value", [400, 4.5, None, b"400MB", True])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(TypeError, match=r"max_memory must be a str such as '400MB', not "):
        size_of(value)


@given(st.integers(1, 2**40), st.sampled_from(list(memory._POWERS)))
def test_whole_numbers_are_exact(number, prefix):
    power = memory._POWERS[prefix]
    if number * 1024**power < 2**63:
        assert size_of(f"{number}{prefix}iB") == number * 1024**power
        assert size_of(f"{number}{prefix}B") == number * 1000**power
