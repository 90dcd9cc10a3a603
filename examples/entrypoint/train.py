"""An ordinary training script: it knows nothing of raysched but what is in its environment."""

import json
import os
from pathlib import Path

settings = json.loads(Path("settings.json").read_text())  # came along with the working directory
print(f"training with {settings} on GPUs {os.environ['CUDA_VISIBLE_DEVICES']}, learning rate {os.environ['LR']}")
loss = 1.0
for epoch in range(settings["epochs"]):
    loss *= 0.5
    print(f"epoch {epoch}: loss {loss:.3f}", flush=True)
