"""scikit-learn: MLPClassifier with the same sizes, batches, rate and epochs, its early stop and its penalty off."""

import warnings

from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from workers import cases
from workers.cases import LR


def fit_one(x, y, seed):
    model = MLPClassifier(
        (32,),
        alpha=0.0,
        batch_size=32,
        learning_rate_init=LR,
        max_iter=200,
        tol=0.0,
        n_iter_no_change=10_000,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y).predict


MAKERS = {cases.DIGITS: lambda case: cases.digits(load_digits(return_X_y=True), fit_one)}
