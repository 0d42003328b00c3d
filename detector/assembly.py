"""Puts an engine together as the configuration asks for it: the same one for the service, a replay and a notebook."""

from __future__ import annotations

from concurrent.futures import Executor
from os import PathLike
from pathlib import Path

from detector.config import Config, load
from detector.discover import model_class
from detector.engine import Engine
from detector.ruleset import RuleSet


def build_engine(config: Config | str | PathLike[str] | None = None, *, executor: Executor | None = None) -> Engine:
    """An engine with the rules and the model that *config* (or the file of that path) asks for.

    The model trains in *executor*; None: on the spot, which a replay can wait for.
    """
    if not isinstance(config, Config):
        config = load(None if config is None else Path(config))
    model = model_class("isolation_forest")(executor=executor) if config.model.enabled else None
    rules = config.ruleset()
    if config.model.enabled is not True:
        # In the shadow it scores and learns, and nobody is told.
        rules = RuleSet(configured for name, configured in rules.items() if name != "anomaly")
    return Engine(rules, model=model, tick=config.engine.tick, cool_down=config.engine.cool_down)
