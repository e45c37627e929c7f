"""Points to cluster, from plain to hard on arithmetic."""


def gaussian(rng, n, d):
    return rng.standard_normal((n, d))


def blobs(rng, n, d):
    centre = 4 * rng.standard_normal((5, d))[rng.integers(0, 5, n)]
    return centre + rng.uniform(0.2, 1.5, (n, 1)) * rng.standard_normal((n, d))


def far_off_centre(rng, n, d):
    return 1e8 + rng.standard_normal((n, d))


def tight_and_far_apart(rng, n, d):
    """Distances in a cluster are below what float32 products can see: 1e-6 of the spread."""
    return rng.standard_normal((4, d))[rng.integers(0, 4, n)] + 1e-6 * rng.standard_normal((n, d))


def one_outlier(rng, n, d):
    R = rng.standard_normal((n, d))
    R[n // 2] = 1e9
    return R


def huge(rng, n, d):
    return 1e120 * rng.standard_normal((n, d))


def minute(rng, n, d):
    return 1e-120 * rng.standard_normal((n, d))


def many_ties(rng, n, d):
    return rng.integers(0, 3, (n, d))


DATA = [
    gaussian, blobs, far_off_centre, tight_and_far_apart, one_outlier, huge, minute, many_ties,
]  # fmt: skip
