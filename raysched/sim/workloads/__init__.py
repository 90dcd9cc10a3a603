"""What a simulation is given: a workload, from a public trace or from a generator with a seed."""
