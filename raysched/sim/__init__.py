"""The same loop and core under a virtual clock: simulated cluster and agents, scenarios, benches. Imports no Ray."""
