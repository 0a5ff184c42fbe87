"""Training-step benchmarks of rlx against JAX and PyTorch on the CPU; run `python -m benchmarks`."""
