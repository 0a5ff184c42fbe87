"""rlx-py: an autodiff compiler."""
