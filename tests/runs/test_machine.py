"""What a run notes about the machine it ran on."""

import os
from pathlib import Path

import pytest

from fastrl.runs import machine as noting


def test_the_processor_is_named(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    one = "processor\t: 0\nmodel\t\t: 143\nmodel name\t: Some(R) CPU   8481C @ 2.70GHz\n\n"
    info.write_text(one * 2)
    assert noting.cpu_model(info) == "Some(R) CPU 8481C @ 2.70GHz"


def test_where_the_list_does_not_say_the_system_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nBogoMIPS\t: 243.75\n")
    for system, told in (("arm", "arm"), ("", None)):
        monkeypatch.setattr(noting.platform, "processor", lambda system=system: system)
        assert noting.cpu_model(info) == told
        assert noting.cpu_model(tmp_path / "absent") == told


def test_cores_and_memory_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4 * 2**20}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5}, raising=False)
    found = noting.machine(2)
    assert (found["cores"], found["memory"], found["processes"]) == ("2 of 64", "16.0 GiB", 2)
    assert found["cpu"] == noting.cpu_model(noting.CPU_INFO)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "sysconf_names", {})
    assert (noting.usable_cores(), noting.memory()) == ("64", None)
