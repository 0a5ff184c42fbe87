"""Training-step benchmarks of rlx against JAX and PyTorch; run `python -m benchmarks`."""
