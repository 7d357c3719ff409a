"""What holds on the simulated device. `test_rules.py` runs these tests inside the simulation."""
