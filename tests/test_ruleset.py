"""Which variant of a rule judges which device."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.frame import Device, Process
from detector.incident import Severity
from detector.rule import EventRule, Rule
from detector.ruleset import Configured, Match, RuleSet


@dataclass(frozen=True)
class TooHot(Rule):
    severity: Severity = "warning"
    limit_celsius: float = 90.0
    margin_celsius: float = 5.0


@dataclass(frozen=True)
class Fell(EventRule):
    keep_firing: float = 600.0


GPU = Device("GPU-aaaa", index=0, name="NVIDIA L40S", pci_bus_id="00000000:3B:00.0")
OTHER = Device("GPU-bbbb", index=1, name="NVIDIA L40S", pci_bus_id="00000000:AF:00.0")
SLICE = Device("MIG-cccc", parent="GPU-aaaa", name="NVIDIA A100 MIG 1g.5gb")
TRAINING = Process(1, namespace="ml", pod="llm-0", job="llm")
SERVING = Process(2, namespace="prod", pod="api-0", job="api")


def configured(*overrides: tuple[Match, dict[str, object]], **settings: object) -> Configured:
    changes = [(match, {"too_hot": changed}) for match, changed in overrides]
    return RuleSet.build({"too_hot": TooHot}, {"too_hot": settings}, changes)["too_hot"]


@pytest.mark.parametrize(
    ("match", "meant"),
    [
        (Match(host="node-a"), True),
        (Match(host="node-*"), True),
        (Match(host="node-b"), False),
        (Match(host="NODE-A"), False),
        (Match(device="GPU-aaaa"), True),
        (Match(device="GPU-*"), True),
        (Match(device="GPU-bbbb"), False),
        (Match(device="0"), True),
        (Match(device="[1-7]"), False),
        (Match(device="00000000:3B:00.0"), True),
        (Match(device="0000:3b:00.0"), True),
        (Match(device="0000:3c:00.0"), False),
        (Match(name="*L40S*"), True),
        (Match(name="*H100*"), False),
        (Match(host="node-a", name="*H100*"), False),
        (Match(pod="llm-*", namespace="ml"), True),
        (Match(pod="llm-*", namespace="prod"), False),
        (Match(job="llm"), True),
        (Match(job="api"), False),
    ],
)
def test_all_globs_that_are_given_must_match(match: Match, meant: bool) -> None:
    """Host, device and workload are compared with shell globs; one that does not fit is enough to be left out."""
    assert meant is match.matches("node-a", GPU, TRAINING)


@pytest.mark.parametrize("match", [Match(device="*"), Match(name="*"), Match(pod="*"), Match(namespace="*"), Match(job="*")])
def test_what_is_not_known_matches_nothing(match: Match) -> None:
    """Even * wants a name: a host whose devices and processes are not known is not meant."""
    assert not match.matches("node-a", None, None)


@pytest.mark.parametrize("match", [Match(name="*"), Match(pod="*"), Match(namespace="*"), Match(job="*")])
def test_what_has_no_name_matches_nothing(match: Match) -> None:
    """A device without a name and a process outside of any pod or job are not meant by *."""
    assert not match.matches("node-a", Device("GPU-aaaa"), Process(1))


def test_a_device_known_by_little_is_matched_by_that() -> None:
    """A device without an index, a name or a bus address still has its uuid."""
    assert Match(device="INDEX-0").matches("node-a", Device("INDEX-0"))
    assert not Match(device="0").matches("node-a", Device("INDEX-0"))


def test_a_mig_instance_is_a_part_of_its_gpu() -> None:
    """An override for a GPU is for its MIG instances too, one for an instance is for that instance only."""
    assert Match(device="GPU-aaaa").matches("node-a", SLICE)
    assert not Match(device="MIG-cccc").matches("node-a", GPU)


def test_without_overrides_all_devices_have_one_rule() -> None:
    """The rule as it is set for all devices is the one that every device gets."""
    rule = configured(limit_celsius=80.0)

    assert TooHot(limit_celsius=80.0) == rule.default
    assert rule.for_("node-a", GPU) is rule.for_("node-b", OTHER) is rule.default


def test_overrides_add_up_and_the_last_one_wins() -> None:
    """Two overrides that set different parameters both apply; where they set the same one, the later counts."""
    rule = configured(
        (Match(host="node-*"), {"limit_celsius": 85.0, "hold": 10.0}),
        (Match(device="0"), {"margin_celsius": 2.0}),
        (Match(name="*L40S*"), {"limit_celsius": 88.0}),
        (Match(host="elsewhere"), {"limit_celsius": 1.0}),
        severity="critical",
    )

    assert TooHot(severity="critical", hold=10.0, limit_celsius=88.0, margin_celsius=2.0) == rule.for_("node-a", GPU)
    assert TooHot(severity="critical", hold=10.0, limit_celsius=88.0) == rule.for_("node-a", OTHER)
    assert TooHot(severity="critical", limit_celsius=88.0) == rule.for_("rack-1", OTHER)
    assert TooHot(severity="critical", hold=10.0, limit_celsius=85.0) == rule.for_("node-a", None)


@pytest.mark.parametrize(("default", "override"), [(True, False), (False, True)])
def test_an_override_switches_on_and_off(default: bool, override: bool) -> None:
    """A rule can be off for some devices only, and on for some only."""
    rule = configured((Match(device="1"), {"enabled": override}), enabled=default)

    assert override is rule.for_("node-a", OTHER).enabled
    assert default is rule.for_("node-a", GPU).enabled


def test_an_override_may_say_the_default_again() -> None:
    """A later override that sets a parameter back to its default is not taken for one that says nothing."""
    rule = configured((Match(host="node-*"), {"enabled": False}), (Match(host="node-a"), {"enabled": True}))

    assert [True, False] == [rule.for_(host, GPU).enabled for host in ("node-a", "node-b")]


def test_one_process_of_the_device_must_match_as_a_whole() -> None:
    """Pod and namespace of two different processes do not add up to a match."""
    rule = configured((Match(namespace="prod", pod="llm-*"), {"enabled": False}), (Match(namespace="prod"), {"hold": 5.0}))

    assert TooHot(hold=5.0) == rule.for_("node-a", GPU, (TRAINING, SERVING))
    assert TooHot() == rule.for_("node-a", GPU, (TRAINING,))
    assert TooHot() == rule.for_("node-a", GPU)


def test_devices_that_are_configured_alike_share_one_instance() -> None:
    """The engine asks each distinct instance once, so a thousand devices under three overrides are few questions."""
    rule = configured(
        (Match(host="node-1*"), {"limit_celsius": 85.0}),
        (Match(host="node-2*"), {"limit_celsius": 85.0}),
        (Match(host="node-*"), {"margin_celsius": 5.0}),
    )
    variants = {id(rule.for_(f"node-{n}", Device(f"GPU-{n}"))) for n in range(1000)}

    assert 2 == len(variants)
    assert rule.for_("node-3", GPU) is rule.default


def test_a_ruleset_has_every_rule_and_gives_each_only_its_own_overrides() -> None:
    """Rules that nothing is set of, that are off and that judge events are there as well."""
    off = (Match(host="node-a"), {"fell": {"enabled": False}})
    rules = RuleSet.build({"too_hot": TooHot, "fell": Fell}, {"too_hot": {"enabled": False}}, [off])

    assert ["too_hot", "fell"] == list(rules)
    assert TooHot(enabled=False) == rules["too_hot"].default
    assert () == rules["too_hot"].overrides
    assert Fell(enabled=False) == rules["fell"].for_("node-a", None)
    with pytest.raises(KeyError):
        rules["too_cold"]


hosts = st.sampled_from(["node-a", "node-b", "rack-1"])
changes = st.fixed_dictionaries({}, optional={"hold": st.floats(0, 9), "enabled": st.booleans(), "limit_celsius": st.floats(1, 99)})
overrides = st.lists(st.tuples(st.builds(Match, host=st.sampled_from(["node-*", "node-a", "*", "rack-1"])), changes), max_size=6)


@given(overrides, st.lists(hosts, max_size=6))
def test_every_device_gets_what_the_overrides_say_one_after_the_other(
    overrides: list[tuple[Match, dict[str, object]]], asked: list[str]
) -> None:
    """Whoever was asked for before, a device's rule is the default with each matching override laid over it in turn."""
    rule = configured(*overrides)
    for host in asked:
        expected: dict[str, object] = {}
        for match, changed in overrides:
            if match.matches(host, GPU):
                expected.update(changed)

        assert TooHot(**expected) == rule.for_(host, GPU)  # type: ignore[arg-type]


def test_the_engine_gets_its_rules_without_heavy_libraries() -> None:
    """What the engine imports of the configuration is the standard library and numpy."""
    code = "import sys, detector.ruleset; print(sorted({'pydantic', 'pandas', 'sqlalchemy'} & set(sys.modules)))"

    assert "[]\n" == subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
