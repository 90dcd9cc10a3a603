"""The jobs of the demonstration: plain Python, as a researcher would write it. Each imports what it needs itself."""


def work(name: str, seconds: float) -> str:
    """Keep a core a little busy."""
    import time

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(i * i for i in range(1_000))
        time.sleep(0.1)
    return f"{name} worked for {seconds} s"


def all_reduce(checkpoints: str, steps: int) -> str:
    """A gang: its ranks meet over MASTER_ADDR, add up a number each step, and go on from the last checkpoint."""
    import json
    import os
    import socket
    import time
    from pathlib import Path

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    file = Path(checkpoints) / "pretrain.json"
    saved = json.loads(file.read_text()) if file.exists() else {"step": 0, "total": 0}
    print(f"rank {rank} of {world} on GPUs {os.environ['CUDA_VISIBLE_DEVICES']}, from step {saved['step']}", flush=True)
    if rank == 0:
        server = socket.create_server(address)
        peers = [server.accept()[0] for _ in range(world - 1)]
        streams = [peer.makefile("rw") for peer in peers]
        first = saved["step"]
        while saved["step"] < steps or file.with_name("hold").exists():
            total = rank + sum(int(stream.readline()) for stream in streams)
            saved = {"step": saved["step"] + 1, "total": saved["total"] + total}
            draft = file.with_suffix(".new")
            draft.write_text(json.dumps(saved))
            draft.replace(file)
            for stream in streams:
                stream.write(f"{saved['step']}\n")
                stream.flush()
            time.sleep(1.0)
        for stream in streams:
            stream.write("done\n")
            stream.flush()
        return f"{saved['step']} steps, {saved['step'] - first} of them in the last attempt; sum {saved['total']}"
    while True:
        try:
            stream = socket.create_connection(address, timeout=60).makefile("rw")
            break
        except OSError:
            time.sleep(0.2)
    step = ""
    while step != "done":
        stream.write(f"{rank}\n")
        stream.flush()
        step = stream.readline().strip()
    return f"rank {rank} done"
