"""The FGD packing experiment on Alibaba's openb trace: six published policies and our own, each pod tried once."""
