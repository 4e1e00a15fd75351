import numpy as np

from ding_like.rl_utils.exploration import gaussian_noise


def test_noise_has_the_standard_deviation_asked_for():
    noise = gaussian_noise(50_000, 2, sigma=0.3, rng=np.random.default_rng(0))

    assert noise.shape == (50_000, 2) and noise.dtype == np.float32
    np.testing.assert_allclose(noise.std(axis=0), 0.3, rtol=0.02)


def test_each_row_has_its_own_sigma():
    noise = gaussian_noise(3, 20_000, sigma=np.array([0.0, 0.1, 1.0]), rng=np.random.default_rng(0))

    np.testing.assert_allclose(noise.std(axis=1), [0.0, 0.1, 1.0], rtol=0.03)


def test_what_is_drawn_does_not_depend_on_sigma():
    generators = [np.random.default_rng(0) for _ in range(2)]
    for rng, sigma in zip(generators, (0.1, np.ones(4)), strict=True):
        gaussian_noise(4, 3, sigma=sigma, rng=rng)

    assert generators[0].random() == generators[1].random()
