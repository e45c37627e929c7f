"""From held-out scores to a sparse estimate."""

import logging
from collections.abc import Sequence

import numpy as np

from unsplit.data.labels import EncodedLabels
from unsplit.devices import current
from unsplit.errors import ConfusionWarning, warn
from unsplit.networks.training.history import History
from unsplit.pairwise.scores import HeldoutScores
from unsplit.pairwise.sparse.confusions import MOST_CONFUSIONS, count_confusions
from unsplit.pairwise.sparse.result import SparsePairwiseTVD

log = logging.getLogger("unsplit")


def sparse_estimate(
    scores: HeldoutScores,
    labels: EncodedLabels,
    history: History,
    temperature: float = 1.0,
    most: int = MOST_CONFUSIONS,
) -> SparsePairwiseTVD:
    """Count confusions, and say so if there were too many to keep.

    Parameters
    ----------
    scores : HeldoutScores
        Calibrated, and without batches.
    labels : EncodedLabels
    history : History
    temperature : float
        What the scores were divided by.
    most : int
        Largest number of confusions that are kept of one observation.
    """
    found = count_confusions(scores, most=most, ranks=current())
    result = SparsePairwiseTVD(
        cluster_ids=labels.cluster_ids,
        sizes=np.bincount(labels.clusters[labels.clusters >= 0]),
        n_heldout=scores.counts.sum(axis=0),
        misses=found.misses,
        capped=found.capped,
        scores=scores,
        history=history,
        n_noise=labels.n_noise,
        temperature=temperature,
    )
    log.info("sparse estimate: %s confused pairs are stored", f"{len(result.pairs):,}")
    if found.capped.any():
        _warn_of_cap(result, most)
    return result


def _warn_of_cap(result: SparsePairwiseTVD, most: int) -> None:
    share = result.capped / np.maximum(result.n_heldout, 1)
    largest: Sequence[float] = np.sort(share)[-2:].tolist()
    warn(
        f"{int(result.capped.sum()):,} of {int(result.n_heldout.sum()):,} held-out observations "
        f"score higher for more than {most} other clusters than for their own, and only {most} of "
        f"these are kept: a TVD may be too large, by up to {min(1.0, sum(largest)):.2g} for the "
        "worst pair (see tvd_error); train longer or with a larger network if that is much.",
        ConfusionWarning,
    )
