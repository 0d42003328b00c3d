"""Which variant of a rule judges which device: what the engine gets from the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from detector.frame import Device, Process
from detector.rule import AnyRule

Settings = Mapping[str, Any]
"""Parameter -> value, of one rule; values are valid."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which devices an override is about: shell globs, case-sensitive. All that are given must match; unknown matches nothing."""

    host: str | None = None
    device: str | None = None
    """The uuid (of a MIG instance also that of its GPU), the index, or the PCI bus id in any spelling: `0000:3b:00.0`."""
    name: str | None = None
    pod: str | None = None
    namespace: str | None = None
    job: str | None = None

    def matches(self, host: str, device: Device | None, process: Process | None = None) -> bool:
        """Whether *device* of *host* is meant, as far as *process* on it decides. None: there is none, or it is not known."""
        return (
            _fits(self.host, host)
            and _fits(self.device, *(_identities(device) if device else ()))
            and _fits(self.name, device.name if device else None)
            and _fits(self.pod, process.pod if process else None)
            and _fits(self.namespace, process.namespace if process else None)
            and _fits(self.job, process.job if process else None)
        )


def _fits(glob: str | None, *names: str | None) -> bool:
    return glob is None or any(fnmatchcase(name, glob) for name in names if name is not None)


def _identities(device: Device) -> Iterator[str | None]:
    yield from (device.uuid, device.parent, None if device.index is None else str(device.index))
    if device.pci_bus_id is not None:
        # NVML writes 00000000:3B:00.0; lspci, sysfs and the kernel log write 0000:3b:00.0.
        head, _, slot = device.pci_bus_id.rpartition(":")
        domain, _, bus = head.rpartition(":")
        for spelling in (device.pci_bus_id, f"{domain:0>8}:{bus}:{slot}", f"{domain[-4:]:0>4}:{bus}:{slot}"):
            yield from (spelling.lower(), spelling.upper())


@dataclass(frozen=True)
class Configured:
    """A rule as it is configured: for most devices, and for those that overrides are about."""

    name: str
    default: AnyRule
    overrides: tuple[tuple[Match, Settings], ...] = ()
    """In the order of the configuration: a later one goes over an earlier one, parameter by parameter."""
    _variants: dict[tuple[int, ...], AnyRule] = field(default_factory=dict, init=False, repr=False, compare=False)

    def for_(self, host: str, device: Device | None, processes: Sequence[Process] = ()) -> AnyRule:
        """The rule as it judges *device*. Devices that are configured alike get the same instance.

        An override that names a pod, namespace or job is about a device on which any one of *processes* matches.
        """
        candidates = (None, *processes)
        meant = tuple(n for n, (match, _) in enumerate(self.overrides) if any(match.matches(host, device, p) for p in candidates))
        if meant not in self._variants:
            settings: dict[str, Any] = {}
            for n in meant:
                settings |= self.overrides[n][1]
            variant = replace(self.default, **settings)
            self._variants[meant] = next((known for known in (self.default, *self._variants.values()) if known == variant), variant)
        return self._variants[meant]


class RuleSet(Mapping[str, Configured]):
    """Every rule by name, as it is configured. A rule that is switched off is among them: an override may switch it on."""

    def __init__(self, rules: Iterable[Configured]) -> None:
        self._rules = {rule.name: rule for rule in rules}

    @classmethod
    def build(
        cls,
        rule_types: Mapping[str, type[AnyRule]],
        settings: Mapping[str, Settings],
        overrides: Sequence[tuple[Match, Mapping[str, Settings]]] = (),
    ) -> RuleSet:
        """The rules of *rule_types* with their *settings*, and with *overrides* (match, then rule name -> settings). All are valid."""
        return cls(
            Configured(
                name,
                rule_type(**settings.get(name, {})),
                tuple((match, changed[name]) for match, changed in overrides if name in changed),
            )
            for name, rule_type in rule_types.items()
        )

    def __getitem__(self, name: str) -> Configured:
        return self._rules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)
