"""A spec as a scikit-learn estimator: `from weftc.sklearn import WeftClusterer`.

Any spec is a clusterer whose outputs assign an open set of vectors to a fixed one (`weftc.estimators.roles`). A fit
runs the compiled transformer until it settles; labels, shares and the objective are then read off by a second
transformer, of that part of the layer that the assignment follows from, so they always belong to the centers that are
reported.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from weftc.core.errors import WeftError
from weftc.core.source import Source
from weftc.core.syntax import Spec
from weftc.core.types import Checked
from weftc.estimators import defaults
from weftc.estimators.derived_specs import DerivedSpecs, forms_of, source_of
from weftc.estimators.fitting import Fitted, Judged, fit
from weftc.estimators.mistakes import EstimatorError, as_value_errors
from weftc.estimators.places import Place
from weftc.estimators.roles import Clustering
from weftc.estimators.starting import check_init, normalised

if TYPE_CHECKING:
    from weftc.compiling import SpecLike
    from weftc_runtime import Checkpoint

Floats = NDArray[Any]
FLOATS = (np.float64, np.float32)
__all__ = ["WeftClusterer"]


class _Weighable:
    """A method with `sample_weight` where the spec has a weighted form, and without it where it has none."""

    def __init__(self, method: Callable[..., Any], needed: Callable[[Any], bool] = bool) -> None:
        self.method, self.needed = method, needed

        def bare(self: Any, X: Any, y: Any = None) -> Any:
            return method(self, X, y)

        bare.__name__, bare.__qualname__, bare.__doc__ = method.__name__, method.__qualname__, method.__doc__
        self.bare = bare

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.method
        if not self.needed(instance):
            raise AttributeError(f"{owner.__name__} of this spec has no {self.method.__name__}: it states no objective")
        return MethodType(self.method if instance._takes_weights() else self.bare, instance)


class WeftClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters by the transformer of a spec.

    Parameters
    ----------
    spec : the name of a built-in spec, the path or the text of one's own, or what `parse` or `check` return.
    n_clusters : how many clusters; the size of the spec's fixed set.
    init : how the centers start. None: as the spec says; "spread" (or scikit-learn's name for it), "spectral",
        "random", "first"; an array (n_clusters, n_features); or a callable(X, n_clusters, random_state) that returns
        one.
    n_init : how many starts, of which the lowest objective wins; "auto" is 10 where starts are drawn blindly ("random"
        or a callable) and the spec states an objective, else 1.
    max_iter : most layers of a run.
    tol : a run ends when the centers together move by no more (squared) than this share of the mean variance of the
        features, and what else the clusters carry changes by no more than this share of its size; 0 waits until
        nothing changes at all.
    random_state : of starts, and of noise where the spec draws some.
    params : dict, the spec's parameters, further dimensions, and arrays for inputs of fixed sets. `set_params(tau=80)`
        and searches reach the spec's parameters by their names.
    dtype : "float32" or "float64"; None: that of the data.
    device : where to run, as torch names it.
    backend : "auto", "reference" or "planned".

    Attributes
    ----------
    labels_ : (n_samples,), the cluster of every row. They belong to the centers below.
    cluster_centers_ : (n_clusters, n_features).
    inertia_ : the spec's objective on the training data; absent where it states none.
    n_iter_ : layers of the run that was kept.
    outputs_ : dict, every output that the spec has for its clusters, by name.
    model_ : the checkpoint that ran; `model_.save(path)` writes it, `weftc.verify(model_)` proves it.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    Where all that the spec asks of the points together are sums and means, `fit` and `score` take a `sample_weight`:
    a weight of 2 is the row twice, in the start too. Where the spec declares points of length one, rows are divided by
    their length.

    >>> from weftc.sklearn import WeftClusterer
    >>> points = [[-3.0], [-2.0], [0.0], [2.0], [3.0]]
    >>> found = WeftClusterer(n_clusters=2, init=[[-1.0], [1.0]]).fit(points)
    >>> found.labels_.tolist(), found.cluster_centers_.tolist()
    ([0, 0, 0, 1, 1], [[-1.6666666666666667], [2.5]])
    """

    _parameter_constraints = {  # noqa: RUF012
        "spec": [str, Path, Source, Spec, Checked],
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "init": [None, str, "array-like", callable],
        "n_init": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "params": [None, dict],
        "dtype": [None, StrOptions({"float32", "float64"}), type],
        "device": [str],
        "backend": [str],
    }

    def __init__(
        self,
        spec: SpecLike = defaults.CLUSTERING,
        n_clusters: int = 8,
        *,
        init: Any = None,
        n_init: int | Literal["auto"] = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = None,
        params: dict[str, Any] | None = None,
        dtype: Any = None,
        device: str = "cpu",
        backend: str = "auto",
    ) -> None:
        self.spec = spec
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.params = params
        self.dtype = dtype
        self.device = device
        self.backend = backend

    # ------------------------------------------------------------------ the spec's parameters beside our own
    def _spec_params(self) -> tuple[str, ...]:
        """Parameters of the spec that can be set by their names; where it is no spec at all, `fit` says so."""
        try:
            named = forms_of(source_of(self.spec)).plain.checked.params
        except (WeftError, OSError, TypeError):
            return ()
        return tuple(name for name in named if name not in self._get_param_names())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """As everywhere; with `deep`, the parameters of the spec too. None is what the spec says."""
        own: dict[str, Any] = super().get_params(deep=deep)
        set_ = self.params if isinstance(self.params, dict) else {}  # `fit` refuses anything else
        return {**own, **{name: set_.get(name) for name in self._spec_params()}} if deep else own

    def set_params(self, **params: Any) -> Self:
        """As everywhere; parameters of the spec can be set by their names, as in `set_params(tau=80)`."""
        super().set_params(**{name: value for name, value in params.items() if name in self._get_param_names()})
        named = {name: value for name, value in params.items() if name not in self._get_param_names()}
        unknown = [name for name in named if name not in self._spec_params()]
        if unknown:
            super().set_params(**{unknown[0]: named[unknown[0]]})  # which raises, in scikit-learn's words
        if named:
            merged = {**(self.params or {}), **named}
            self.params = {name: value for name, value in merged.items() if value is not None} or None
        return self

    # ------------------------------------------------------------------ what scikit-learn asks
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _takes_weights(self) -> bool:
        """Whether the spec has a weighted form; where it is no spec at all, `fit` says so."""
        try:
            return forms_of(source_of(self.spec)).weighted is not None
        except (WeftError, OSError, TypeError):
            return True

    def _forms(self) -> DerivedSpecs:
        """Of the spec that was fitted, or else of the one that would be."""
        fitted: Fitted | None = getattr(self, "_fitted", None)
        return fitted.forms if fitted is not None else forms_of(source_of(self.spec))

    def _has_objective(self) -> bool:
        return self._forms().plain.checked.spec.objective is not None

    def _has_shares(self) -> bool:
        return self._forms().plain.soft

    # ------------------------------------------------------------------ fitting
    @_Weighable
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Runs the spec on the rows of X until it settles; `y` is ignored."""
        with as_value_errors():
            source = source_of(self.spec)
            roles = forms_of(source).chosen(sample_weight is not None)
            check_init(self.init)
            points = self._points(X, roles, reset=True)
            if len(points) < self.n_clusters:
                raise EstimatorError(f"n_samples={len(points)} should be >= n_clusters={self.n_clusters}.")
            mass = _mass(sample_weight, points)
            self._fitted, judged = fit(
                source,
                points,
                mass,
                clusters=self.n_clusters,
                init=self.init,
                n_init=self.n_init,
                limit=self.max_iter,
                tol=self.tol,
                random_state=check_random_state(self.random_state),
                given=self.params or {},
                place=Place(self.device, self.backend),
            )
            self._show(judged)
        if not self._fitted.end.at_rest:
            told = f"{source.name} did not settle in max_iter={self.max_iter} layers; raise max_iter or tol"
            warnings.warn(told, ConvergenceWarning, stacklevel=2)
        return self

    def _show(self, judged: Judged) -> None:
        """Sets the public attributes."""
        fitted = self._fitted
        self.model_: Checkpoint = fitted.checkpoint
        self.cluster_centers_ = fitted.centers
        self.outputs_ = fitted.outputs()
        self.n_iter_ = fitted.end.layers
        self.labels_ = judged.labels
        if judged.objective is not None:
            self.inertia_ = judged.objective
        elif hasattr(self, "inertia_"):
            del self.inertia_  # of an earlier fit, of another spec

    def _points(self, X: Any, roles: Clustering, reset: bool) -> Floats:
        """The data as an array; of length one, where the spec says so."""
        wanted = FLOATS if self.dtype is None or not reset else (np.dtype(self.dtype),)
        points: Floats = validate_data(self, X, dtype=list(wanted), order="C", reset=reset)
        return normalised(points, "X") if roles.points.kind == "unit" else points

    # ------------------------------------------------------------------ what a fit says about points
    def predict(self, X: Any) -> NDArray[np.int32]:
        """The cluster of every row."""
        check_is_fitted(self)
        with as_value_errors():
            return self._fitted.labels(self._points(X, self._forms().plain, reset=False))

    @available_if(_has_shares)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """The shares (n_samples, n_clusters) of every row; where the spec gives shares."""
        check_is_fitted(self)
        with as_value_errors():
            return self._fitted.shares(self._points(X, self._forms().plain, reset=False))

    def transform(self, X: Any) -> Floats:
        """The distance (n_samples, n_clusters) of every row to every center."""
        check_is_fitted(self)
        points = self._points(X, self._forms().plain, reset=False)
        return np.asarray(euclidean_distances(points, self.cluster_centers_.astype(points.dtype, copy=False)))

    @partial(_Weighable, needed=_has_objective)
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the objective on the rows of X; the larger the better. `y` is ignored."""
        check_is_fitted(self)
        with as_value_errors():
            points = self._points(X, self._forms().plain, reset=False)
            return -self._fitted.objective(points, _mass(sample_weight, points))


def _mass(sample_weight: Any, points: Floats) -> Floats | None:
    """How often every row counts; None: once."""
    if sample_weight is None:
        return None
    mass: Floats = _check_sample_weight(sample_weight, points, dtype=np.float64, ensure_non_negative=True)
    if not mass.any():
        raise EstimatorError("sample_weight is zero for every row; at least one must count")
    return mass
