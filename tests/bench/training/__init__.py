"""The parts of tests/bench/trainer_bench.py."""
