"""Classifiers of scikit-learn in the place of a network: their scores are log densities."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor, nn

from unsplit._typing import Index, Matrix
from unsplit.data.rows.base import Rows
from unsplit.devices import seeded
from unsplit.errors import InputError
from unsplit.networks.network import DrawFromRun, Network, ScoreHead, balanced, integers
from unsplit.networks.training.group import Fold, Group, OnStep


class Classifier(nn.Module):
    """Turns vectors (n, d) into log densities (n, k), up to a constant for each row.

    Clusters count equally: a classifier that takes weights is given them, and from the log
    probabilities of others the log prior is subtracted.

    Parameters
    ----------
    model : scikit-learn classifier or pipeline
        A copy is fitted.  Where it has a ``random_state`` of None, a seed is drawn.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from unsplit.devices import private_randomness
    >>> with private_randomness(0):
    ...     classifier = Classifier(GaussianNB())
    >>> x = torch.tensor([[0.0], [0.2], [0.1], [9.0], [9.2]])
    >>> classifier.fit(x, np.array([0, 0, 0, 1, 1]))
    >>> classifier(x).argmax(dim=1)
    tensor([0, 0, 0, 1, 1])
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        seed = int(integers(0, 2**31 - 1, 1, torch.device("cpu")))
        self.model = seeded(clone(model), seed)
        self.n_clusters = 2  # until it is put into a network
        self.log_prior: Matrix | None = None  # of each cluster, once it is fitted
        self.least = 0.0

    def fit(self, x: Tensor, clusters: Index) -> None:
        """Fit the classifier to observations (n, d) of all clusters, as every fold has them."""
        shares = np.bincount(clusters) / len(clusters)
        # A classifier that saw none of a cluster among these rows knows no smaller probability.
        self.least = 0.1 / len(clusters)
        step = f"{self.model.steps[-1][0]}__" if isinstance(self.model, Pipeline) else ""
        last = self.model[-1] if step else self.model
        given: dict[str, Any] = {}
        if "class_weight" in last.get_params():
            self.model.set_params(**{f"{step}class_weight": "balanced"})
        elif has_fit_parameter(last, "sample_weight"):
            given[f"{step}sample_weight"] = (1 / (len(shares) * shares))[clusters]
        with _errors_of(self.model, "fitted to", x), warnings.catch_warnings():
            # Shrinkage of the covariance of a cluster of one, which is that of no variation.
            warnings.filterwarnings("ignore", "Only one sample available")
            self.model.fit(x.cpu().double().numpy(), clusters, **given)
        balanced = given or f"{step}class_weight" in self.model.get_params()
        priors = np.ones(1) if balanced else getattr(last, "priors_", shares)
        self.log_prior = np.log(priors)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the scores of x; before the fit all clusters tie."""
        if self.log_prior is None:
            return x.new_zeros(len(x), self.n_clusters)
        with _errors_of(self.model, "applied to", x):
            found = self._log_posterior(x.cpu().double().numpy())
        return torch.from_numpy(found - self.log_prior).to(x)

    def _log_posterior(self, x: Matrix) -> Matrix:
        """Compute the log posteriors of the clusters, shape (n, k)."""
        if hasattr(self.model, "predict_proba"):
            found = np.log(np.maximum(self.model.predict_proba(x), self.least))
        else:
            found = np.asarray(self.model.decision_function(x))
            if found.ndim == 1:
                found = np.stack([-found / 2, found / 2], axis=1)
        if found.shape != (len(x), self.n_clusters):
            raise ValueError(f"it gave scores of shape {found.shape} to {len(x)} observations")
        return found

    def extra_repr(self) -> str:
        """The classifier and its parameters."""
        return " ".join(repr(self.model).split())


@contextmanager
def _errors_of(model: Any, done: str, x: Tensor) -> Iterator[None]:
    """Turn errors of a classifier into one sentence."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(
            f"backbone {type(model).__name__} could not be {done} {len(x)} standardised "
            f"observations of {x.shape[1]} features ({reason}); change its parameters or use "
            "another."
        ) from error


class ClassifierNetwork(Network):
    """A classifier behind the scale of its features; its scores are handed on as they are."""

    def __init__(
        self, before: nn.Module, classifier: Classifier, n_clusters: int, most_at_once: int
    ) -> None:
        super().__init__(nn.Sequential(before, classifier), handed_on(n_clusters), most_at_once)
        self.before, self.classifier = before, classifier
        classifier.n_clusters = n_clusters


def handed_on(n_clusters: int, factor: float = 1.0) -> ScoreHead:
    """A head whose scores are its features, times a factor."""
    with DrawFromRun(), torch.no_grad():
        head = ScoreHead(n_clusters, n_clusters, "softmax")
        head.weight.copy_(factor * torch.eye(n_clusters))
    return head


class Fitting(Group):
    """A classifier in the training loop: it is fitted in its only epoch."""

    def __init__(self, networks: Sequence[ClassifierNetwork], folds: Sequence[Fold]) -> None:
        super().__init__(networks, folds, learning_rate=0.0, weight_decay=0.0)
        self.before, self.classifier = networks[0].before, networks[0].classifier
        self.means = self.present

    def run(
        self, batches: Tensor, rows: Rows, clusters: Tensor, on_step: OnStep | None = None
    ) -> float:
        """Fit the classifier to all training rows, whatever the batches; its loss."""
        self.steps_taken += len(batches)
        self.present[0].eval()
        places = torch.from_numpy(self.folds[0].train).to(rows.device)
        own, x = clusters[places], rows.take(places)
        self.classifier.fit(self.before(x), own.cpu().numpy())
        if on_step is not None:
            on_step(len(batches))
        sizes = torch.bincount(own, minlength=self.head.n_clusters)
        with torch.no_grad():
            losses = self.head.loss_function(self.present[0](x), own)
            return float(balanced(losses, own, sizes))
