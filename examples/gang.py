"""A gang: two bundles of 8 GPUs on two nodes, both or neither. Its ranks meet as torchrun's do.

Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment, so that
`torch.distributed.init_process_group("nccl")` works as it is. Here sockets stand in for it.

    python examples/gang.py
"""

import raysched


def all_reduce(number: int) -> int:
    """Add up a number of every rank, at rank 0, and tell everybody the sum."""
    import os
    import socket
    import time

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    own = number * (rank + 1)
    if rank == 0:
        with socket.create_server(meeting) as door:
            peers = [door.accept()[0].makefile("rw") for _ in range(world - 1)]
        total = own + sum(int(peer.readline()) for peer in peers)
        for peer in peers:
            print(total, file=peer, flush=True)
    else:
        while True:  # until rank 0 listens
            try:
                line = socket.create_connection(meeting).makefile("rw")
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        print(own, file=line, flush=True)
        total = int(line.readline())
    print(f"rank {rank} of {world} on {os.environ['RAYSCHED_NODE']}: the sum is {total}")
    return total


if __name__ == "__main__":
    handle = raysched.submit(all_reduce, 10, share="vision", gpu=8, count=2)
    print(f"rank 0 returned {handle.result(timeout=120)}")
    for rank in (0, 1):
        print(handle.logs(rank=rank), end="")
    print(f"it ran on {', '.join(handle.status()['nodes'])}")
