# SPDX-License-Identifier: MIT OR Apache-2.0
"""Mean and 95 % confidence interval by Student's t distribution."""

import math
from functools import lru_cache
from typing import NamedTuple, Sequence

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean and half the width of its 95 % confidence interval (infinite for one value)."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def _t_density(x: float, df: float) -> float:
    log_c = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    return math.exp(log_c - (df + 1) / 2 * math.log1p(x * x / df))


def t_probability(x: float, df: float) -> float:
    """P(|T| <= x). Substituting x = sqrt(df) tan(a) makes the integrand smooth and its range
    finite; Simpson's rule."""
    end = math.atan(x / math.sqrt(df))
    steps = 400
    h = end / steps

    def f(a: float) -> float:
        tan = math.tan(a)
        return _t_density(math.sqrt(df) * tan, df) * math.sqrt(df) * (1 + tan * tan)

    total = f(0.0) + f(end)
    for i in range(1, steps):
        total += f(i * h) * (4 if i % 2 else 2)
    return 2 * total * h / 3


@lru_cache(maxsize=None)
def t_quantile(df: float, confidence: float = CONFIDENCE) -> float:
    """The x with P(|T| <= x) = confidence, by bisection."""
    if df <= 0:
        raise ValueError(f"degrees of freedom must be positive, not {df}")
    low, high = 0.0, 1.0
    while t_probability(high, df) < confidence:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, df) < confidence else (low, middle)
    return (low + high) / 2


def variance(values: Sequence[float]) -> float:
    """Of a sample, so divided by n - 1."""
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values) / (len(values) - 1)


def mean_ci(values: Sequence[float]) -> Estimate:
    """Of values that are independent, or at least batch means."""
    if not values:
        raise ValueError("no values")
    mean = sum(values) / len(values)
    if len(values) == 1:
        return Estimate(mean, math.inf)
    return Estimate(mean, t_quantile(len(values) - 1) * math.sqrt(variance(values) / len(values)))


def ratio_ci(over: Sequence[float], under: Sequence[float]) -> Estimate:
    """mean(over) / mean(under) of two independent samples: delta method, Welch's degrees of
    freedom."""
    if len(over) < 2 or len(under) < 2:
        raise ValueError("two values of each are needed")
    a, b = sum(over) / len(over), sum(under) / len(under)
    if a <= 0 or b <= 0:
        raise ValueError("means must be positive")
    va = variance(over) / len(over) / a**2
    vb = variance(under) / len(under) / b**2
    ratio = a / b
    if va + vb == 0:
        return Estimate(ratio, 0.0)
    df = (va + vb) ** 2 / (va**2 / (len(over) - 1) + vb**2 / (len(under) - 1))
    return Estimate(ratio, t_quantile(round(df, 1)) * ratio * math.sqrt(va + vb))


def share_ci(parts: Sequence[float], wholes: Sequence[float]) -> Estimate:
    """sum(parts) / sum(wholes), with the interval of the ratio estimator (linearised): batches
    count by their size, so a batch in which the machine stood still says little."""
    whole = sum(wholes)
    if whole <= 0:
        raise ValueError("nothing to have a share of")
    share = sum(parts) / whole
    n = len(parts)
    if n < 2:
        return Estimate(share, math.inf)
    residuals = [p - share * w for p, w in zip(parts, wholes)]
    error = math.sqrt(sum(r * r for r in residuals) / (n - 1) / n) / (whole / n)
    return Estimate(share, t_quantile(n - 1) * error)
