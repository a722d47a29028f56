"""The CPUs that a process may use, in trees of files like those of real machines."""

import os
import subprocess
import sys

import pytest

from deadq.runtime.cpus import available, quotas

PLAIN = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"
V2 = "31 22 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw"
V1 = "33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct"
V1_MEMORY = "34 31 0:30 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory"
UNIFIED, SPLIT = "sys/fs/cgroup", "sys/fs/cgroup/cpu,cpuacct"


@pytest.fixture
def eight_cpus(monkeypatch):
    """The machine seems to have eight, for processes that nobody has confined."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.fixture
def machine(tmp_path):
    """Lay out a machine's files: its mounts, this process's groups, and what these say."""

    def lay(mounts, groups, files):
        given = {
            "proc/self/mountinfo": "\n".join([PLAIN, *mounts, ""]),
            "proc/self/cgroup": "\n".join([*groups, ""]),
            **files,
        }
        for name, content in given.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return lay


def v1(folder, quota, period="100000"):
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}


@pytest.mark.parametrize(
    ("said", "cpus"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("100001 100000\n", 2),
        ("100000 100000\n", 1),
        ("20000 100000\n", 1),
        ("50000 10000\n", 5),
        ("1600000 100000\n", 8),
        ("max 100000\n", 8),
        ("200000\n", 8),
        ("", 8),
        ("two three\n", 8),
        ("200000 0\n", 8),
        ("-1 100000\n", 8),
        ("0 100000\n", 8),
        ("200000 100000 7\n", 8),
        (b"\xff\xfe\x00", 8),
    ],
)
def test_a_quota_of_version_2(said, cpus, machine, eight_cpus):
    root = machine([V2], ["0::/app"], {f"{UNIFIED}/app/cpu.max": said})
    assert available(root) == cpus


@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [
        ("250000", "100000", 3),
        ("50000", "100000", 1),
        ("-1", "100000", 8),
        ("400000", "", 8),
        ("x", "100000", 8),
        ("400000", "0", 8),
    ],
)
def test_a_quota_of_version_1(quota, period, cpus, machine, eight_cpus):
    files = v1(f"{SPLIT}/app", quota, period) | v1("sys/fs/cgroup/memory/app", "100000")
    root = machine([V1_MEMORY, V1], ["5:memory:/app", "4:cpuacct,cpu:/app"], files)
    assert available(root) == cpus


def test_the_tightest_of_all_groups_above_counts(machine, eight_cpus):
    files = {
        f"{UNIFIED}/kube/pod/app/cpu.max": "600000 100000",
        f"{UNIFIED}/kube/pod/cpu.max": "250000 100000",
        f"{UNIFIED}/kube/cpu.max": "max 100000",
        f"{UNIFIED}/kube/pod/app/below/cpu.max": "100000 100000",
        f"{UNIFIED}/other/cpu.max": "100000 100000",
    }
    root = machine([V2], ["0::/kube/pod/app"], files)
    assert quotas(root) == [2.5, 6.0]
    assert available(root) == 3


def test_groups_of_version_1_are_nested_too(machine, eight_cpus):
    files = v1(f"{SPLIT}/docker/abc", "700000") | v1(f"{SPLIT}/docker", "400000")
    root = machine([V1], ["4:cpu,cpuacct:/docker/abc"], files | v1(SPLIT, "-1"))
    assert available(root) == 4


def test_where_both_versions_are_mounted_both_count(machine, eight_cpus):
    hybrid = V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ")
    files = v1(f"{SPLIT}/app", "500000") | {"sys/fs/cgroup/unified/app/cpu.max": "300000 100000"}
    root = machine([V1, hybrid], ["4:cpu,cpuacct:/app", "0::/app"], files)
    assert sorted(quotas(root)) == [3.0, 5.0]
    assert available(root) == 3


def test_a_container_that_sees_only_its_own_group(machine, eight_cpus):
    """The mount's root is the group itself: it stands at the mount point."""
    mount = V2.replace("0:28 / ", "0:28 /docker/abc ")
    root = machine([mount], ["0::/docker/abc/inner"], {f"{UNIFIED}/cpu.max": "200000 100000"})
    assert available(root) == 2


@pytest.mark.parametrize("group", ["/elsewhere/app", "/../../app", "/docker/abcd"])
def test_a_group_outside_of_what_is_mounted(group, machine, eight_cpus):
    mount = V2.replace("0:28 / ", "0:28 /docker/abc ")
    root = machine([mount], [f"0::{group}"], {f"{UNIFIED}/cpu.max": "300000 100000"})
    assert available(root) == 3


def test_a_mount_point_with_a_space(machine, eight_cpus):
    mount = V2.replace("/sys/fs/cgroup", "/sys/my\\040groups")
    root = machine([mount], ["0::/"], {"sys/my groups/cpu.max": "100000 100000"})
    assert available(root) == 1


@pytest.mark.parametrize(
    ("mounts", "groups"),
    [
        ([], ["0::/app"]),
        (["nonsense", "1 2 3 - cgroup2", "- - - - - -"], ["0::/app"]),
        ([V2], ["", "nonsense", "0::", "0::app", "0", "::/app", "7:cpu"]),
        ([V2], []),
    ],
)
def test_what_cannot_be_understood_limits_nothing(mounts, groups, machine, eight_cpus):
    root = machine(mounts, groups, {f"{UNIFIED}/app/cpu.max": "100000 100000"})
    assert available(root) == 8


def test_what_cannot_be_read_limits_nothing(machine, tmp_path, eight_cpus):
    assert available(tmp_path / "nothing") == 8
    root = machine([V2], ["0::/app/inner"], {f"{UNIFIED}/app/cpu.max": "200000 100000"})
    (root / UNIFIED / "app/inner/cpu.max").mkdir(parents=True)  # even root cannot read a folder
    assert available(root) == 2


def test_a_process_confined_to_one_cpu_has_one():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot confine a process")
    program = (
        "import os; from deadq.runtime.cpus import available\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(available())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


def test_without_any_affinity_the_machine_s_cpus_count(monkeypatch, tmp_path):
    if sys.version_info >= (3, 13):
        monkeypatch.setattr(os, "process_cpu_count", lambda: None)
    else:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert available(tmp_path) == (1 if sys.version_info >= (3, 13) else 5)


def test_on_this_machine_it_is_a_number_of_cpus():
    assert 1 <= available() <= (os.cpu_count() or 1)
