"""The command line: `gpuwarden replay | serve | demo | rules`.

Exit status: 0 all is well; 1 an incident at or above --fail-on fired; 2 nothing could be read, or the configuration or call is wrong;
3 readable in part; 70 an internal error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detector.errors import DetectorError
from detector.incident import SEVERITIES, Incident

if TYPE_CHECKING:
    from detector.config import Config

OK: Final = 0
FIRED: Final = 1
REFUSED: Final = 2
PARTIAL: Final = 3
INTERNAL: Final = 70
INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except DetectorError as error:
        print(f"gpuwarden: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has gone; what is still buffered would only raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception:
        import traceback

        traceback.print_exc()
        print("gpuwarden: internal error, please report it with the lines above", file=sys.stderr)
        return INTERNAL


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuwarden", description="Watches NVIDIA GPUs and says what is wrong, where, whose, since when and why."
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=words, description=words)
        sub.set_defaults(run=run)
        sub.add_argument("--config", metavar="FILE", type=Path, help="configuration (TOML)")
        return sub

    replay = command("replay", _replay, "Read recordings with the service's own engine and list the incidents in them.")
    replay.add_argument("paths", metavar="PATH", nargs="+", help="recordings; several are merged by time")
    replay.add_argument("--format", default="auto", help="auto (default), trace, nvidia-smi-csv ...")
    replay.add_argument("--host", help="the host of recordings that name none")
    replay.add_argument("--timezone", metavar="ZONE", help="of times without a zone (default: this machine's)")
    replay.add_argument("--interval", metavar="SECONDS", type=_seconds, help="between the samples of a recording without times")
    replay.add_argument(
        "--columns", metavar="A,B,...", type=lambda text: tuple(c.strip() for c in text.split(",")), help="of a table without a header"
    )
    replay.add_argument("--pending", action="store_true", help="also what has not held long enough to fire")
    replay.add_argument("--json", action="store_true", help="one incident a line, in its final state")
    replay.add_argument("--fail-on", metavar="SEVERITY", choices=SEVERITIES, help="exit with 1 if such an incident (or a worse one) fired")

    rules = command("rules", _rules, "List every rule, its parameters as configured, and what it needs.")
    rules.add_argument("--json", action="store_true")

    serve = command("serve", _serve, "Run the service: watch, keep incidents, answer over REST.")
    serve.add_argument("--source", metavar="TYPE", help="nvml, simulator, recording ... (default: as configured)")
    serve.add_argument("--replay", metavar="PATH", nargs="+", help="play recordings: source recording with these paths")
    serve.add_argument("--speed", type=_positive, help="recorded or simulated seconds a second; `inf`: as fast as it goes")
    _listening(serve)

    demo = command("demo", _demo, "Run the service on simulated GPUs with faults, in fast motion, and print incidents as they open.")
    demo.add_argument("--gpus", type=int, help="number of simulated GPUs (8)")
    demo.add_argument("--seed", type=int, help="another seed, other GPUs (0)")
    demo.add_argument("--speed", type=_positive, default=60.0, help="simulated seconds a second (60)")
    demo.add_argument("--seconds", type=_positive, help="stop after so many seconds")
    _listening(demo)
    return parser


def _listening(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (9500); 0: any free one")
    parser.add_argument("--data", metavar="DIR", type=Path, help="folder for all that is kept")
    parser.add_argument("--insecure", action="store_true", help="listen on an address that others can reach, without a password")


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import detector

        print(f"gpuwarden {detector.__version__}")
        parser.exit()


def _seconds(text: str) -> float:
    from detector.durations import seconds

    try:
        value = seconds(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be above 0")
    return value


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number") from None
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be above 0")
    return value


def _configuration(path: Path | None) -> Config:
    """The configuration; a rule of the user's own that cannot be loaded is said and left out."""
    from detector.config import load

    return load(path, report=lambda problem: print(f"gpuwarden: left out: {problem}", file=sys.stderr))


# -- commands -----------------------------------------------------------------------------------------------------------------
def _replay(arguments: argparse.Namespace) -> int:
    from detector.assembly import build_engine
    from detector.console import incident_table, output, progress
    from detector.offline import run
    from detector.schema import incident_json
    from detector.sources.recording import Problems, ReadOptions, read_recording

    config = _configuration(arguments.config)
    zone = arguments.timezone or (config.service.timezone.key if config.service.timezone else None)
    options = ReadOptions(arguments.format, arguments.host, zone, arguments.interval, arguments.columns)
    problems = Problems()
    frames = 0

    def count(frame: object) -> None:
        nonlocal frames
        frames += 1

    try:
        with progress("reading") as tell:
            recording = read_recording(*arguments.paths, options=options, problems=problems, progress=tell)
            incidents = run(build_engine(config), recording, pending=arguments.pending, watch=count)
    finally:
        for line in problems.lines():
            print(f"gpuwarden: {line}", file=sys.stderr)
    if arguments.json:
        for incident in incidents:
            print(incident_json(incident))
    elif incidents:
        output().print(incident_table(incidents))
    else:
        print(f"No incident in {frames:,} frame{'s' if frames != 1 else ''}.")
    return _verdict(incidents, arguments.fail_on, partial=len(problems) > 0)


def _verdict(incidents: Sequence[Incident], fail_on: str | None, *, partial: bool) -> int:
    if fail_on is not None:
        least = SEVERITIES.index(fail_on)
        if any(i.fired_at is not None and SEVERITIES.index(i.severity) >= least for i in incidents):
            return FIRED
    return PARTIAL if partial else OK


def _rules(arguments: argparse.Namespace) -> int:
    from detector.schema import RuleOut

    rules = _configuration(arguments.config).ruleset()
    if arguments.json:
        for configured in rules.values():
            print(RuleOut.of(configured.default).model_dump_json())
        return OK
    from detector.console import output, rule_table

    output().print(rule_table(rules))
    return OK


def _serve(arguments: argparse.Namespace) -> int:
    from detector.service import configured, serve

    source = {"type": "recording", "paths": tuple(map(Path, arguments.replay))} if arguments.replay else {"type": arguments.source}
    config = configured(_configuration(arguments.config), source={**source, "speed": arguments.speed},
                        service={"host": arguments.host, "port": arguments.port, "data": arguments.data})  # fmt: skip
    return serve(config, insecure=arguments.insecure)


def _demo(arguments: argparse.Namespace) -> int:
    import tempfile

    from detector.service import configured, serve

    with tempfile.TemporaryDirectory(prefix="gpuwarden-demo-") as scratch:
        config = configured(
            _configuration(arguments.config),
            source={"type": "simulator", "gpus": arguments.gpus, "seed": arguments.seed, "speed": arguments.speed, "faults": "all"},
            service={"host": arguments.host, "port": arguments.port, "data": arguments.data or Path(scratch)},
        )
        return serve(config, insecure=arguments.insecure, announce=True, seconds=arguments.seconds)


if __name__ == "__main__":
    sys.exit(main())
