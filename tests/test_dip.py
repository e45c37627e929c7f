import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from benchmarks.dip_table import LEVELS, dips
from unsplit.errors import InputError
from unsplit.merging.dip import _null_table, dip_p_value, dip_statistic, dip_test

quick = settings(deadline=None, max_examples=60, derandomize=True)
whole_numbers = st.lists(st.integers(-40, 40), min_size=2, max_size=30)


# The slow twin: a linear program for every place of the mode.


def slow_dip(values):
    """Least distance to a distribution function that is convex, then concave, by definition.

    The mode need only be tried at the observations: between two of them the empirical
    distribution is flat, and the mode can be moved to one of the two.
    """
    points, counts = np.unique(values, return_counts=True)
    above = np.cumsum(counts) / len(values)
    below = above - counts / len(values)
    best = min(distance_with_mode(points, below, above, k) for k in range(len(points)))
    return max(best, 1 / (2 * len(values)))


def distance_with_mode(points, below, above, mode):
    """The unknowns: heights up to and left of the mode, heights from the mode on, distance."""
    m, rows, limits = len(points), [], []

    def at_most(limit, *terms):
        row = np.zeros(m + 2)
        for column, factor in terms:
            row[column] += factor
        rows.append(row)
        limits.append(limit)

    def close_to(column, height):
        at_most(height, (column, 1), (m + 1, -1))
        at_most(-height, (column, -1), (m + 1, -1))

    left, right = list(range(mode + 1)), list(range(mode + 1, m + 1))
    for column, i in zip(left + right, [*range(mode + 1), *range(mode, m)], strict=True):
        # Continuous but for the mode, where the two heights may differ by an atom.
        if column != mode + 1:
            close_to(column, below[i])
        if column != mode:
            close_to(column, above[i])
    for lower, higher in zip((left + right)[:-1], (left + right)[1:], strict=True):
        at_most(0, (lower, 1), (higher, -1))
    for columns, x, sign in ((left, points[: mode + 1], 1), (right, points[mode:], -1)):
        for j in range(len(columns) - 2):
            first, second = sign * (x[j + 1] - x[j]), sign * (x[j + 2] - x[j + 1])
            a, b, c = columns[j : j + 3]
            at_most(0, (b, second), (a, -second), (c, -first), (b, first))
    cost = np.zeros(m + 2)
    cost[-1] = 1
    found = linprog(cost, A_ub=np.array(rows), b_ub=limits, bounds=(None, None))
    assert found.status == 0
    return found.fun


SAMPLERS = {
    "uniform": lambda rng, n: rng.random(n),
    "two modes": lambda rng, n: rng.standard_normal(n) + 5 * rng.integers(0, 2, n),
    "long tails": lambda rng, n: rng.standard_cauchy(n),
    "many ties": lambda rng, n: rng.integers(0, 6, n),
    "ties, uneven": lambda rng, n: rng.integers(0, 9, n) ** 3,
    "one large atom": lambda rng, n: rng.integers(0, 15, n) * rng.integers(0, 2, n),
}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_dip_is_the_distance_that_linear_programming_finds(sampler):
    rng = np.random.default_rng(0)
    for n in [4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25]:
        values = SAMPLERS[sampler](rng, n)
        assert dip_statistic(values) == pytest.approx(slow_dip(values), abs=1e-9)


def test_slow_twin_by_hand():
    assert slow_dip([0, 0, 1, 1]) == pytest.approx(1 / 4)
    assert slow_dip([0, 1, 2, 3, 4]) == pytest.approx(1 / 10)
    # Without its mode's atom, 3 of 4 at one place, the rest is a single step of 1/4.
    assert slow_dip([0, 0, 0, 1]) == pytest.approx(1 / 8)


# Published dips.


# Faculty quality in 63 statistics departments: data and dip of Hartigan and Hartigan (1985), as
# listed in data/statfaculty.R of the R package diptest.
FACULTY = np.repeat(
    [30, 33, *range(35, 38), *range(39, 55), 57, *range(59, 64), 66, 70, 72],
    [1, 1, 1, 1, 2, 5, 4, 1, 1, 3, 2, 2, 2, 2, 3, 1, 2, 1, 2, 5, 2, 2, 1, 3, 4, 4, 1, 1, 1, 2],
)


@pytest.mark.parametrize(
    ("values", "twice_n_dip"),
    [
        # Printed by R's diptest 0.77 in tests/ex1.Rout.save-64b as "2n*D" or as the dip.
        ([1, 1, 2, 2], 2.0),
        ([0, 1, 3, 6], 1.0),
        ([0, 2, 3, 5, 6], 4 / 3),
        ([6, 4, 3, 1, 0], 4 / 3),
        ([1] + 9 * [2], 1.0),
        (FACULTY, 7.5),
    ],
)
def test_dips_that_r_prints(values, twice_n_dip):
    assert dip_statistic(values) == pytest.approx(twice_n_dip / (2 * len(values)), abs=1e-12)


def test_the_example_of_the_paper():
    assert len(FACULTY) == 63
    found = dip_test(FACULTY)
    assert found.statistic == pytest.approx(0.05952381, abs=5e-9)
    # The paper: "0.059 which has a tail probability about 10%" (quoted on r-help, 22 Oct 2004).
    assert found.p_value == pytest.approx(0.1, abs=0.02)
    # qDiptab at n = 50 and 100, interpolated as the manual of R's dip.test says, gives 0.0867.
    assert found.p_value == pytest.approx(0.0867, abs=0.003)


# What holds for every sample.


@quick
@given(whole_numbers, st.integers(-1000, 1000), st.integers(1, 50))
def test_shift_scale_and_reversal_change_nothing(values, shift, scale):
    x = np.array(values)
    dip = dip_statistic(x)
    for other in (x + shift, x * scale, x / scale, -x, x[::-1]):
        assert dip_statistic(other) == pytest.approx(dip, abs=1e-12)


@quick
@given(whole_numbers)
def test_bounds_and_repeated_values(values):
    dip = dip_statistic(values)
    assert 1 / (2 * len(values)) <= dip <= 0.25
    # Every value twice is the same distribution.
    if len(set(values)) > 1:
        assert dip_statistic(2 * values) == pytest.approx(dip, abs=1e-12)


@quick
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=12))
def test_any_finite_numbers_will_do(values):
    dip = dip_statistic(values)
    assert 1 / (2 * len(values)) <= dip <= 0.25 + 1e-12
    assert dip_statistic([-v for v in values]) == pytest.approx(dip, abs=1e-9)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 9), (30, 70), (50, 50), (500, 499)])
def test_two_masses(a, b):
    assert dip_statistic([0.0] * a + [7.5] * b) == pytest.approx(min(a, b) / (2 * (a + b)))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1001])
def test_least_dip(n):
    assert dip_statistic(np.arange(n)) == pytest.approx(1 / (2 * n), abs=1e-12)
    assert dip_statistic(np.full(n, 3.25)) == 1 / (2 * n)
    assert dip_test(np.full(n, 3.25)).p_value == 1.0


def test_fewer_than_four_have_no_dip():
    rng = np.random.default_rng(0)
    for values in rng.random((20, 3)):
        assert dip_test(values) == (pytest.approx(1 / 6), 1.0)
    assert dip_test([5.0]) == (0.5, 1.0)
    assert dip_test([1, 2]) == (0.25, 1.0)


def test_large_samples_of_one_mode():
    values = np.random.default_rng(0).standard_normal(100_000)
    assert dip_statistic(values) < 0.002
    assert dip_test(values).p_value > 0.5


@pytest.mark.parametrize("gap", [0.25, 1.0, 4.0])
def test_large_samples_of_two_uniform_halves(gap):
    # Best is a line: D above the first half's start and the gap's end, D below their opposites.
    x = 2 * np.random.default_rng(0).random(100_000)
    x[x > 1] += gap
    assert dip_statistic(x) == pytest.approx(gap / (4 * (1 + gap)), abs=0.003)
    assert dip_test(x).p_value < 1e-10


# p-values.


# Quantiles of the dip of n uniform observations: qDiptab of R's diptest (Maechler; 1,000,001
# samples each), a more accurate Table 1 of Hartigan and Hartigan (1985).
PUBLISHED = {
    4: {0.3: 0.132559548782689, 0.05: 0.20726978858736, 0.001: 0.244369839049632},
    7: {0.5: 0.117807846504335, 0.05: 0.159903395678336, 0.001: 0.202341010748261},
    10: {0.5: 0.0977817630384725, 0.05: 0.139611395137099, 0.001: 0.180611195797351},
    20: {0.5: 0.0733437740592714, 0.05: 0.105130218270636, 0.001: 0.138569903791767},
    50: {0.5: 0.048851155289608, 0.05: 0.0702737877191269, 0.001: 0.0940930106666244},
    100: {0.5: 0.0354621760592113, 0.05: 0.0511279442868827, 0.001: 0.0684479731118028},
    200: {0.5: 0.025584358256487, 0.05: 0.0368418413878307, 0.001: 0.0497198001867437},
    1000: {0.5: 0.0117439009052552, 0.05: 0.0169343970067564, 0.001: 0.0228689168972669},
    5000: {0.5: 0.00531239247408213, 0.05: 0.0076506368153935, 0.001: 0.0103498795291629},
    20_000: {0.5: 0.00266863168718114, 0.05: 0.00384330190244679, 0.001: 0.00520917757743218},
    72_000: {0.5: 0.00141049709228472, 0.05: 0.00203178401610555, 0.001: 0.0027524322157581},
}
# The same table's 0.99999 quantiles, each the tenth largest of its samples.
FAR_TAIL = {
    50: 0.113536607717411,
    200: 0.0607646310473911,
    1000: 0.0284430733108,
    5000: 0.0129467396733128,
    72_000: 0.00339316094477355,
}


@pytest.mark.parametrize("n", PUBLISHED)
def test_p_values_of_published_quantiles(n):
    for p, quantile in PUBLISHED[n].items():
        # Four standard errors of both simulations, and 1 % for interpolation.
        error = 4 * np.sqrt((1 - p) / (p * 500_000)) + 0.01
        assert dip_p_value(quantile, n) == pytest.approx(p, rel=error)


@pytest.mark.parametrize("n", FAR_TAIL)
def test_tail_beyond_the_table_has_the_right_size(n):
    assert 0.4e-5 < dip_p_value(FAR_TAIL[n], n) < 2.5e-5


@pytest.mark.parametrize("n", [13, 73, 300])
def test_p_values_of_uniform_samples_are_uniform(n):
    rng = np.random.default_rng(n)
    p = [dip_p_value(dip, n) for dip in dips(rng.random((3000, n)))]
    assert scipy.stats.kstest(p, "uniform").pvalue > 0.01


def test_the_smallest_dip_counts_as_a_whole():
    # Two in three samples of four have it: P(dip ≥ 1/8) is 1, not what is left above.
    assert dip_p_value(1 / 8, 4) == 1.0
    assert dip_p_value(0.126, 4) < 0.41


@pytest.mark.parametrize("n", [4, 5, 11, 35, 64, 3000, 10**6])
def test_p_falls_with_the_dip_and_stays_a_probability(n):
    p = np.array([dip_p_value(dip, n) for dip in np.linspace(1 / (2 * n), 0.25, 2000)])
    assert p[0] == 1.0
    assert (np.diff(p) <= 0).all()
    assert ((p >= 0) & (p <= 1)).all()
    assert p[-1] < 1e-3


def test_one_mode_has_large_and_two_modes_small_p_values():
    rng = np.random.default_rng(0)
    for n in (50, 300):
        one = [dip_test(rng.standard_normal(n)).p_value for _ in range(100)]
        assert np.median(one) > 0.7
        assert np.mean(np.array(one) < 0.05) < 0.02
        shifts = 12 * rng.integers(0, 2, (30, n))
        two = [dip_test(rng.standard_normal(n) + shift).p_value for shift in shifts]
        assert max(two) < 0.001


def test_few_distinct_values_look_like_many_modes():
    values = np.random.default_rng(0).random(500)
    assert dip_test(values).p_value > 0.05
    assert dip_test(np.floor(10 * values)).p_value < 0.001


def test_table_is_in_order():
    log_p, roots, table = _null_table()
    assert log_p[0] == 0.0
    np.testing.assert_allclose(np.exp(log_p[1:]), LEVELS)
    assert (np.diff(log_p) < 0).all()
    assert roots[0] == 0.0
    assert roots[-1] == 0.5
    assert (np.diff(roots) > 0).all()
    assert (np.diff(table, axis=1) >= 0).all()


def test_dips_of_many_samples_are_the_dips_of_each():
    rng = np.random.default_rng(0)
    for n in (4, 5, 17, 200):
        samples = rng.beta(0.7, 0.7, (50, n))
        np.testing.assert_allclose(dips(samples), [dip_statistic(x) for x in samples], atol=1e-11)


# What is refused.


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, np.nan, np.inf], "values has 2 missing or infinite entries; leave them out."),
        ([1.0, None], "values has 1 missing or infinite entries; leave them out."),
        (["low", "high"], "values must be numbers; pass a one-dimensional array of them."),
        (
            [],
            r"values must be one or more numbers in a row, got an array of shape \(0,\); "
            "pass a one-dimensional array that is not empty.",
        ),
        (np.zeros((3, 2)), r"got an array of shape \(3, 2\)"),
        (4.0, r"got an array of shape \(\)"),
    ],
)
@pytest.mark.parametrize("function", [dip_statistic, dip_test])
def test_values_that_are_not_a_sample(function, values, message):
    with pytest.raises(InputError, match=message):
        function(values)


@pytest.mark.parametrize("statistic", [-0.1, 0.51, np.nan])
def test_a_statistic_that_is_no_dip(statistic):
    message = f"a dip lies between 0 and 0.5, got {statistic}; pass a dip."
    with pytest.raises(InputError, match=message):
        dip_p_value(statistic, 10)


def test_no_observations():
    message = "n must be at least 1, got 0; pass the number of observations."
    with pytest.raises(InputError, match=message):
        dip_p_value(0.1, 0)
