"""A Gaussian process over hyperparameters and time, which forgets: what was seen long ago says less.

    k((x, t), (y, s)) = exp(-|x - y|^2 / (2 l^2)) (1 - e)^(|t - s| / 2)

after Bogunovic, Scarlett and Cevher (2016, "Time-varying Gaussian process bandit optimization"), with
independent noise. Length l, forgetting e and noise are those of the largest marginal likelihood on a
grid; what was seen is standardised first, so the prior's mean is 0 and its deviation 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

LENGTHS = (0.1, 0.2, 0.4, 0.8)  # in parts of the unit box
FORGETTING = (0.0, 0.05, 0.2, 0.5)
NOISES = (0.01, 0.1, 0.5)  # variances, in parts of that of what was seen
JITTER = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """The model as it stands; `at` asks it."""

    x: np.ndarray  # [K, D] float64 in the unit box
    t: np.ndarray  # [K] float64
    y: np.ndarray  # [K] float64, standardised
    length: float
    forgetting: float
    noise: float
    shift: float = 0.0  # what was taken off of y, ...
    scale: float = 1.0  # ... and what it was then divided by

    @classmethod
    def fitted(cls, x: np.ndarray, t: np.ndarray, y: np.ndarray) -> Surrogate:
        """To what was seen: places [K, D] in the unit box, times [K] and values [K], all finite."""
        shift, scale = float(y.mean()), float(y.std()) or 1.0
        models = [
            cls(
                x=x,
                t=t,
                y=(y - shift) / scale,
                length=length,
                forgetting=forgetting,
                noise=noise,
                shift=shift,
                scale=scale,
            )
            for length in LENGTHS
            for forgetting in FORGETTING
            for noise in NOISES
        ]
        return max(models, key=lambda model: model.log_likelihood())

    def log_likelihood(self) -> float:
        """Of what was seen, but for a constant."""
        factor = self._factor()
        half = solve_triangular(factor, self.y, lower=True)
        return float(-0.5 * half @ half - np.log(np.diag(factor)).sum())

    def at(self, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation [N] of the value, without noise, at places [N, D] and times [N]."""
        factor = self._factor()
        cross = self._kernel(x, t)  # [N, K]
        mean = cross @ cho_solve((factor, True), self.y)
        half = solve_triangular(factor, cross.T, lower=True)
        variance = np.maximum(1.0 - (half**2).sum(axis=0), 0.0)
        return self.shift + self.scale * mean, self.scale * np.sqrt(variance)

    def imagining(self, x: np.ndarray, t: np.ndarray) -> Surrogate:
        """As if these [M, D], [M] had been seen too, at their means: there is less left to learn there."""
        mean, _ = self.at(x, t)
        return replace(
            self,
            x=np.vstack([self.x, x]),
            t=np.append(self.t, t),
            y=np.append(self.y, (mean - self.shift) / self.scale),
        )

    def _kernel(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        """[N, K] between these and what was seen."""
        squares = ((x[:, None, :] - self.x[None, :, :]) ** 2).sum(axis=2)
        apart = np.abs(t[:, None] - self.t[None, :])
        kernel: np.ndarray = np.exp(-squares / (2 * self.length**2)) * (1 - self.forgetting) ** (apart / 2)
        return kernel

    def _factor(self) -> np.ndarray:
        covariance = self._kernel(self.x, self.t) + (self.noise + JITTER) * np.eye(len(self.y))
        factor: np.ndarray = cholesky(covariance, lower=True)
        return factor
