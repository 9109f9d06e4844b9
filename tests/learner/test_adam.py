"""Adam against PyTorch's own."""

import torch

from lamarckian_cli.learner.adam import Adam


def test_steps_equal_those_of_torch_and_a_restored_one_goes_on():
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(50, generator=generator)
    theirs = torch.nn.Parameter(ours.clone())
    gradient = torch.zeros(50)
    adam = Adam(ours, gradient, lr=0.01, epsilon=1e-5)
    oracle = torch.optim.Adam([theirs], lr=0.01, eps=1e-5)
    for step in range(20):
        gradient.copy_(torch.randn(50, generator=generator))
        theirs.grad = gradient.clone()
        adam.lr = oracle.param_groups[0]["lr"] = 0.01 * (1 - step / 40)
        adam.step()
        oracle.step()
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-7)
        state, adam = adam.state(), Adam(ours, gradient, lr=0.01, epsilon=1e-5)
        adam.restore(state)
