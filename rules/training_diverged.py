"""A training job whose loss is no number any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.rule import Rule, Story, Verdict
from detector.window import Window


@dataclass(frozen=True)
class TrainingDiverged(Rule):
    """The job reported a loss that is NaN or infinite.

    One such report is told at once: the weights are lost, and every further step burns GPU time (peers look inside the process, as
    trainsight does). A plateau or a rising loss is the researcher's to judge. A job that reports no loss is not judged, and one that falls
    silent has not recovered; after an hour of silence it has ended, and the incident with it.
    """

    keep_firing: float = 60.0
    lookback: float = 60.0
    """How long one bad report counts: jobs report less often than they are asked."""
    ended_seconds: float = 3600.0
    """A job that has not reported for so long has ended."""

    entity: ClassVar = ("job",)
    needs: ClassVar = ("job_loss_finite",)
    uses: ClassVar = ("job_loss", "job_step_total")
    wastes: ClassVar = True

    def check(self, window: Window) -> Verdict:
        finite = window.min("job_loss_finite", self.lookback)
        ended = window.ever("job_loss_finite") & (window.count("job_loss_finite", self.ended_seconds) == 0)
        return Verdict(firing=finite == 0, value=finite, threshold=1.0, known=~np.isnan(finite) | ended)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        loss, step = (window.filled(metric, 3600.0)[1][-1, 0] for metric in self.uses)
        at = f" at step {step:,.0f}" if np.isfinite(step) else ""
        last = f"; the last finite one was {loss:.4g}" if np.isfinite(loss) else ""
        return Story(
            summary=f"loss of job {window.subjects[0].job} is not finite{at}{last}",
            action="Stop the job and restart it from a checkpoint before this step: lower learning rate, clipped gradients.",
            evidence=("job_loss", "job_step_total"),
        )
